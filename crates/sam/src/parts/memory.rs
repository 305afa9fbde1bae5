//! Objects from frame to frame: memories in, masks and memories out. SAM 2 and 3.

use cutout_graph::{Scope, Value, ports};
use cutout_tensor::{DType, TensorType};

use super::decode::{DecoderImage, decode};
use super::object_prompt::{FrameFeatures, followed_answer, frame_types, no_points};
use crate::components::memory::{MaskSource, MemoryAttention, MemoryEncoderInputs, memory_encoder};
use crate::model::ModelError;
use crate::model::config::ModelConfig;
use crate::model::part::Part;

pub use crate::components::memory::{Bank, FrameMemory, ObjectBank};

ports! {
    /// A frame and the masks of objects on it.
    pub struct RememberInputs {
        /// See [`FrameFeatures`].
        level2,
        /// `f32[objects, side, side]`.
        logits,
        /// `f32[objects]`.
        object_score,
    }
}

ports! {
    /// A memory.
    pub struct MemoryInput {
        /// `bf16[1, grid * grid, memory width]`: rounded as in Meta's code.
        memory,
        /// See [`FrameMemory`].
        image: optional,
    }
}

ports! {
    /// Memories of several objects on one frame.
    pub struct Remembered {
        /// One for each.
        objects: list MemoryInput,
    }
}

/// The memory encoder, apart from tracking.
#[derive(Clone, Copy, Debug)]
pub struct Remember {
    /// Where the masks come from.
    pub source: MaskSource,
    /// Objects that share the frame.
    pub objects: usize,
}

/// Projects a memory into the keys and values of memory attention.
#[derive(Clone, Copy, Debug)]
pub struct Project;

/// Number and kind of the memories that a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BankShape {
    /// Objects, in SAM 3.1 buckets of objects, each with as many frames and pointers.
    pub objects: usize,
    /// Memories of frames, at least one.
    pub frames: usize,
    /// Object pointers.
    pub pointers: usize,
    /// Whether memories come with their keys (and values), or the program computes them.
    pub projected: bool,
}

impl BankShape {
    /// Shape of a bank of projected memories.
    pub fn kept(objects: usize, frames: usize, pointers: usize) -> Self {
        BankShape { objects, frames, pointers, projected: true }
    }

    /// Whether pointers have a position in time.
    pub(crate) fn has_pointer_positions(&self, config: &ModelConfig) -> Result<bool, ModelError> {
        Ok(self.pointers > 0 && config.memory()?.form.has_pointer_positions())
    }

    pub(super) fn types(&self, config: &ModelConfig) -> Result<Bank<TensorType>, ModelError> {
        let width = config.decoder()?.width;
        let frames = (0..self.frames).map(|_| memory_types(config, self.projected));
        let frames = frames.collect::<Result<Vec<_>, _>>()?;
        let pointer = TensorType::f32([1, config.memory()?.pointer_width(width)]);
        let pointers = vec![pointer; self.pointers];
        let distances = TensorType::f32([self.objects, self.pointers]);
        Ok(Bank {
            ages: TensorType::new(DType::I64, [self.objects, self.frames]),
            distances: self.has_pointer_positions(config)?.then_some(distances),
            objects: vec![ObjectBank { frames, pointers }; self.objects],
        })
    }
}

ports! {
    /// A frame's top level and the memories of an object.
    pub struct AttendInputs {
        /// See [`FrameFeatures`].
        level2,
        /// The memories.
        bank: group Bank,
    }
}

ports! {
    /// A frame after memory attention.
    pub struct AttendedFrame {
        /// Input of the mask decoder, `f32[objects, grid, grid, width]`.
        embedding,
    }
}

/// Memory attention.
#[derive(Clone, Copy, Debug)]
pub struct Attend {
    /// The memory bank.
    pub bank: BankShape,
}

ports! {
    /// A frame and the memories of objects.
    pub struct FollowInputs {
        /// The frame.
        frame: group FrameFeatures,
        /// The memories.
        bank: group Bank,
    }
}

ports! {
    /// Pointer and memory of one object on a frame.
    pub struct FollowedObject {
        /// `f32[1, width]`.
        pointer,
        /// Memory of the frame, with keys and values if the bank is projected; `None` if it is encoded later.
        memory: optional FrameMemory,
    }
}

ports! {
    /// Objects on a frame.
    pub struct Followed {
        /// `f32[objects, side, side]`.
        logits,
        /// `f32[objects]`.
        iou,
        /// `f32[objects]`.
        object_score,
        /// Pointer and memory of each object.
        objects: list FollowedObject,
    }
}

/// A tracked frame as one program: memory attention, mask decoder, choice of masks, memory encoder and projection of the new
/// memories, for several objects at once.
#[derive(Clone, Copy, Debug)]
pub struct Follow {
    /// The memories of the objects.
    pub bank: BankShape,
    /// Whether the frame is remembered by the same program, or later by [`Remember`].
    pub remember: bool,
}

/// Types of one frame's memory.
fn memory_types(
    config: &ModelConfig,
    projected: bool,
) -> Result<FrameMemory<TensorType>, ModelError> {
    let (memory, width) = (config.memory()?, config.decoder()?.width);
    let grid = config.encoder.grid();
    let cells = grid * grid;
    let layers = |wanted: bool| {
        vec![TensorType::f32([1, cells, width]); if wanted { memory.layers } else { 0 }]
    };
    let uses_memories_as_values = attention(config)?.uses_memories_as_values();
    Ok(FrameMemory {
        memory: TensorType::new(DType::BF16, [1, cells, memory.width]),
        image: memory.multiplex.as_ref().map(|_| TensorType::f32([1, grid, grid, width])),
        keys: layers(projected),
        values: layers(projected && !uses_memories_as_values),
    })
}

/// The memory of one object or bucket among several, without its image, which the caller has.
pub(super) fn one_of<'g>(all: &FrameMemory<Value<'g>>, index: usize) -> FrameMemory<Value<'g>> {
    let own = |value: &Value<'g>| value.slice(0, index..index + 1);
    FrameMemory {
        memory: own(&all.memory),
        image: None,
        keys: all.keys.iter().map(own).collect(),
        values: all.values.iter().map(own).collect(),
    }
}

pub(super) fn attention(config: &ModelConfig) -> Result<MemoryAttention<'_>, ModelError> {
    let (width, grid) = (config.decoder()?.width, config.encoder.grid());
    Ok(MemoryAttention { config: config.memory()?, width, grid })
}

/// Memories of objects whose masks are `[objects, side, side]`, `bf16[objects, grid * grid, memory width]`.
fn remember<'g>(
    level2: Value<'g>,
    answer: [Value<'g>; 2],
    source: MaskSource,
    w: &Scope<'g>,
    config: &ModelConfig,
) -> Result<Value<'g>, ModelError> {
    let memory = config.memory()?;
    let [logits, object_score] = answer;
    let [objects, side, _] = logits.dims();
    let remembered = MemoryEncoderInputs {
        image: level2,
        logits: logits.reshape([objects, side, side, 1]),
        score: memory.form.has_pointer_positions().then_some(object_score),
        side: config.encoder.image_size(),
    };
    let w = &memory.form.weights(w);
    let encoded = memory_encoder(remembered, source, w, memory).stage("encoded_memory");
    Ok(encoded.cast(DType::BF16))
}

impl Part for Remember {
    type Inputs = RememberInputs<()>;
    type Outputs = Remembered<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<RememberInputs<TensorType>, ModelError> {
        let side = config.mask_side();
        Ok(RememberInputs {
            level2: frame_types(config)?.level2,
            logits: TensorType::f32([self.objects, side, side]),
            object_score: TensorType::f32([self.objects]),
        })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        RememberInputs { level2, logits, object_score }: RememberInputs<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<Remembered<Value<'g>>, ModelError> {
        let all = remember(level2, [logits, object_score], self.source, w, config)?;
        let object =
            |index: usize| MemoryInput { memory: all.slice(0, index..index + 1), image: None };
        Ok(Remembered { objects: (0..self.objects).map(object).collect() })
    }
}

impl Part for Project {
    type Inputs = MemoryInput<()>;
    type Outputs = FrameMemory<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<MemoryInput<TensorType>, ModelError> {
        let FrameMemory { memory, image, .. } = memory_types(config, false)?;
        Ok(MemoryInput { memory, image })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        MemoryInput { memory, image }: MemoryInput<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<FrameMemory<Value<'g>>, ModelError> {
        let attention = attention(config)?;
        let projected = attention.project(memory, image, &attention.config.form.weights(w));
        // The caller has the image.
        Ok(FrameMemory { image: None, ..projected })
    }
}

impl Part for Attend {
    type Inputs = AttendInputs<()>;
    type Outputs = AttendedFrame<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<AttendInputs<TensorType>, ModelError> {
        Ok(AttendInputs { level2: frame_types(config)?.level2, bank: self.bank.types(config)? })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        AttendInputs { level2, bank }: AttendInputs<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<AttendedFrame<Value<'g>>, ModelError> {
        let attention = attention(config)?;
        let w = &attention.config.form.weights(w);
        Ok(AttendedFrame { embedding: attention.attend(level2, &bank, w) })
    }
}

impl Part for Follow {
    type Inputs = FollowInputs<()>;
    type Outputs = Followed<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<FollowInputs<TensorType>, ModelError> {
        Ok(FollowInputs { frame: frame_types(config)?, bank: self.bank.types(config)? })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        FollowInputs { frame, bank }: FollowInputs<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<Followed<Value<'g>>, ModelError> {
        let objects = self.bank.objects;
        let attention = attention(config)?;
        let tracker = &attention.config.form.weights(w);
        let embedding = attention.attend(frame.level2, &bank, tracker);
        let image = DecoderImage::new(embedding, None, w, config.decoder()?);
        let fine = Some([frame.level0, frame.level1]);
        let decoded = decode(no_points(objects, w), image, fine, w, config)?;
        let answer = followed_answer(&decoded, tracker, attention.config.form)?;
        let remembered = || -> Result<FrameMemory<Value<'g>>, ModelError> {
            let answered = [answer.logits, answer.object_score];
            let memory = remember(frame.level2, answered, MaskSource::Predicted, w, config)?;
            Ok(match self.bank.projected {
                true => attention.project(memory, None, tracker),
                false => FrameMemory::plain(memory, None),
            })
        };
        let all = self.remember.then(remembered).transpose()?;
        let object = |index: usize| {
            let own = |value: &Value<'g>| value.slice(0, index..index + 1);
            FollowedObject {
                pointer: own(&answer.pointer),
                memory: all.as_ref().map(|all| one_of(all, index)),
            }
        };
        Ok(Followed {
            objects: (0..objects).map(object).collect(),
            logits: answer.logits,
            iou: answer.iou,
            object_score: answer.object_score,
        })
    }
}
