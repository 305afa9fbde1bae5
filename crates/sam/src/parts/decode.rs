//! Prompts on a picture to masks.

use cutout_graph::{Scope, Value, ports};
use cutout_tensor::{DType, TensorType};

use super::image::Encoded;
use crate::components::image_encoder::projected_pyramid;
use crate::components::mask_choice::choose;
use crate::components::mask_decoder::{Decoded, DecoderInputs, mask_decoder};
use crate::components::prompt_encoder;
use crate::components::two_way_transformer::{ImageOperands, image_operands};
use crate::model::ModelError;
use crate::model::config::{
    DecoderConfig, DecoderForm, EncoderConfig, ModelConfig, interactive_neck,
};
use crate::model::part::Part;
use crate::prompt::Candidates;

ports! {
    /// Inputs of the mask decoder that depend on the picture alone, computed once for all prompts.
    pub struct PreparedImage {
        /// Embedding without a dense prompt, for prompts with a mask, `f32[1, grid, grid, width]`.
        embedding,
        /// The fine levels of the pyramid: SAM 2 and 3.
        level0: optional,
        /// See `level0`.
        level1: optional,
        /// Embedding with the "no mask" dense prompt, `f32[1, grid * grid, width]`.
        image,
        /// Positions of its cells, `f32[1, grid * grid, width]`.
        positions,
        /// The image's operands of the first two-way layer, each `f32[1, grid * grid, width / downsample]`.
        first: group ImageOperands,
    }
}

/// Computes [`PreparedImage`]. For SAM 3 this includes the interactive neck, which phrases do not use.
#[derive(Clone, Copy, Debug)]
pub struct PrepareImage;

ports! {
    /// Inputs of the mask decoder.
    pub struct DecodeInputs {
        /// `f32[prompts, points, 2]`, in pixels of the model's input.
        points,
        /// [Kind](crate::components::prompt_encoder::PointKind) of each, `i64[prompts, points]`.
        kinds,
        /// Mask logits to refine, `f32[prompts, 4 grid, 4 grid, 1]`. Programs with masks have `embedding`; programs
        /// without have `image`, `positions` and `first`.
        masks: optional,
        /// See [`PreparedImage`].
        embedding: optional,
        /// See [`PreparedImage`].
        image: optional,
        /// See [`PreparedImage`].
        positions: optional,
        /// See [`PreparedImage`].
        first: optional ImageOperands,
        /// See [`PreparedImage`].
        level0: optional,
        /// See [`PreparedImage`].
        level1: optional,
    }
}

ports! {
    /// The masks that answer prompts.
    pub struct Answers {
        /// Mask logits, `f32[prompts, candidates, 4 grid, 4 grid]`.
        logits,
        /// Logits clamped to the limit of the family, in the form of a mask prompt.
        feedback,
        /// Predicted IoU, `f32[prompts, candidates]`.
        iou,
        /// Object score logits `f32[prompts]`; absent in SAM 1.
        object_score: optional,
    }
}

/// Prompt encoder, mask decoder and choice of masks, for a batch of prompts on one picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decode {
    /// Prompts that are decoded at once.
    pub prompts: usize,
    /// Points of each, box corners and padding included.
    pub points: usize,
    /// Whether each prompt comes with mask logits.
    pub masks: bool,
    /// How many masks answer a prompt.
    pub wanted: Candidates,
}

impl Decode {
    /// One point and one padding token in place of a box.
    pub const ONE_CLICK: Decode =
        Decode { prompts: 1, points: 2, masks: false, wanted: Candidates::Three };
}

impl Part for PrepareImage {
    type Inputs = Encoded<()>;
    type Outputs = PreparedImage<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<Encoded<TensorType>, ModelError> {
        let grid = config.encoder.grid();
        let decoder = config.decoder()?;
        Ok(match &config.encoder {
            EncoderConfig::RotaryVit { trunk, .. } => {
                let trunk = TensorType::f32([1, grid, grid, trunk.width]);
                Encoded { trunk: Some(trunk), ..Encoded::none() }
            }
            EncoderConfig::Vit { .. } | EncoderConfig::Hiera(_) => {
                let [level0, level1] = fine_levels(config, decoder);
                let embedding = Some(TensorType::f32([1, grid, grid, decoder.width]));
                Encoded { level0, level1, embedding, ..Encoded::none() }
            }
        })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        features: Encoded<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<PreparedImage<Value<'g>>, ModelError> {
        let decoder = config.decoder()?;
        let features = match features.trunk {
            Some(trunk) => interactive_levels(trunk, w, decoder),
            None => features,
        };
        let embedding = features.embedding.ok_or(ModelError::NoInteractiveHead)?;
        let DecoderImage { image, positions, first } =
            DecoderImage::new(embedding, None, w, decoder);
        let Encoded { level0, level1, .. } = features;
        Ok(PreparedImage { embedding, level0, level1, image, positions, first })
    }
}

/// Levels of SAM 3's interactive neck.
pub(super) fn interactive_levels<'g>(
    trunk: Value<'g>,
    w: &Scope<'g>,
    decoder: &DecoderConfig,
) -> Encoded<Value<'g>> {
    let (form, width) = (decoder.form, decoder.width);
    let masks = &w.at(form.mask_decoder());
    let [level0, level1, top] =
        projected_pyramid(trunk, &w.at(interactive_neck(form)), masks, width);
    let no_memory = match form {
        DecoderForm::Sam3_1 => "tracker.model.interactivity_no_mem_embed",
        DecoderForm::Sam1 | DecoderForm::Sam2 | DecoderForm::Sam3 => "tracker.no_mem_embed",
    };
    // A picture has no memories: a learnt vector is added instead.
    let embedding = top + w.parameter(no_memory, [1, 1, width]);
    Encoded {
        trunk: None,
        level0: Some(level0),
        level1: Some(level1),
        level2: Some(top),
        embedding: Some(embedding),
    }
}

impl Part for Decode {
    type Inputs = DecodeInputs<()>;
    type Outputs = Answers<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<DecodeInputs<TensorType>, ModelError> {
        let decoder = config.decoder()?;
        let (grid, side) = (config.encoder.grid(), config.mask_side());
        let cells = |width| TensorType::f32([1, grid * grid, width]);
        let [level0, level1] = fine_levels(config, decoder);
        let prepared = |width| (!self.masks).then(|| cells(width));
        let narrow = decoder.width / decoder.downsample;
        Ok(DecodeInputs {
            points: TensorType::f32([self.prompts, self.points, 2]),
            kinds: TensorType::new(DType::I64, [self.prompts, self.points]),
            masks: self.masks.then(|| TensorType::f32([self.prompts, side, side, 1])),
            embedding: self.masks.then(|| TensorType::f32([1, grid, grid, decoder.width])),
            image: prepared(decoder.width),
            positions: prepared(decoder.width),
            first: (!self.masks).then(|| ImageOperands {
                key: cells(narrow),
                value: cells(narrow),
                query: cells(narrow),
            }),
            level0,
            level1,
        })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        inputs: DecodeInputs<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<Answers<Value<'g>>, ModelError> {
        let decoder = config.decoder()?;
        let image = match (inputs.embedding, inputs.image, inputs.positions, inputs.first) {
            (None, Some(image), Some(positions), Some(first)) => {
                DecoderImage { image, positions, first }
            }
            (Some(embedding), ..) => DecoderImage::new(embedding, inputs.masks, w, decoder),
            _ => return Err(ModelError::NoInteractiveHead),
        };
        let prompts = Prompts { points: inputs.points, kinds: inputs.kinds };
        let fine = inputs.level0.zip(inputs.level1).map(|(level0, level1)| [level0, level1]);
        let decoded = decode(prompts, image, fine, w, config)?;
        let processing = config.processing();
        let chosen = choose(&decoded, self.wanted, processing.single_mask);
        Ok(Answers {
            logits: chosen.logits,
            feedback: within_limit(chosen.logits, config),
            iou: chosen.iou,
            object_score: decoded.object.map(|object| object.score),
        })
    }
}

/// Clamps logits to the limit of the family.
pub(super) fn within_limit<'g>(logits: Value<'g>, config: &ModelConfig) -> Value<'g> {
    let Some(limit) = config.processing().logit_limit else { return logits };
    let bound = |value: f32| logits.builder().scalar(value);
    logits.minimum(bound(limit)).maximum(bound(-limit))
}

/// Types of the pyramid's fine levels, where the decoder reads them.
pub(super) fn fine_levels(
    config: &ModelConfig,
    decoder: &DecoderConfig,
) -> [Option<TensorType>; 2] {
    let (grid, width) = (config.encoder.grid(), decoder.width);
    let level = |side, width| Some(TensorType::f32([1, side, side, width]));
    match decoder.form {
        DecoderForm::Sam1 => [None, None],
        DecoderForm::Sam2 | DecoderForm::Sam3 | DecoderForm::Sam3_1 => {
            [level(4 * grid, width / 8), level(2 * grid, width / 4)]
        }
    }
}

/// Points of prompts: see [`DecodeInputs`].
#[derive(Clone, Copy)]
pub(super) struct Prompts<'g> {
    pub(super) points: Value<'g>,
    pub(super) kinds: Value<'g>,
}

/// Image inputs of the mask decoder: see [`PreparedImage`].
#[derive(Clone)]
pub(super) struct DecoderImage<'g> {
    image: Value<'g>,
    positions: Value<'g>,
    first: ImageOperands<Value<'g>>,
}

impl<'g> DecoderImage<'g> {
    /// From embeddings `[images, grid, grid, width]`, with or without mask logits for each prompt.
    pub(super) fn new(
        embedding: Value<'g>,
        masks: Option<Value<'g>>,
        w: &Scope<'g>,
        decoder: &DecoderConfig,
    ) -> Self {
        let [images, side, _, width] = embedding.dims();
        let prompts = &w.at(decoder.form.prompt_encoder());
        let dense = match masks {
            Some(logits) => prompt_encoder::mask(logits, prompts, decoder),
            None => prompt_encoder::no_mask(prompts, width),
        };
        let image = embedding.reshape([images, side * side, width]) + dense;
        let positions = prompt_encoder::dense_positions(prompts, side, width);
        let transformer = w.at(decoder.form.mask_decoder()).at("transformer");
        let first = image_operands(image, positions, &transformer, decoder);
        DecoderImage { image, positions, first }
    }
}

/// Runs prompt encoder and mask decoder; returns all mask tokens.
pub(super) fn decode<'g>(
    prompts: Prompts<'g>,
    image: DecoderImage<'g>,
    fine: Option<[Value<'g>; 2]>,
    w: &Scope<'g>,
    config: &ModelConfig,
) -> Result<Decoded<'g>, ModelError> {
    let decoder = config.decoder()?;
    let Prompts { points, kinds } = prompts;
    let encoder = &w.at(decoder.form.prompt_encoder());
    let size = config.encoder.image_size();
    let prompts = prompt_encoder::points(points, kinds, encoder, size, decoder.width);
    let DecoderImage { image, positions, first } = image;
    let inputs = DecoderInputs { image, positions, first, prompts, fine };
    let decoded = mask_decoder(inputs, &w.at(decoder.form.mask_decoder()), decoder);
    decoded.logits.stage("decoder.logits");
    decoded.iou.stage("decoder.iou");
    if let Some(object) = decoded.object {
        object.score.stage("decoder.object_score");
        object.tokens.stage("decoder.tokens");
    }
    Ok(decoded)
}
