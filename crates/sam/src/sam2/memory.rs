//! The graphs that carry objects from frame to frame.

use cutout_graph::ops::{Conv2d, ResizeMode};
use cutout_graph::{BuildError, Builder, Graph, Value};
use cutout_tensor::DType;

use crate::config::{MemoryConfig, MemoryForm, Sam2Config};
use crate::memory::{
    Bank, FrameOperands, MaskSource, MemoryAttention, Remembered, memory_encoder, pointer,
};

/// What a memory attention graph reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryShape {
    /// Objects, each with as many frames and pointers.
    pub objects: usize,
    /// Memories of frames, at least one.
    pub frames: usize,
    /// Object pointers.
    pub pointers: usize,
}

/// A model with a memory.
struct Video<'a> {
    memory: &'a MemoryConfig,
    width: usize,
    grid: usize,
}

impl<'a> Video<'a> {
    fn of(config: &'a Sam2Config) -> Result<Self, BuildError> {
        let memory = config.memory.as_ref().ok_or_else(|| BuildError {
            origin: "memory".to_owned(),
            message: "the model is the image part of SAM 2 alone: it has no memory".to_owned(),
        })?;
        Ok(Video { memory, width: config.encoder.embedding, grid: config.encoder.grid() })
    }

    fn attention(&self) -> MemoryAttention<'a> {
        MemoryAttention { config: self.memory, width: self.width, grid: self.grid }
    }

    /// The pyramid's top level, `[1, grid, grid, width]`.
    fn level2<'g>(&self, builder: &'g Builder) -> Value<'g> {
        builder.input("level2", DType::F32, [1, self.grid, self.grid, self.width])
    }
}

/// Graph of the memory encoder: `level2: f32[1, grid, grid, width]`, `logits: f32[objects, 4 grid, 4 grid, 1]` and, in
/// SAM 2.1, `object_score: f32[objects]` to `memory: f32[objects, grid * grid, memory width]`.
pub fn memory_encoder_graph(
    config: &Sam2Config,
    objects: usize,
    source: MaskSource,
) -> Result<Graph, BuildError> {
    build_memory_encoder(config, objects, source)?.finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn memory_encoder_stages(
    config: &Sam2Config,
    objects: usize,
    source: MaskSource,
) -> Result<Graph, BuildError> {
    build_memory_encoder(config, objects, source)?.finish_with_stages()
}

fn build_memory_encoder(
    config: &Sam2Config,
    objects: usize,
    source: MaskSource,
) -> Result<Builder, BuildError> {
    let video = Video::of(config)?;
    let builder = Builder::new();
    let side = 4 * video.grid;
    let image = video.level2(&builder);
    let logits = builder.input("logits", DType::F32, [objects, side, side, 1]);
    let score = match video.memory.form {
        MemoryForm::Sam2 => None,
        MemoryForm::Sam2_1 => Some(builder.input("object_score", DType::F32, [objects])),
    };
    let remembered = Remembered { image, logits, score };
    let memory = memory_encoder(remembered, source, &builder.weights(), video.memory);
    builder.output("memory", memory);
    Ok(builder)
}

/// Graph of what memory attention keeps of a memory: `memory: f32[objects, grid * grid, memory width]` to
/// `key.<layer>: f32[objects, grid * grid, width]`; where memory attention has several heads also `value.<layer>`, of the
/// same type. With one head the memory itself is kept for its values.
pub fn memory_projection_graph(config: &Sam2Config, objects: usize) -> Result<Graph, BuildError> {
    let video = Video::of(config)?;
    let builder = Builder::new();
    let cells = video.grid * video.grid;
    let memory = builder.input("memory", DType::F32, [objects, cells, video.memory.width]);
    let (attention, w) = (video.attention(), &builder.weights());
    for (layer, key) in attention.keys(memory, w).into_iter().enumerate() {
        builder.output(&format!("key.{layer}"), key);
    }
    if !attention.keeps_memories() {
        for (layer, value) in attention.values(memory, w).into_iter().enumerate() {
            builder.output(&format!("value.{layer}"), value);
        }
    }
    builder.finish()
}

/// Graph of memory attention.
///
/// Inputs `level2: f32[1, grid, grid, width]` of the current frame; for each memory what [`memory_projection_graph`] gave,
/// `frames.<frame>.key.<layer>`, and `frames.<frame>.value.<layer>` or with one head `frames.<frame>.memory`;
/// `ages: i64[objects, frames]`, the row of the temporal table that each has: 0 for the frame before this one, 1 for the
/// one before that, the last for every conditioning frame. With pointers, `pointers: f32[objects, pointers, width]` and, in
/// SAM 2.1, `distances: f32[objects, pointers]`: frames between the pointer's and this one, over the largest number of
/// frames that pointers reach back.
///
/// Output `embedding: f32[objects, grid, grid, width]`, as the mask decoder takes it.
pub fn memory_attention_graph(
    config: &Sam2Config,
    shape: MemoryShape,
) -> Result<Graph, BuildError> {
    build_memory_attention(config, shape)?.finish()
}

/// The same graph with every stage among its outputs, for comparison with Meta's code.
pub fn memory_attention_stages(
    config: &Sam2Config,
    shape: MemoryShape,
) -> Result<Graph, BuildError> {
    build_memory_attention(config, shape)?.finish_with_stages()
}

fn build_memory_attention(config: &Sam2Config, shape: MemoryShape) -> Result<Builder, BuildError> {
    let video = Video::of(config)?;
    let builder = Builder::new();
    let attention = video.attention();
    let image = video.level2(&builder);
    let bank = Bank {
        layers: bank_layers(&builder, &video, shape),
        ages: builder.input("ages", DType::I64, [shape.objects, shape.frames]),
        pointers: (shape.pointers > 0).then(|| {
            let MemoryShape { objects, pointers, .. } = shape;
            let distances = match video.memory.form {
                MemoryForm::Sam2 => None,
                MemoryForm::Sam2_1 => {
                    Some(builder.input("distances", DType::F32, [objects, pointers]))
                }
            };
            let pointers = builder.input("pointers", DType::F32, [objects, pointers, video.width]);
            attention.pointers(pointers, distances, &builder.weights())
        }),
    };
    builder.output("embedding", attention.attend(image, &bank, &builder.weights()));
    Ok(builder)
}

/// The keys and values of all frames, for each layer.
fn bank_layers<'g>(
    builder: &'g Builder,
    video: &Video<'_>,
    shape: MemoryShape,
) -> Vec<FrameOperands<'g>> {
    let cells = video.grid * video.grid;
    let input =
        |name: String, width| builder.input(&name, DType::F32, [shape.objects, cells, width]);
    let frames = 0..shape.frames;
    let memories: Option<Vec<Value<'g>>> = video.attention().keeps_memories().then(|| {
        let memory = |frame| input(format!("frames.{frame}.memory"), video.memory.width);
        frames.clone().map(memory).collect()
    });
    let layer = |layer: usize| {
        let part = |name: &str| -> Vec<Value<'g>> {
            let named = |frame| input(format!("frames.{frame}.{name}.{layer}"), video.width);
            frames.clone().map(named).collect()
        };
        let keys = part("key");
        FrameOperands { keys, values: memories.clone().unwrap_or_else(|| part("value")) }
    };
    (0..video.memory.layers).map(layer).collect()
}

/// Graph of object pointers: `token: f32[objects, width]` of each object's chosen mask and `object_score: f32[objects]` to
/// `pointer: f32[objects, width]`.
pub fn pointer_graph(config: &Sam2Config, objects: usize) -> Result<Graph, BuildError> {
    let video = Video::of(config)?;
    let builder = Builder::new();
    let token = builder.input("token", DType::F32, [objects, video.width]);
    let score = builder.input("object_score", DType::F32, [objects]);
    builder.output("pointer", pointer(token, score, &builder.weights()));
    builder.finish()
}

/// Graph of what a mask given by a user becomes: `mask: f32[objects, size, size, 1]` of zeros and ones to
/// `logits: f32[objects, 4 grid, 4 grid, 1]`, which are the answer on its frame, and `masks`, of the same type, the mask
/// prompt with which the decoder makes its object pointer.
pub fn mask_prompt_graph(config: &Sam2Config, objects: usize) -> Result<Graph, BuildError> {
    Video::of(config)?;
    let builder = Builder::new();
    let (size, grid) = (config.encoder.image_size, config.encoder.grid());
    let mask = builder.input("mask", DType::F32, [objects, size, size, 1]);
    let logits = mask * 20.0 - 10.0;
    builder.output("logits", logits.resize_antialiased(ResizeMode::Bilinear, [4 * grid; 2]));
    let w = builder.weights().at("mask_downsample");
    let prompt = mask.conv2d(w.parameter("weight", [1, 1, 4, 4]), Conv2d::new(4, 0));
    builder.output("masks", prompt + w.parameter("bias", [1]));
    builder.finish()
}
