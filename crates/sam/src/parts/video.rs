//! The programs of tracking: SAM 2.

use cutout_graph::ops::{Conv2d, ResizeMode};
use cutout_graph::{Reduced, Scope, Value, ports};
use cutout_tensor::{DType, Tensor, TensorType};

use super::decode::{DecoderImage, Prompts, decode, fine_levels, within_limit};
use crate::components::mask_choice::{best_candidate, pick, stable_or_best};
use crate::components::mask_decoder::Decoded;
use crate::components::memory::{
    MaskSource, MemoryAttention, MemoryEncoderInputs, memory_encoder, pointer,
};
use crate::components::prompt_encoder::PointKind;
use crate::model::ModelError;
use crate::model::config::{MemoryForm, ModelConfig};
use crate::model::part::Part;
use crate::prompt::Candidates;

pub use crate::components::memory::{Bank, FrameMemory, ObjectBank};

/// Logits of a hidden object.
const HIDDEN: f32 = -1024.0;

ports! {
    /// A frame's features: see [`Encoded`](super::Encoded).
    pub struct FrameFeatures {
        /// The finest level.
        level0,
        /// The middle level.
        level1,
        /// The top level, without memories.
        level2,
    }
}

ports! {
    /// A frame and the prompts of objects on it.
    pub struct PromptInputs {
        /// `f32[objects, points, 2]`, in pixels of the model's input.
        points,
        /// `i64[objects, points]`.
        kinds,
        /// Mask logits to refine, `f32[objects, side, side, 1]`.
        masks: optional,
        /// The frame's embedding, with or without memories, `f32[objects, grid, grid, width]`.
        embedding,
        /// See [`FrameFeatures`].
        level0,
        /// See [`FrameFeatures`].
        level1,
    }
}

ports! {
    /// Masks and pointers of objects on a frame.
    pub struct ObjectAnswer {
        /// `f32[objects, side, side]`; negative everywhere if the object is hidden.
        logits,
        /// Predicted IoU, `f32[objects]`.
        iou,
        /// Above 0 where the object is in the picture, `f32[objects]`.
        object_score,
        /// `f32[objects, width]`.
        pointer,
    }
}

/// Decodes one prompt per object, each with its own embedding.
#[derive(Clone, Copy, Debug)]
pub struct AnswerPrompt {
    /// Objects, each with a prompt.
    pub objects: usize,
    /// Points of each, box corners and padding included.
    pub points: usize,
    /// Whether each prompt comes with mask logits.
    pub masks: bool,
    /// Whether to return the best candidate or the single mask.
    pub wanted: Candidates,
}

ports! {
    /// A mask prompt on a frame.
    pub struct MaskInputs {
        /// Zeros and ones, `f32[1, height, width, 1]`, as large as the video.
        mask,
        /// The frame.
        frame: group FrameFeatures,
    }
}

/// Uses a mask prompt as the mask of an object; the model computes the pointer only.
#[derive(Clone, Copy, Debug)]
pub struct UseMask {
    /// Height and width of the mask.
    pub size: [usize; 2],
}

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

fn frame_types(config: &ModelConfig) -> Result<FrameFeatures<TensorType>, ModelError> {
    let decoder = config.decoder()?;
    let grid = config.encoder.grid();
    match fine_levels(config, decoder) {
        [Some(level0), Some(level1)] => Ok(FrameFeatures {
            level0,
            level1,
            level2: TensorType::f32([1, grid, grid, decoder.width]),
        }),
        _ => Err(ModelError::NoMemory),
    }
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

/// Chooses mask, score and pointer of each object.
fn answer<'g>(
    decoded: &Decoded<'g>,
    wanted: Candidates,
    w: &Scope<'g>,
) -> Result<ObjectAnswer<Value<'g>>, ModelError> {
    let object = decoded.object.ok_or(ModelError::NoMemory)?;
    let [objects, _, side, _] = decoded.logits.dims();
    let width = object.tokens.shape().last_axis();
    let (mask, token) = match wanted {
        Candidates::Three => {
            let best = best_candidate(decoded.iou);
            (best, best.pick(object.tokens))
        }
        // The pointer comes from the single mask's token even if a candidate is chosen.
        Candidates::One => {
            let first = object.tokens.slice(1, 0..1).reshape([objects, width]);
            (stable_or_best(decoded.logits, decoded.iou), first)
        }
    };
    let chosen = pick(decoded.logits, decoded.iou, mask);
    let number = |value: f32| w.builder().scalar(value);
    let visible = object.score.greater(number(0.0)).reshape([objects, 1, 1]);
    let logits = chosen.logits.reshape([objects, side, side]);
    Ok(ObjectAnswer {
        logits: visible.select(logits, number(HIDDEN)),
        iou: chosen.iou.reshape([objects]),
        object_score: object.score,
        pointer: pointer(token, object.score, w),
    })
}

impl Part for AnswerPrompt {
    type Inputs = PromptInputs<()>;
    type Outputs = ObjectAnswer<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<PromptInputs<TensorType>, ModelError> {
        let &AnswerPrompt { objects, points, masks, .. } = self;
        let (grid, side) = (config.encoder.grid(), config.mask_side());
        let FrameFeatures { level0, level1, .. } = frame_types(config)?;
        Ok(PromptInputs {
            points: TensorType::f32([objects, points, 2]),
            kinds: TensorType::new(DType::I64, [objects, points]),
            masks: masks.then(|| TensorType::f32([objects, side, side, 1])),
            embedding: TensorType::f32([objects, grid, grid, config.decoder()?.width]),
            level0,
            level1,
        })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        inputs: PromptInputs<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<ObjectAnswer<Value<'g>>, ModelError> {
        let masks = inputs.masks.map(|masks| within_limit(masks, config));
        let image = DecoderImage::new(inputs.embedding, masks, w, config.decoder()?);
        let prompts = Prompts { points: inputs.points, kinds: inputs.kinds };
        let decoded = decode(prompts, image, Some([inputs.level0, inputs.level1]), w, config)?;
        answer(&decoded, self.wanted, w)
    }
}

/// Empty prompt: two padding tokens for each object, as in Meta's code.
fn no_points<'g>(objects: usize, w: &Scope<'g>) -> Prompts<'g> {
    let places = Tensor::from_vec([objects, 2, 2], vec![0f32; 4 * objects]);
    let kinds = Tensor::from_vec([objects, 2], vec![PointKind::Padding as i64; 2 * objects]);
    Prompts { points: w.builder().computed(places), kinds: w.builder().computed(kinds) }
}

/// Resizes a binary mask `[1, height, width, 1]` to the model's size with a threshold of 0.5.
fn fitted(mask: Value<'_>, size: usize) -> Value<'_> {
    let [_, height, width, _] = mask.dims();
    if [height, width] == [size, size] {
        return mask;
    }
    let builder = mask.builder();
    let resized = mask.resize_antialiased(ResizeMode::Bilinear, [size; 2]);
    let less = builder.scalar(0.5).broadcast([1, size, size, 1]).greater(resized);
    less.select(builder.scalar(0.0), builder.scalar(1.0))
}

/// Converts binary masks `[objects, size, size, 1]` to output logits and to the mask prompt for the pointer, both
/// `[objects, side, side, 1]`.
pub(super) fn mask_prompt<'g>(mask: Value<'g>, w: &Scope<'g>, side: usize) -> [Value<'g>; 2] {
    let logits = (mask * 20.0 - 10.0).resize_antialiased(ResizeMode::Bilinear, [side; 2]);
    let w = w.at("mask_downsample");
    let prompt = mask.conv2d(w.parameter("weight", [1, 1, 4, 4]), Conv2d::new(4, 0));
    [logits, prompt + w.parameter("bias", [1])]
}

impl Part for UseMask {
    type Inputs = MaskInputs<()>;
    type Outputs = ObjectAnswer<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<MaskInputs<TensorType>, ModelError> {
        let [height, width] = self.size;
        let mask = TensorType::f32([1, height, width, 1]);
        Ok(MaskInputs { mask, frame: frame_types(config)? })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        MaskInputs { mask, frame }: MaskInputs<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<ObjectAnswer<Value<'g>>, ModelError> {
        let (decoder, side) = (config.decoder()?, config.mask_side());
        let mask = fitted(mask, config.encoder.image_size());
        let [logits, prompt] = mask_prompt(mask, w, side);
        let image = DecoderImage::new(frame.level2, Some(prompt), w, decoder);
        let fine = Some([frame.level0, frame.level1]);
        let decoded = decode(no_points(1, w), image, fine, w, config)?;
        let object = decoded.object.ok_or(ModelError::NoMemory)?;
        let token = object.tokens.slice(1, 0..1).reshape([1, decoder.width]);
        // The mask determines whether the object is visible; the model computes its pointer only.
        let number = |value: f32| w.builder().scalar(value).reshape([1]);
        let shown = mask.max([1, 2, 3], Reduced::Drop).greater(number(0.0));
        let score = shown.select(object.score, number(-1.0));
        Ok(ObjectAnswer {
            logits: logits.reshape([1, side, side]),
            iou: number(1.0),
            object_score: shown.select(number(10.0), number(-10.0)),
            pointer: pointer(token, score, w),
        })
    }
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
