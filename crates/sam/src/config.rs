//! Sizes of the models, as plain constants.

mod sam3;

use serde::Serialize;

pub use sam3::{
    DetectorConfig, Exemplars, FinderConfig, PositionRows, PositionTable, Sam3Config, TextConfig,
};

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
    /// Channels of the embedding behind the pyramid.
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

/// Which generation of prompt encoder and mask decoder: what the decoder reads and gives beside masks, and what
/// checkpoints call its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum DecoderForm {
    /// SAM 1: masks from the embedding alone, predicted IoU as it comes.
    Sam1,
    /// SAM 2 and later: finer levels of the pyramid, an object score, IoU between 0 and 1, tokens for object pointers.
    Sam2,
    /// The same in SAM 3, under other names.
    Sam3,
    /// The same in SAM 3.1, under its names, and predicted IoU as it comes.
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
}

/// Which version of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum MemoryForm {
    /// SAM 2: object pointers have no position in time.
    Sam2,
    /// SAM 2.1 and later: object pointers have one; the memory of a hidden object says so.
    Sam2_1,
}

/// What carries objects from frame to frame.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryConfig {
    /// Which version.
    pub form: MemoryForm,
    /// Channels of a memory.
    pub width: usize,
    /// Memories that have a position in time: the conditioning frames', which they share, and one for each recent frame.
    pub frames: usize,
    /// Frames that object pointers reach back to, the current one included.
    pub pointer_frames: usize,
    /// Layers of memory attention.
    pub layers: usize,
    /// Heads of memory attention.
    pub heads: usize,
    /// Channels between the two layers of memory attention's MLP.
    pub mlp_width: usize,
    /// Layers that mix image and mask in the memory encoder.
    pub fuser_layers: usize,
}

/// A whole SAM 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sam1Config {
    /// The image encoder.
    pub encoder: VitConfig,
    /// Channels of the embedding behind the encoder's neck.
    pub embedding: usize,
    /// The prompt encoder and mask decoder.
    pub decoder: DecoderConfig,
}

/// A whole SAM 2 or 2.1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sam2Config {
    /// The image encoder.
    pub encoder: HieraConfig,
    /// The prompt encoder and mask decoder.
    pub decoder: DecoderConfig,
    /// The memory; nothing in a checkpoint of the image part alone.
    pub memory: Option<MemoryConfig>,
}
