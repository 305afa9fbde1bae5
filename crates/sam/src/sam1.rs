//! SAM 1, assembled: which component, which configuration.

use cutout_graph::{BuildError, Builder, Graph};
use cutout_tensor::DType;

use crate::config::{DecoderConfig, Sam1Config, VitConfig};
use crate::image_encoder::vit;
use crate::mask_decoder::{DecoderInputs, mask_decoder};
use crate::prompt_encoder;

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

/// Graph of prompt encoder and mask decoder.
///
/// Inputs `embedding: f32[1, grid, grid, width]`, `positions: f32[prompts, points, 2]` in pixels of the model's input,
/// `kinds: i64[prompts, points]` (see [`prompt_encoder::PointKind`]) and, if asked for,
/// `masks: f32[prompts, 4 grid, 4 grid, 1]`; outputs `logits: f32[prompts, mask tokens, 4 grid, 4 grid]` and
/// `iou: f32[prompts, mask tokens]`.
pub fn decoder_graph(config: &Sam1Config, shape: PromptShape) -> Result<Graph, BuildError> {
    build_decoder(config, shape).finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn decoder_stages(config: &Sam1Config, shape: PromptShape) -> Result<Graph, BuildError> {
    build_decoder(config, shape).finish_with_stages()
}

fn build_decoder(config: &Sam1Config, shape: PromptShape) -> Builder {
    let builder = Builder::new();
    let decoder = &config.decoder;
    let (side, width) = (config.encoder.grid(), decoder.width);
    let PromptShape { prompts, points, masks } = shape;
    let w = &builder.weights().at("prompt_encoder");
    let embedding = builder.input("embedding", DType::F32, [1, side, side, width]);
    let positions = builder.input("positions", DType::F32, [prompts, points, 2]);
    let kinds = builder.input("kinds", DType::I64, [prompts, points]);
    let tokens = prompt_encoder::points(positions, kinds, w, config.encoder.image_size, width);
    let dense = if masks {
        let logits = builder.input("masks", DType::F32, [prompts, 4 * side, 4 * side, 1]);
        prompt_encoder::mask(logits, w, decoder)
    } else {
        prompt_encoder::no_mask(w, width)
    };
    let inputs = DecoderInputs {
        image: embedding.reshape([1, side * side, width]) + dense,
        positions: prompt_encoder::dense_positions(w, side, width),
        prompts: tokens,
    };
    let decoded = mask_decoder(inputs, &builder.weights().at("mask_decoder"), decoder);
    builder.output("logits", decoded.logits);
    builder.output("iou", decoded.iou);
    builder
}
