//! Model configurations: sizes and kinds of the components, and the processing of each family outside the graphs.

mod bounds;
mod memory;
mod sam1;
mod sam2;
mod sam3;
mod tracking;

use std::collections::HashMap;

use cutout_imaging::Fit;
use cutout_tensor::Shape;
use cutout_weights::Metadata;
use cutout_weights::layout::{Family, Identity};
use serde::Serialize;

pub use memory::{MemoryConfig, MemoryForm, MultiplexConfig};
pub use sam3::{DetectorConfig, Exemplars, FinderConfig, PositionRows, PositionTable, TextConfig};

use super::ModelError;
use super::load::{ConfigError, Shapes};
use crate::prompt::TokenOrder;

pub(crate) use sam3::interactive_neck;
pub(crate) use tracking::{Grouping, PromptedRows, RecentFrames, TrackingRules};

/// A ViT with windowed and global attention: the image encoder of SAM 1 in front of its neck, and that of SAM 3.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VitConfig {
    /// Side of the square input, in pixels.
    pub image_size: usize,
    /// Side of a patch, in pixels.
    pub patch: usize,
    /// Channels.
    pub width: usize,
    /// Blocks.
    pub depth: usize,
    /// Attention heads.
    pub heads: usize,
    /// Channels between the two layers of a block's MLP.
    pub mlp_width: usize,
    /// Side of an attention window, in tokens.
    pub window: usize,
    /// Blocks that attend to the whole image.
    pub global_blocks: Vec<usize>,
    /// Epsilon of its layer norms.
    pub norm_epsilon: f32,
}

impl VitConfig {
    /// Side of the token grid.
    pub fn grid(&self) -> usize {
        self.image_size / self.patch
    }

    /// Channels of one head.
    pub fn head_width(&self) -> usize {
        self.width / self.heads
    }

    /// Whether a block attends to the whole image.
    pub fn is_global(&self, block: usize) -> bool {
        self.global_blocks.contains(&block)
    }
}

/// A Hiera image encoder with its feature pyramid. Each stage has half the grid of the one before it, and twice the
/// channels and heads; the grid of the first has a quarter of the image's pixels along each axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HieraConfig {
    /// Side of the square input, in pixels.
    pub image_size: usize,
    /// Channels of the first stage.
    pub width: usize,
    /// Attention heads of the first stage.
    pub heads: usize,
    /// Blocks of each stage.
    pub stages: [usize; 4],
    /// Side of an attention window in each stage, in tokens. The first block of a stage still has the windows of the
    /// stage before it, whose queries it pools.
    pub windows: [usize; 4],
    /// Blocks that attend to the whole image.
    pub global_blocks: Vec<usize>,
    /// Side of the position embedding that is stretched over the image; another of the first window's side is repeated
    /// on top of it.
    pub position_grid: usize,
    /// Epsilon of the blocks' layer norms.
    pub norm_epsilon: f32,
    /// Channels of the embedding.
    pub embedding: usize,
}

impl HieraConfig {
    /// Side of the embedding's grid, which is that of the third stage.
    pub fn grid(&self) -> usize {
        self.image_size / 16
    }

    /// Side of the grid of the first stage.
    pub fn first_grid(&self) -> usize {
        self.image_size / 4
    }
}

/// Generation of prompt encoder and mask decoder: inputs, outputs and weight names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum DecoderForm {
    /// SAM 1: masks from the embedding alone, predicted IoU without sigmoid.
    Sam1,
    /// SAM 2 and later: finer levels of the pyramid, an object score, IoU between 0 and 1, tokens for object pointers.
    Sam2,
    /// The same in SAM 3, under other names.
    Sam3,
    /// The same in SAM 3.1, under its names, and predicted IoU without sigmoid.
    Sam3_1,
}

impl DecoderForm {
    /// Where the prompt encoder's weights are.
    pub(crate) fn prompt_encoder(self) -> &'static str {
        match self {
            DecoderForm::Sam1 => "prompt_encoder",
            DecoderForm::Sam2 => "sam_prompt_encoder",
            DecoderForm::Sam3 => "tracker.sam_prompt_encoder",
            DecoderForm::Sam3_1 => "tracker.model.interactive_sam_prompt_encoder",
        }
    }

    /// Where the mask decoder's weights are.
    pub(crate) fn mask_decoder(self) -> &'static str {
        match self {
            DecoderForm::Sam1 => "mask_decoder",
            DecoderForm::Sam2 => "sam_mask_decoder",
            DecoderForm::Sam3 => "tracker.sam_mask_decoder",
            DecoderForm::Sam3_1 => "tracker.model.interactive_sam_mask_decoder",
        }
    }
}

/// Heads of the mask decoder in all of Meta's models. No tensor shape determines it.
const DECODER_HEADS: usize = 8;

/// The prompt encoder and mask decoder.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecoderConfig {
    /// Which generation.
    pub form: DecoderForm,
    /// Channels of tokens and image embedding.
    pub width: usize,
    /// Two-way layers.
    pub depth: usize,
    /// Attention heads.
    pub heads: usize,
    /// Channels between the two layers of a two-way layer's MLP.
    pub mlp_width: usize,
    /// Cross attention runs at `width / downsample` channels.
    pub downsample: usize,
    /// Mask tokens: one for the single mask, then the candidates.
    pub mask_tokens: usize,
    /// Channels between the layers of the IoU head.
    pub iou_width: usize,
    /// Layers of the IoU head.
    pub iou_depth: usize,
    /// Channels after the first layer of the mask prompt's convolutions; the second has four times as many.
    pub mask_channels: usize,
}

impl DecoderConfig {
    /// The decoder that all published models of the family have.
    pub(crate) fn published(form: DecoderForm) -> Self {
        DecoderConfig {
            form,
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

    /// Reads the prompt encoder and mask decoder of a generation from their tensors.
    fn read(shapes: &Shapes<'_>, form: DecoderForm, heads: usize) -> Result<Self, ConfigError> {
        let prompts = form.prompt_encoder();
        let [mask_channels] = shapes.axes(&format!("{prompts}.mask_downscaling.0.bias"))?;
        let config = DecoderConfig::read_masks(shapes, form, form.mask_decoder(), heads)?;
        Ok(DecoderConfig { mask_channels, ..config })
    }

    /// Reads a mask decoder alone, whose weights are at `masks`.
    fn read_masks(
        shapes: &Shapes<'_>,
        form: DecoderForm,
        masks: &str,
        heads: usize,
    ) -> Result<Self, ConfigError> {
        let [mask_tokens, width] = shapes.axes(&format!("{masks}.mask_tokens.weight"))?;
        let layers = format!("{masks}.transformer.layers");
        let mlp = match form {
            DecoderForm::Sam1 | DecoderForm::Sam3 | DecoderForm::Sam3_1 => "mlp.lin1",
            DecoderForm::Sam2 => "mlp.layers.0",
        };
        let [mlp_width] = shapes.axes(&format!("{layers}.0.{mlp}.bias"))?;
        let [narrow] = shapes.axes(&format!("{layers}.0.cross_attn_token_to_image.q_proj.bias"))?;
        let iou_layers = format!("{masks}.iou_prediction_head.layers");
        let [iou_width] = shapes.axes(&format!("{iou_layers}.0.bias"))?;
        Ok(DecoderConfig {
            form,
            width,
            depth: shapes.count(&layers, "norm1.weight"),
            heads,
            mlp_width,
            downsample: (width / narrow).max(1),
            mask_tokens,
            iou_width,
            iou_depth: shapes.count(&iou_layers, "bias"),
            ..DecoderConfig::published(form)
        })
    }
}

/// The image encoder of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum EncoderConfig {
    /// SAM 1: a ViT with decomposed relative positions, and a neck.
    Vit {
        /// The ViT.
        #[serde(flatten)]
        trunk: VitConfig,
        /// Output channels of the neck.
        embedding: usize,
    },
    /// SAM 2: Hiera and its feature pyramid.
    Hiera(HieraConfig),
    /// SAM 3: a ViT with rotary positions, in global blocks scaled to the range of a window.
    RotaryVit {
        /// The ViT.
        #[serde(flatten)]
        trunk: VitConfig,
        /// Its other positions.
        positions: PositionTable,
    },
}

impl EncoderConfig {
    /// Side of the square input, in pixels.
    pub fn image_size(&self) -> usize {
        match self {
            EncoderConfig::Vit { trunk, .. } | EncoderConfig::RotaryVit { trunk, .. } => {
                trunk.image_size
            }
            EncoderConfig::Hiera(hiera) => hiera.image_size,
        }
    }

    /// Side of the embedding's grid.
    pub fn grid(&self) -> usize {
        match self {
            EncoderConfig::Vit { trunk, .. } | EncoderConfig::RotaryVit { trunk, .. } => {
                trunk.grid()
            }
            EncoderConfig::Hiera(hiera) => hiera.grid(),
        }
    }
}

/// A whole model, or the parts of it that a checkpoint has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelConfig {
    /// The image encoder.
    pub encoder: EncoderConfig,
    /// Prompt encoder and mask decoder, which answer clicks, boxes and masks; `None` in a checkpoint of SAM 3's
    /// detector alone.
    pub decoder: Option<DecoderConfig>,
    /// Memory encoder and memory attention: video checkpoints of SAM 2 and SAM 3.
    pub memory: Option<MemoryConfig>,
    /// Text encoder and detector: SAM 3.
    pub finder: Option<FinderConfig>,
}

/// Upsampling of low-resolution logits to the size of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upsampling {
    /// To the model's input, then, without the padding, to the picture.
    ThroughInput,
    /// At once.
    Direct,
}

/// Choice of the mask when one is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SingleMask {
    /// The first mask token.
    First,
    /// The first where it is stable, else the candidate with the highest predicted IoU.
    StableOrBest,
}

/// Processing of a family outside the graphs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FamilyProcessing {
    /// Mean and standard deviation that pixels are normalised with, and how a picture is fitted into the square input.
    pub(crate) mean: [f32; 3],
    pub(crate) std: [f32; 3],
    pub(crate) fit: Fit,
    pub(crate) token_order: TokenOrder,
    pub(crate) upsampling: Upsampling,
    pub(crate) single_mask: SingleMask,
    /// Clamp of the logits returned and accepted as a mask prompt.
    pub(crate) logit_limit: Option<f32>,
    /// Largest hole, in pixels of the low-resolution mask, that is filled before upsampling.
    pub(crate) largest_hole: usize,
}

const SAM1: FamilyProcessing = FamilyProcessing {
    mean: [123.675, 116.28, 103.53],
    std: [58.395, 57.12, 57.375],
    fit: Fit::LongSide,
    token_order: TokenOrder::CornersLast,
    upsampling: Upsampling::ThroughInput,
    single_mask: SingleMask::First,
    logit_limit: None,
    largest_hole: 0,
};

const SAM2: FamilyProcessing = FamilyProcessing {
    mean: [0.485, 0.456, 0.406],
    std: [0.229, 0.224, 0.225],
    fit: Fit::SquareFloats,
    token_order: TokenOrder::CornersFirst,
    upsampling: Upsampling::Direct,
    single_mask: SingleMask::StableOrBest,
    logit_limit: Some(32.0),
    largest_hole: 0,
};

const SAM3: FamilyProcessing = FamilyProcessing {
    mean: [0.5; 3],
    std: [0.5; 3],
    fit: Fit::SquareBytes,
    largest_hole: 256,
    ..SAM2
};

impl ModelConfig {
    /// Prompt encoder and mask decoder, or the error that there is none.
    pub fn decoder(&self) -> Result<&DecoderConfig, ModelError> {
        self.decoder.as_ref().ok_or(ModelError::NoInteractiveHead)
    }

    /// The memory, or the error that there is none.
    pub fn memory(&self) -> Result<&MemoryConfig, ModelError> {
        self.memory.as_ref().ok_or(ModelError::NoMemory)
    }

    /// Text encoder and detector, or the error that there are none.
    pub fn finder(&self) -> Result<&FinderConfig, ModelError> {
        self.finder.as_ref().ok_or(ModelError::NoDetector)
    }

    /// Side of the decoder's masks.
    pub fn mask_side(&self) -> usize {
        4 * self.encoder.grid()
    }

    /// Processing of the family outside the graphs.
    pub(crate) fn processing(&self) -> &'static FamilyProcessing {
        match self.encoder {
            EncoderConfig::Vit { .. } => &SAM1,
            EncoderConfig::Hiera(_) => &SAM2,
            EncoderConfig::RotaryVit { .. } => &SAM3,
        }
    }

    /// Reads the configuration of a model from the shapes of its tensors and, for values no shape determines, from the
    /// metadata.
    pub(crate) fn read(
        shapes: &HashMap<String, Shape>,
        identity: Identity,
        metadata: &Metadata,
    ) -> Result<ModelConfig, ConfigError> {
        let config = match identity.family {
            Family::Sam1 => sam1::read(&Shapes(shapes)),
            Family::Sam2 | Family::Sam2_1 | Family::Sam2Image => {
                sam2::read(&Shapes(shapes), identity, metadata)
            }
            Family::Sam3 | Family::Sam3_1 => sam3::read(&Shapes(shapes)),
        }?;
        config.check()?;
        Ok(config)
    }
}
