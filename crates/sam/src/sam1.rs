//! SAM 1, assembled: which component, which configuration.

use cutout_graph::{BuildError, Builder, Graph, Value};
use cutout_tensor::DType;

use crate::config::{DecoderConfig, Sam1Config, VitConfig};
use crate::image_encoder::vit;
use crate::mask_decoder::{DecoderInputs, mask_decoder};
use crate::prompt_encoder;
use crate::two_way_transformer::{ImageSide, image_side};

/// The decoder that all sizes share.
fn decoder() -> DecoderConfig {
    DecoderConfig {
        width: 256,
        depth: 2,
        heads: 8,
        mlp_width: 2048,
        downsample: 2,
        mask_tokens: 4,
        iou_width: 256,
        iou_depth: 3,
        mask_channels: 4,
    }
}

/// An encoder of SAM 1's family.
fn encoder(width: usize, depth: usize, heads: usize, global_blocks: &[usize]) -> VitConfig {
    VitConfig {
        image_size: 1024,
        patch: 16,
        width,
        depth,
        heads,
        mlp_width: 4 * width,
        window: 14,
        global_blocks: global_blocks.to_vec(),
        norm_epsilon: 1e-6,
        embedding: 256,
    }
}

impl Sam1Config {
    /// ViT-B: 94 million parameters.
    pub fn vit_b() -> Self {
        Sam1Config { encoder: encoder(768, 12, 12, &[2, 5, 8, 11]), decoder: decoder() }
    }

    /// ViT-L: 312 million parameters.
    pub fn vit_l() -> Self {
        Sam1Config { encoder: encoder(1024, 24, 16, &[5, 11, 17, 23]), decoder: decoder() }
    }

    /// ViT-H: 641 million parameters.
    pub fn vit_h() -> Self {
        Sam1Config { encoder: encoder(1280, 32, 16, &[7, 15, 23, 31]), decoder: decoder() }
    }
}

/// Number and kind of prompts that a decoder graph takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PromptShape {
    /// Prompts decoded at once.
    pub prompts: usize,
    /// Points of each, box corners and padding included.
    pub points: usize,
    /// Whether each prompt comes with mask logits.
    pub masks: bool,
}

/// Graph of the image encoder: `pixels: f32[1, size, size, 3]` to `embedding: f32[1, grid, grid, width]`.
pub fn encoder_graph(config: &Sam1Config) -> Result<Graph, BuildError> {
    build_encoder(config).finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn encoder_stages(config: &Sam1Config) -> Result<Graph, BuildError> {
    build_encoder(config).finish_with_stages()
}

fn build_encoder(config: &Sam1Config) -> Builder {
    let builder = Builder::new();
    let size = config.encoder.image_size;
    let pixels = builder.input("pixels", DType::F32, [1, size, size, 3]);
    let embedding = vit(pixels, &builder.weights().at("image_encoder"), &config.encoder);
    builder.output("embedding", embedding);
    builder
}

/// Graph of everything the decoder needs of an image and no prompt changes: `embedding: f32[1, grid, grid, width]` to
/// `image`, `positions: f32[1, grid * grid, width]` and the image's part of the first two-way layer, `first.key`,
/// `first.value`, `first.query: f32[1, grid * grid, width / downsample]`.
pub fn image_side_graph(config: &Sam1Config) -> Result<Graph, BuildError> {
    let builder = Builder::new();
    let (side, width) = (config.encoder.grid(), config.decoder.width);
    let w = &builder.weights();
    let embedding = builder.input("embedding", DType::F32, [1, side, side, width]);
    let dense = prompt_encoder::no_mask(&w.at("prompt_encoder"), width);
    let image = embedding.reshape([1, side * side, width]) + dense;
    let positions = prompt_encoder::dense_positions(&w.at("prompt_encoder"), side, width);
    let first = image_side(image, positions, &w.at("mask_decoder.transformer"), &config.decoder);
    builder.output("image", image);
    builder.output("positions", positions);
    builder.output("first.key", first.key);
    builder.output("first.value", first.value);
    builder.output("first.query", first.query);
    builder.finish()
}

/// Graph of prompt encoder and mask decoder.
///
/// Inputs `points: f32[prompts, points, 2]` in pixels of the model's input, `kinds: i64[prompts, points]` (see
/// [`prompt_encoder::PointKind`]); without masks, the outputs of [`image_side_graph`]; with masks,
/// `embedding: f32[1, grid, grid, width]` and `masks: f32[prompts, 4 grid, 4 grid, 1]`. Outputs
/// `logits: f32[prompts, mask tokens, 4 grid, 4 grid]` and `iou: f32[prompts, mask tokens]`.
pub fn decoder_graph(config: &Sam1Config, shape: PromptShape) -> Result<Graph, BuildError> {
    build_decoder(config, shape).finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn decoder_stages(config: &Sam1Config, shape: PromptShape) -> Result<Graph, BuildError> {
    build_decoder(config, shape).finish_with_stages()
}

fn build_decoder(config: &Sam1Config, shape: PromptShape) -> Builder {
    let builder = Builder::new();
    let PromptShape { prompts, points, masks } = shape;
    let w = &builder.weights().at("prompt_encoder");
    let places = builder.input("points", DType::F32, [prompts, points, 2]);
    let kinds = builder.input("kinds", DType::I64, [prompts, points]);
    let (image_size, width) = (config.encoder.image_size, config.decoder.width);
    let tokens = prompt_encoder::points(places, kinds, w, image_size, width);
    let inputs = if masks {
        masked_inputs(&builder, config, tokens)
    } else {
        plain_inputs(&builder, config, tokens)
    };
    let decoded = mask_decoder(inputs, &builder.weights().at("mask_decoder"), &config.decoder);
    builder.output("logits", decoded.logits);
    builder.output("iou", decoded.iou);
    builder
}

/// The image is the same for all prompts: its side was computed once.
fn plain_inputs<'g>(
    builder: &'g Builder,
    config: &Sam1Config,
    prompts: Value<'g>,
) -> DecoderInputs<'g> {
    let (side, width) = (config.encoder.grid(), config.decoder.width);
    let cells = |name, width| builder.input(name, DType::F32, [1, side * side, width]);
    let narrow = width / config.decoder.downsample;
    DecoderInputs {
        image: cells("image", width),
        positions: cells("positions", width),
        first: ImageSide {
            key: cells("first.key", narrow),
            value: cells("first.value", narrow),
            query: cells("first.query", narrow),
        },
        prompts,
    }
}

/// Each prompt adds its own mask to the image.
fn masked_inputs<'g>(
    builder: &'g Builder,
    config: &Sam1Config,
    prompts: Value<'g>,
) -> DecoderInputs<'g> {
    let (side, width) = (config.encoder.grid(), config.decoder.width);
    let [count, ..] = prompts.dims::<3>();
    let w = &builder.weights().at("prompt_encoder");
    let embedding = builder.input("embedding", DType::F32, [1, side, side, width]);
    let logits = builder.input("masks", DType::F32, [count, 4 * side, 4 * side, 1]);
    let dense = prompt_encoder::mask(logits, w, &config.decoder);
    let image = embedding.reshape([1, side * side, width]) + dense;
    let positions = prompt_encoder::dense_positions(w, side, width);
    let transformer = &builder.weights().at("mask_decoder.transformer");
    let first = image_side(image, positions, transformer, &config.decoder);
    DecoderInputs { image, positions, first, prompts }
}
