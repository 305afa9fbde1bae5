//! SAM 2 and 2.1, assembled: which component, which configuration.

mod checkpoint;
mod memory;

use cutout_graph::{BuildError, Builder, Graph};
use cutout_tensor::DType;

use crate::config::{
    DecoderConfig, DecoderForm, HieraConfig, MemoryConfig, MemoryForm, Sam2Config,
};
use crate::decoder::{Decoder, DecoderImage, PromptShape};
use crate::image_encoder::{hiera, pyramid};

pub(crate) use checkpoint::examine;
pub use checkpoint::{Loaded, load};
pub use memory::{
    MemoryShape, mask_prompt_graph, memory_attention_graph, memory_attention_stages,
    memory_encoder_graph, memory_encoder_stages, memory_projection_graph, pointer_graph,
};

/// The memory that all sizes share.
fn memory_of(form: MemoryForm) -> MemoryConfig {
    MemoryConfig {
        form,
        width: 64,
        frames: 7,
        pointer_frames: 16,
        layers: 4,
        heads: 1,
        mlp_width: 2048,
        fuser_layers: 2,
    }
}

/// The encoder of the smallest size, of which the others are variations.
fn tiny() -> HieraConfig {
    HieraConfig {
        image_size: 1024,
        width: 96,
        heads: 1,
        stages: [1, 2, 7, 2],
        windows: [8, 4, 14, 7],
        global_blocks: vec![5, 7, 9],
        position_grid: 7,
        norm_epsilon: 1e-6,
        embedding: 256,
    }
}

impl Sam2Config {
    /// Hiera-T: 39 million parameters.
    pub fn tiny(form: MemoryForm) -> Self {
        Sam2Config {
            encoder: tiny(),
            decoder: DecoderConfig::published(DecoderForm::Sam2),
            memory: Some(memory_of(form)),
        }
    }

    /// Hiera-S: 46 million parameters.
    pub fn small(form: MemoryForm) -> Self {
        let encoder =
            HieraConfig { stages: [1, 2, 11, 2], global_blocks: vec![7, 10, 13], ..tiny() };
        Sam2Config { encoder, ..Sam2Config::tiny(form) }
    }

    /// Hiera-B+: 81 million parameters.
    pub fn base_plus(form: MemoryForm) -> Self {
        let encoder = HieraConfig {
            width: 112,
            heads: 2,
            stages: [2, 3, 16, 3],
            global_blocks: vec![12, 16, 20],
            position_grid: 14,
            ..tiny()
        };
        Sam2Config { encoder, ..Sam2Config::tiny(form) }
    }

    /// Hiera-L: 224 million parameters.
    pub fn large(form: MemoryForm) -> Self {
        let encoder = HieraConfig {
            width: 144,
            heads: 2,
            stages: [2, 6, 36, 4],
            windows: [8, 4, 16, 8],
            global_blocks: vec![23, 33, 43],
            ..tiny()
        };
        Sam2Config { encoder, ..Sam2Config::tiny(form) }
    }
}

/// Graph of the image encoder: `pixels: f32[1, size, size, 3]` to the levels of the pyramid,
/// `level0: f32[1, 4 grid, 4 grid, width / 8]` and `level1: f32[1, 2 grid, 2 grid, width / 4]` as the mask decoder takes
/// them, `level2: f32[1, grid, grid, width]` as memory encoder and memory attention take it, and
/// `embedding: f32[1, grid, grid, width]`, the same for a frame without memories, as the mask decoder takes it.
pub fn encoder_graph(config: &Sam2Config) -> Result<Graph, BuildError> {
    build_encoder(config).finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn encoder_stages(config: &Sam2Config) -> Result<Graph, BuildError> {
    build_encoder(config).finish_with_stages()
}

fn build_encoder(config: &Sam2Config) -> Builder {
    let builder = Builder::new();
    let (size, width) = (config.encoder.image_size, config.encoder.embedding);
    let pixels = builder.input("pixels", DType::F32, [1, size, size, 3]);
    let w = &builder.weights();
    let stages = hiera(pixels, &w.at("image_encoder.trunk"), &config.encoder);
    let decoder = &w.at(config.decoder.form.mask_decoder());
    let levels = pyramid(&stages, &w.at("image_encoder.neck"), decoder, width);
    builder.output("level0", levels.fine[0]);
    builder.output("level1", levels.fine[1]);
    builder.output("level2", levels.top);
    builder.output("embedding", levels.top + w.parameter("no_mem_embed", [1, 1, width]));
    builder
}

/// Graph of everything the decoder needs of an image and no prompt changes: `embedding: f32[1, grid, grid, width]` to
/// `image`, `positions: f32[1, grid * grid, width]` and the image's part of the first two-way layer, `first.key`,
/// `first.value`, `first.query: f32[1, grid * grid, width / downsample]`.
pub fn image_side_graph(config: &Sam2Config) -> Result<Graph, BuildError> {
    let builder = Builder::new();
    decoder_of(config).build_image_side(&builder);
    builder.finish()
}

/// Graph of prompt encoder and mask decoder.
///
/// Inputs `points: f32[prompts, points, 2]` in pixels of the model's input and `kinds: i64[prompts, points]` (see
/// [`PointKind`](crate::prompt_encoder::PointKind)): box corners first, then points, then one padding, always; an object
/// that is tracked without being asked for has two paddings. `level0`, `level1` from [`encoder_graph`]. For a shared image
/// without masks, the outputs of [`image_side_graph`]; else `embedding: f32[1 or prompts, grid, grid, width]`, with masks
/// also `masks: f32[prompts, 4 grid, 4 grid, 1]`.
///
/// Outputs `logits: f32[prompts, mask tokens, 4 grid, 4 grid]`, `iou: f32[prompts, mask tokens]` between 0 and 1,
/// `object_score: f32[prompts]` (above 0, the object is in the image), and `tokens: f32[prompts, mask tokens, width]`, of
/// which the chosen mask's becomes the object pointer.
pub fn decoder_graph(
    config: &Sam2Config,
    shape: PromptShape,
    image: DecoderImage,
) -> Result<Graph, BuildError> {
    build_decoder(config, shape, image).finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn decoder_stages(
    config: &Sam2Config,
    shape: PromptShape,
    image: DecoderImage,
) -> Result<Graph, BuildError> {
    build_decoder(config, shape, image).finish_with_stages()
}

fn build_decoder(config: &Sam2Config, shape: PromptShape, image: DecoderImage) -> Builder {
    decoder_of(config).builder(shape, image)
}

fn decoder_of(config: &Sam2Config) -> Decoder<'_> {
    let Sam2Config { encoder, decoder, .. } = config;
    Decoder { config: decoder, image_size: encoder.image_size, grid: encoder.grid() }
}
