//! Bounds of configurations. A graph grows with these sizes, so they are checked before one is built: a file can claim any
//! size in its metadata or with a tensor that repeats one element.

use super::{
    DecoderConfig, DetectorConfig, EncoderConfig, FinderConfig, HieraConfig, MemoryConfig,
    ModelConfig, TextConfig, VitConfig,
};
use crate::model::load::ConfigError;

/// Largest side of a model's square input, in pixels: twice that of the published models.
const IMAGE_SIZE: usize = 2048;
/// Largest patch, window or position table, in pixels or tokens along a side.
const SIDE: usize = 512;
/// Most channels of a layer.
const CHANNELS: usize = 1 << 16;
/// Most blocks or layers of a component.
const DEPTH: usize = 256;
/// Most attention heads.
const HEADS: usize = 1024;
/// Most frames that memory attention reads.
const FRAMES: usize = 256;
/// Most rows of a table of tokens, and most object queries.
const ROWS: usize = 1 << 20;
/// Most objects of a bucket.
const SLOTS: usize = 256;
/// Most tokens of a phrase.
const CONTEXT: usize = 4096;

/// A size with its name and the bounds it lies between.
type Bound = (&'static str, usize, [usize; 2]);

impl ModelConfig {
    /// Returns an error for a size that is out of bounds.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let mut bounds = match &self.encoder {
            EncoderConfig::Vit { trunk, embedding } => {
                let mut bounds = vit(trunk);
                bounds.push(("embedding", *embedding, [1, CHANNELS]));
                bounds
            }
            EncoderConfig::Hiera(encoder) => hiera(encoder),
            EncoderConfig::RotaryVit { trunk, positions } => {
                let mut bounds = vit(trunk);
                bounds.push(("position grid", positions.grid, [1, SIDE]));
                bounds
            }
        };
        bounds.extend(self.decoder.iter().flat_map(decoder));
        bounds.extend(self.memory.iter().flat_map(memory));
        bounds.extend(self.finder.iter().flat_map(finder));
        let outside = |(_, found, [least, most]): &Bound| !(least..=most).contains(&found);
        match bounds.into_iter().find(outside) {
            None => Ok(()),
            Some((size, found, [least, most])) => {
                Err(ConfigError::Size { size, found, least, most })
            }
        }
    }
}

fn vit(config: &VitConfig) -> Vec<Bound> {
    let mut bounds = vec![
        ("image size", config.image_size, [1, IMAGE_SIZE]),
        ("patch", config.patch, [1, SIDE]),
        ("encoder width", config.width, [1, CHANNELS]),
        ("encoder depth", config.depth, [1, DEPTH]),
        ("encoder heads", config.heads, [1, HEADS.min(config.width)]),
        ("encoder MLP width", config.mlp_width, [1, CHANNELS]),
        ("window", config.window, [1, SIDE]),
    ];
    bounds.extend(global(&config.global_blocks, config.depth));
    bounds
}

fn hiera(config: &HieraConfig) -> Vec<Bound> {
    let mut bounds = vec![
        ("image size", config.image_size, [1, IMAGE_SIZE]),
        ("encoder width", config.width, [1, CHANNELS / 8]),
        ("encoder heads", config.heads, [1, HEADS.min(config.width)]),
        ("position grid", config.position_grid, [1, SIDE]),
        ("embedding", config.embedding, [1, CHANNELS]),
    ];
    bounds.extend(config.stages.map(|blocks| ("blocks of a stage", blocks, [1, DEPTH])));
    bounds.extend(config.windows.map(|side| ("window", side, [1, SIDE])));
    bounds.extend(global(&config.global_blocks, config.stages.iter().sum()));
    bounds
}

/// Numbers of global blocks, each below the depth.
fn global(blocks: &[usize], depth: usize) -> impl Iterator<Item = Bound> {
    let count = ("number of global blocks", blocks.len(), [0, depth]);
    let numbers = blocks.iter().take(depth);
    let number = move |&block| ("global block", block, [0, depth.saturating_sub(1)]);
    std::iter::once(count).chain(numbers.map(number))
}

fn decoder(config: &DecoderConfig) -> Vec<Bound> {
    let mut bounds = masks(config);
    bounds.push(("mask tokens", config.mask_tokens, [2, 64]));
    bounds.push(("mask channels", config.mask_channels, [1, CHANNELS / 4]));
    bounds
}

/// Of a mask decoder alone.
fn masks(config: &DecoderConfig) -> Vec<Bound> {
    vec![
        ("decoder width", config.width, [8, CHANNELS]),
        ("decoder depth", config.depth, [1, DEPTH]),
        ("decoder heads", config.heads, [1, HEADS.min(config.width)]),
        ("decoder MLP width", config.mlp_width, [1, CHANNELS]),
        ("decoder downsampling", config.downsample, [1, config.width.max(1)]),
        ("mask tokens", config.mask_tokens, [1, 64]),
        ("width of the IoU head", config.iou_width, [1, CHANNELS]),
        ("depth of the IoU head", config.iou_depth, [1, DEPTH]),
    ]
}

fn memory(config: &MemoryConfig) -> Vec<Bound> {
    let mut bounds = vec![
        ("memory width", config.width, [1, CHANNELS]),
        ("memory frames", config.frames, [1, FRAMES]),
        ("pointer frames", config.pointer_frames, [1, FRAMES]),
        ("memory layers", config.layers, [1, DEPTH]),
        ("memory heads", config.heads, [1, HEADS]),
        ("memory MLP width", config.mlp_width, [1, CHANNELS]),
        ("fuser layers", config.fuser_layers, [0, DEPTH]),
        ("fuser width", config.fuser_width, [1, CHANNELS]),
    ];
    if let Some(multiplex) = &config.multiplex {
        bounds.push(("slots of a bucket", multiplex.slots, [1, SLOTS]));
        bounds.push(("mask channels", multiplex.mask_channels, [1, CHANNELS / 64]));
        bounds.extend(masks(&multiplex.decoder));
    }
    bounds
}

fn finder(config: &FinderConfig) -> Vec<Bound> {
    let FinderConfig { text, detector } = config;
    text_bounds(text).into_iter().chain(detector_bounds(detector)).collect()
}

fn text_bounds(config: &TextConfig) -> [Bound; 6] {
    [
        ("vocabulary", config.vocabulary, [1, ROWS]),
        ("context", config.context, [1, CONTEXT]),
        ("text width", config.width, [1, CHANNELS]),
        ("text depth", config.depth, [1, DEPTH]),
        ("text heads", config.heads, [1, HEADS.min(config.width)]),
        ("text MLP width", config.mlp_width, [1, CHANNELS]),
    ]
}

fn detector_bounds(config: &DetectorConfig) -> [Bound; 8] {
    [
        ("detector width", config.width, [1, CHANNELS]),
        ("detector heads", config.heads, [1, HEADS.min(config.width)]),
        ("detector MLP width", config.mlp_width, [1, CHANNELS]),
        ("geometry layers", config.geometry_depth, [0, DEPTH]),
        ("fusion layers", config.fusion_depth, [0, DEPTH]),
        ("decoder layers", config.decoder_depth, [0, DEPTH]),
        ("queries", config.queries, [1, CONTEXT]),
        ("scoring width", config.scoring_width, [1, CHANNELS]),
    ]
}
