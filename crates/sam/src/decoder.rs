//! Prompt encoder and mask decoder, put together the same way for every version.

use cutout_graph::{Builder, Value};
use cutout_tensor::DType;

use crate::config::{DecoderConfig, DecoderForm};
use crate::mask_decoder::{Decoded, DecoderInputs, mask_decoder};
use crate::prompt_encoder;
use crate::two_way_transformer::{ImageSide, image_side};

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

/// Whose image a decoder graph takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecoderImage {
    /// One image for all prompts.
    Shared,
    /// One image for each prompt: the objects of a tracked frame, each with its own memories in it.
    PerPrompt,
}

/// A decoder and the images it reads.
#[derive(Clone, Copy)]
pub(crate) struct Decoder<'a> {
    pub(crate) config: &'a DecoderConfig,
    /// Side of the image that points lie on, in pixels.
    pub(crate) image_size: usize,
    /// Side of the embedding's grid.
    pub(crate) grid: usize,
}

impl Decoder<'_> {
    /// A whole decoder: `logits`, `iou` and, where there is one, `object_score` and `tokens`.
    pub(crate) fn builder(self, shape: PromptShape, image: DecoderImage) -> Builder {
        let builder = Builder::new();
        let decoded = self.build(&builder, shape, image);
        builder.output("logits", decoded.logits);
        builder.output("iou", decoded.iou);
        if let Some(object) = decoded.object {
            builder.output("object_score", object.score);
            builder.output("tokens", object.tokens);
        }
        builder
    }

    /// Declares what a decoder needs of an image and no prompt changes, from an input `embedding`.
    pub(crate) fn build_image_side(self, builder: &Builder) {
        let (form, side, width) = (self.config.form, self.grid, self.config.width);
        let w = &builder.weights().at(form.prompt_encoder());
        let embedding = builder.input("embedding", DType::F32, [1, side, side, width]);
        let image = embedding.reshape([1, side * side, width]) + prompt_encoder::no_mask(w, width);
        let positions = prompt_encoder::dense_positions(w, side, width);
        let first = self.first_layer(builder, image, positions);
        builder.output("image", image);
        builder.output("positions", positions);
        builder.output("first.key", first.key);
        builder.output("first.value", first.value);
        builder.output("first.query", first.query);
    }

    /// Declares prompts and image, and decodes them.
    pub(crate) fn build(
        self,
        builder: &Builder,
        shape: PromptShape,
        image: DecoderImage,
    ) -> Decoded<'_> {
        let PromptShape { prompts, points, masks } = shape;
        let (form, width) = (self.config.form, self.config.width);
        let w = &builder.weights().at(form.prompt_encoder());
        let places = builder.input("points", DType::F32, [prompts, points, 2]);
        let kinds = builder.input("kinds", DType::I64, [prompts, points]);
        let tokens = prompt_encoder::points(places, kinds, w, self.image_size, width);
        let inputs = match (image, masks) {
            (DecoderImage::Shared, false) => self.prepared_inputs(builder, tokens),
            (DecoderImage::Shared, true) => self.raw_inputs(builder, tokens, 1, masks),
            (DecoderImage::PerPrompt, masks) => self.raw_inputs(builder, tokens, prompts, masks),
        };
        mask_decoder(inputs, &builder.weights().at(form.mask_decoder()), self.config)
    }

    /// The image is the same for all prompts: its side was computed once.
    fn prepared_inputs<'g>(self, builder: &'g Builder, prompts: Value<'g>) -> DecoderInputs<'g> {
        let (side, width) = (self.grid, self.config.width);
        let cells = |name, width| builder.input(name, DType::F32, [1, side * side, width]);
        let narrow = width / self.config.downsample;
        DecoderInputs {
            image: cells("image", width),
            positions: cells("positions", width),
            first: ImageSide {
                key: cells("first.key", narrow),
                value: cells("first.value", narrow),
                query: cells("first.query", narrow),
            },
            prompts,
            fine: self.fine_levels(builder),
        }
    }

    /// Each prompt changes the image, by a mask or by being on an image of its own.
    fn raw_inputs<'g>(
        self,
        builder: &'g Builder,
        prompts: Value<'g>,
        images: usize,
        masks: bool,
    ) -> DecoderInputs<'g> {
        let (side, width) = (self.grid, self.config.width);
        let [count, ..] = prompts.dims::<3>();
        let w = &builder.weights().at(self.config.form.prompt_encoder());
        let embedding = builder.input("embedding", DType::F32, [images, side, side, width]);
        let dense = if masks {
            let logits = builder.input("masks", DType::F32, [count, 4 * side, 4 * side, 1]);
            prompt_encoder::mask(logits, w, self.config)
        } else {
            prompt_encoder::no_mask(w, width)
        };
        let image = embedding.reshape([images, side * side, width]) + dense;
        let positions = prompt_encoder::dense_positions(w, side, width);
        let first = self.first_layer(builder, image, positions);
        DecoderInputs { image, positions, first, prompts, fine: self.fine_levels(builder) }
    }

    fn first_layer<'g>(
        self,
        builder: &'g Builder,
        image: Value<'g>,
        positions: Value<'g>,
    ) -> ImageSide<'g> {
        let w = builder.weights().at(self.config.form.mask_decoder()).at("transformer");
        image_side(image, positions, &w, self.config)
    }

    /// The pyramid's fine levels, where the decoder reads them.
    fn fine_levels<'g>(self, builder: &'g Builder) -> Option<[Value<'g>; 2]> {
        let (side, width) = (self.grid, self.config.width);
        let level = |name, side, width| builder.input(name, DType::F32, [1, side, side, width]);
        match self.config.form {
            DecoderForm::Sam1 => None,
            DecoderForm::Sam2 | DecoderForm::Sam3 | DecoderForm::Sam3_1 => {
                Some([level("level0", 4 * side, width / 8), level("level1", 2 * side, width / 4)])
            }
        }
    }
}
