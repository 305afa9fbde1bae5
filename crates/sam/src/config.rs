//! Sizes of the models, as plain constants.

/// A ViT image encoder with windowed and global attention.
#[derive(Clone, Debug, PartialEq)]
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
    /// Epsilon of the blocks' layer norms.
    pub norm_epsilon: f32,
    /// Channels of the embedding behind the neck.
    pub embedding: usize,
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

/// The prompt encoder and mask decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
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

/// A whole SAM 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Sam1Config {
    /// The image encoder.
    pub encoder: VitConfig,
    /// The prompt encoder and mask decoder.
    pub decoder: DecoderConfig,
}
