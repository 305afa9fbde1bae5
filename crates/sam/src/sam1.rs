//! SAM 1, assembled: which component, which configuration.

use cutout_graph::{BuildError, Builder, Graph};
use cutout_tensor::DType;

use crate::config::{DecoderConfig, DecoderForm, Sam1Config, VitConfig};
use crate::decoder::{Decoder, DecoderImage};
use crate::image_encoder::{neck, vit};

pub use crate::decoder::PromptShape;

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
    }
}

impl Sam1Config {
    /// ViT-B: 94 million parameters.
    pub fn vit_b() -> Self {
        Sam1Config {
            encoder: encoder(768, 12, 12, &[2, 5, 8, 11]),
            embedding: 256,
            decoder: DecoderConfig::published(DecoderForm::Sam1),
        }
    }

    /// ViT-L: 312 million parameters.
    pub fn vit_l() -> Self {
        Sam1Config {
            encoder: encoder(1024, 24, 16, &[5, 11, 17, 23]),
            embedding: 256,
            decoder: DecoderConfig::published(DecoderForm::Sam1),
        }
    }

    /// ViT-H: 641 million parameters.
    pub fn vit_h() -> Self {
        Sam1Config {
            encoder: encoder(1280, 32, 16, &[7, 15, 23, 31]),
            embedding: 256,
            decoder: DecoderConfig::published(DecoderForm::Sam1),
        }
    }
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
    let w = &builder.weights().at("image_encoder");
    let features = vit(pixels, w, &config.encoder);
    builder.output("embedding", neck(features, &w.at("neck"), config.embedding));
    builder
}

/// Graph of everything the decoder needs of an image and no prompt changes: `embedding: f32[1, grid, grid, width]` to
/// `image`, `positions: f32[1, grid * grid, width]` and the image's part of the first two-way layer, `first.key`,
/// `first.value`, `first.query: f32[1, grid * grid, width / downsample]`.
pub fn image_side_graph(config: &Sam1Config) -> Result<Graph, BuildError> {
    let builder = Builder::new();
    decoder_of(config).build_image_side(&builder);
    builder.finish()
}

/// Graph of prompt encoder and mask decoder.
///
/// Inputs `points: f32[prompts, points, 2]` in pixels of the model's input, `kinds: i64[prompts, points]` (see
/// [`PointKind`](crate::prompt_encoder::PointKind)); without masks, the outputs of [`image_side_graph`]; with masks,
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
    let decoded = decoder_of(config).build(&builder, shape, DecoderImage::Shared);
    builder.output("logits", decoded.logits);
    builder.output("iou", decoded.iou);
    builder
}

fn decoder_of(config: &Sam1Config) -> Decoder<'_> {
    let Sam1Config { encoder, decoder, .. } = config;
    Decoder { config: decoder, image_size: encoder.image_size, grid: encoder.grid() }
}
