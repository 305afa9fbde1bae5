//! Objects from frame to frame: memories in, masks and memories out. SAM 2.

use cutout_graph::{Scope, Value, ports};
use cutout_tensor::{DType, TensorType};

use super::decode::{DecoderImage, decode};
use super::object_prompt::{FrameFeatures, answer, frame_types, no_points};
use crate::components::memory::{MaskSource, MemoryAttention, MemoryEncoderInputs, memory_encoder};
use crate::model::ModelError;
use crate::model::config::{MemoryForm, ModelConfig};
use crate::model::part::Part;
use crate::prompt::Candidates;

pub use crate::components::memory::{Bank, FrameMemory, ObjectBank};

ports! {
    /// A frame and the mask of an object on it.
    pub struct RememberInputs {
        /// See [`FrameFeatures`].
        level2,
        /// `f32[1, side, side]`.
        logits,
        /// `f32[1]`.
        object_score,
    }
}

ports! {
    /// A memory.
    pub struct MemoryInput {
        /// `bf16[1, grid * grid, memory width]`: rounded as in Meta's code.
        memory,
    }
}

/// The memory encoder, for one object.
#[derive(Clone, Copy, Debug)]
pub struct Remember {
    /// Where the mask comes from.
    pub source: MaskSource,
}

/// Projects a memory into the keys and values of memory attention.
#[derive(Clone, Copy, Debug)]
pub struct Project;

/// Number and kind of the memories that a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BankShape {
    /// Objects, each with as many frames and pointers.
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
        Ok(self.pointers > 0 && config.memory()?.form == MemoryForm::Sam2_1)
    }

    fn types(&self, config: &ModelConfig) -> Result<Bank<TensorType>, ModelError> {
        let width = config.decoder()?.width;
        let frames = (0..self.frames).map(|_| memory_types(config, self.projected));
        let frames = frames.collect::<Result<Vec<_>, _>>()?;
        let pointers = vec![TensorType::f32([1, width]); self.pointers];
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
        /// Memory of the frame, with keys and values if the bank is projected.
        memory: group FrameMemory,
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
}

/// Types of one frame's memory of one object.
fn memory_types(
    config: &ModelConfig,
    projected: bool,
) -> Result<FrameMemory<TensorType>, ModelError> {
    let (memory, width) = (config.memory()?, config.decoder()?.width);
    let cells = config.encoder.grid() * config.encoder.grid();
    let layers = |wanted: bool| {
        vec![TensorType::f32([1, cells, width]); if wanted { memory.layers } else { 0 }]
    };
    let uses_memories_as_values = attention(config)?.uses_memories_as_values();
    Ok(FrameMemory {
        memory: TensorType::new(DType::BF16, [1, cells, memory.width]),
        keys: layers(projected),
        values: layers(projected && !uses_memories_as_values),
    })
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
    let score = match memory.form {
        MemoryForm::Sam2 => None,
        MemoryForm::Sam2_1 => Some(object_score),
    };
    let logits = logits.reshape([objects, side, side, 1]);
    let remembered = MemoryEncoderInputs { image: level2, logits, score };
    let encoded = memory_encoder(remembered, source, w, memory).stage("encoded_memory");
    Ok(encoded.cast(DType::BF16))
}

impl Part for Remember {
    type Inputs = RememberInputs<()>;
    type Outputs = MemoryInput<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<RememberInputs<TensorType>, ModelError> {
        let side = config.mask_side();
        Ok(RememberInputs {
            level2: frame_types(config)?.level2,
            logits: TensorType::f32([1, side, side]),
            object_score: TensorType::f32([1]),
        })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        RememberInputs { level2, logits, object_score }: RememberInputs<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<MemoryInput<Value<'g>>, ModelError> {
        let memory = remember(level2, [logits, object_score], self.source, w, config)?;
        Ok(MemoryInput { memory })
    }
}

impl Part for Project {
    type Inputs = MemoryInput<()>;
    type Outputs = FrameMemory<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<MemoryInput<TensorType>, ModelError> {
        Ok(MemoryInput { memory: memory_types(config, false)?.memory })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        MemoryInput { memory }: MemoryInput<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<FrameMemory<Value<'g>>, ModelError> {
        Ok(attention(config)?.project(memory, w))
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
        Ok(AttendedFrame { embedding: attention(config)?.attend(level2, &bank, w) })
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
        let embedding = attention.attend(frame.level2, &bank, w);
        let image = DecoderImage::new(embedding, None, w, config.decoder()?);
        let fine = Some([frame.level0, frame.level1]);
        let decoded = decode(no_points(objects, w), image, fine, w, config)?;
        let answer = answer(&decoded, Candidates::Three, w)?;
        let memory = remember(
            frame.level2,
            [answer.logits, answer.object_score],
            MaskSource::Predicted,
            w,
            config,
        )?;
        let all = if self.bank.projected {
            attention.project(memory, w)
        } else {
            FrameMemory { memory, keys: Vec::new(), values: Vec::new() }
        };
        let object = |index: usize| {
            let own = |value: &Value<'g>| value.slice(0, index..index + 1);
            FollowedObject {
                pointer: own(&answer.pointer),
                memory: FrameMemory {
                    memory: own(&all.memory),
                    keys: all.keys.iter().map(own).collect(),
                    values: all.values.iter().map(own).collect(),
                },
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
