//! Sizes of SAM 3.

use serde::Serialize;

use super::{DecoderConfig, DecoderForm, VitConfig};

/// What a table of positions holds besides the cells of its grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum PositionRows {
    /// A first row for a class token that nothing uses: Meta's checkpoints.
    ClassAndGrid,
    /// The grid alone: Hugging Face's checkpoints.
    Grid,
}

/// The positions that are added to patches, besides the rotation in attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct PositionTable {
    /// Side of the table, which is tiled over the grid of patches.
    pub grid: usize,
    /// What else it holds.
    pub rows: PositionRows,
}

/// The encoder of phrases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TextConfig {
    /// Tokens there are.
    pub vocabulary: usize,
    /// Most tokens of a phrase, start and end included.
    pub context: usize,
    /// Channels.
    pub width: usize,
    /// Blocks.
    pub depth: usize,
    /// Attention heads.
    pub heads: usize,
    /// Channels between the two layers of a block's MLP.
    pub mlp_width: usize,
}

/// What can be shown as an example of what is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Exemplars {
    /// Boxes: Hugging Face's checkpoints leave out the rest.
    Boxes,
    /// Boxes and points.
    BoxesAndPoints,
}

/// Everything behind the encoders: geometry encoder, fusion, decoder, scores and masks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DetectorConfig {
    /// Channels of image, prompt and queries.
    pub width: usize,
    /// Heads of every attention.
    pub heads: usize,
    /// Channels between the two layers of each transformer layer's MLP.
    pub mlp_width: usize,
    /// Layers of the geometry encoder.
    pub geometry_depth: usize,
    /// Layers that fuse image and prompt.
    pub fusion_depth: usize,
    /// Layers of the decoder.
    pub decoder_depth: usize,
    /// Objects looked for at once.
    pub queries: usize,
    /// Channels between the layers of the scores' MLP.
    pub scoring_width: usize,
    /// What the geometry encoder takes.
    pub exemplars: Exemplars,
}

/// What finds objects by phrases and exemplars.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FinderConfig {
    /// The text encoder.
    pub text: TextConfig,
    /// Everything behind the encoders.
    pub detector: DetectorConfig,
}

/// A whole SAM 3, or the parts of it that a checkpoint has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sam3Config {
    /// The image encoder. Its attention has rotary positions, in global blocks scaled to the range of a window.
    pub trunk: VitConfig,
    /// The image encoder's other positions.
    pub positions: PositionTable,
    /// What finds objects; nothing in a checkpoint of the tracker alone.
    pub finder: Option<FinderConfig>,
    /// What answers clicks, boxes and masks; nothing in a checkpoint of the detector alone.
    pub clicks: Option<DecoderConfig>,
}

impl Sam3Config {
    /// SAM 3 as published: 850 million parameters, without those that only videos need.
    pub fn published() -> Self {
        Sam3Config {
            trunk: VitConfig {
                image_size: 1008,
                patch: 14,
                width: 1024,
                depth: 32,
                heads: 16,
                mlp_width: 4736,
                window: 24,
                global_blocks: vec![7, 15, 23, 31],
                norm_epsilon: 1e-5,
            },
            positions: PositionTable { grid: 24, rows: PositionRows::ClassAndGrid },
            finder: Some(FinderConfig {
                text: TextConfig {
                    vocabulary: 49408,
                    context: 32,
                    width: 1024,
                    depth: 24,
                    heads: 16,
                    mlp_width: 4096,
                },
                detector: DetectorConfig {
                    width: 256,
                    heads: 8,
                    mlp_width: 2048,
                    geometry_depth: 3,
                    fusion_depth: 6,
                    decoder_depth: 6,
                    queries: 200,
                    scoring_width: 2048,
                    exemplars: Exemplars::BoxesAndPoints,
                },
            }),
            clicks: Some(DecoderConfig::published(DecoderForm::Sam3)),
        }
    }
}
