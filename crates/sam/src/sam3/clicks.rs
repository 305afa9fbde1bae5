//! What answers clicks, boxes and masks: SAM 2's prompt encoder and mask decoder on levels of their own.

use cutout_graph::{BuildError, Builder, Graph};

use super::{part, trunk_input};
use crate::config::{DecoderForm, Sam3Config};
use crate::decoder::{Decoder, DecoderImage, PromptShape};
use crate::image_encoder::projected_pyramid;

/// Graph of the levels that clicks are answered from: `trunk` to `level0: f32[1, 4 grid, 4 grid, width / 8]` and
/// `level1: f32[1, 2 grid, 2 grid, width / 4]` as the mask decoder adds them, and
/// `embedding: f32[1, grid, grid, width]`, which it starts from.
pub fn clicks_graph(config: &Sam3Config) -> Result<Graph, BuildError> {
    let clicks = decoder(config)?.config;
    let builder = Builder::new();
    let trunk = trunk_input(&builder, &config.trunk);
    let w = &builder.weights();
    let neck = &w.at(click_neck(clicks.form));
    let masks = &w.at(clicks.form.mask_decoder());
    let [level0, level1, top] = projected_pyramid(trunk, neck, masks, clicks.width);
    let no_memory = w.parameter(no_memory(clicks.form), [1, 1, clicks.width]);
    builder.output("level0", level0);
    builder.output("level1", level1);
    builder.output("embedding", top + no_memory);
    builder.finish()
}

/// Graph of everything the mask decoder needs of an image and no prompt changes, from `embedding`; see
/// [`crate::sam2::image_side_graph`].
pub fn click_image_side_graph(config: &Sam3Config) -> Result<Graph, BuildError> {
    let builder = Builder::new();
    decoder(config)?.build_image_side(&builder);
    builder.finish()
}

/// Graph of prompt encoder and mask decoder, with the inputs and outputs of [`crate::sam2::decoder_graph`].
pub fn click_decoder_graph(config: &Sam3Config, shape: PromptShape) -> Result<Graph, BuildError> {
    decoder(config)?.builder(shape, DecoderImage::Shared).finish()
}

/// Where the neck of the clicks is.
pub(super) fn click_neck(form: DecoderForm) -> &'static str {
    match form {
        DecoderForm::Sam3_1 => "detector.backbone.vision_backbone.interactive_convs",
        DecoderForm::Sam1 | DecoderForm::Sam2 | DecoderForm::Sam3 => {
            "detector.backbone.vision_backbone.sam2_convs"
        }
    }
}

/// What takes the place of the memory that a picture does not have.
fn no_memory(form: DecoderForm) -> &'static str {
    match form {
        DecoderForm::Sam3_1 => "tracker.model.interactivity_no_mem_embed",
        DecoderForm::Sam1 | DecoderForm::Sam2 | DecoderForm::Sam3 => "tracker.no_mem_embed",
    }
}

fn decoder(config: &Sam3Config) -> Result<Decoder<'_>, BuildError> {
    let trunk = &config.trunk;
    let clicks = part(config.clicks.as_ref(), "interactive head")?;
    Ok(Decoder { config: clicks, image_size: trunk.image_size, grid: trunk.grid() })
}
