//! Buckets of objects from frame to frame: SAM 3.1.

use cutout_graph::{Scope, Value, ports};
use cutout_tensor::{DType, TensorType};

use super::memory::{Bank, BankShape, FrameMemory, MemoryInput, Remembered, attention, one_of};
use super::object_prompt::{FrameFeatures, followed_answer, frame_types};
use crate::components::memory::{BucketMasks, MaskSource, bucket_memory};
use crate::components::multiplex_decoder::{SlotInputs, multiplex_decoder};
use crate::model::ModelError;
use crate::model::config::{ModelConfig, MultiplexConfig};
use crate::model::part::Part;

ports! {
    /// A frame and the masks of the objects of buckets on it. Slots without an object are 0 everywhere.
    pub struct RememberBucketsInputs {
        /// See [`FrameFeatures`].
        level2,
        /// `f32[buckets, slots, side, side]`.
        logits,
        /// `f32[buckets, slots]`.
        object_score,
        /// 1 for slots with an object, `f32[buckets, slots]`.
        valid,
        /// 1 for objects whose mask was given on this frame, `f32[buckets, slots]`.
        given,
    }
}

/// The memory encoder of buckets, apart from tracking.
#[derive(Clone, Copy, Debug)]
pub struct RememberBuckets {
    /// Where the masks come from.
    pub source: MaskSource,
    /// Buckets.
    pub buckets: usize,
}

ports! {
    /// A frame and the memories of buckets.
    pub struct FollowBucketsInputs {
        /// The frame.
        frame: group FrameFeatures,
        /// The memories.
        bank: group Bank,
        /// 1 for slots with an object, `f32[buckets, slots]`.
        valid,
    }
}

ports! {
    /// Pointers and memory of one bucket on a frame.
    pub struct FollowedBucket {
        /// `f32[1, slots * width]`; 0 in empty slots.
        pointers,
        /// Memory of the frame, without its image, with keys and values if the bank is projected; `None` if it is encoded later.
        memory: optional FrameMemory,
    }
}

ports! {
    /// Buckets on a frame. Numbers of empty slots mean nothing.
    pub struct FollowedBuckets {
        /// `f32[buckets * slots, side, side]`.
        logits,
        /// `f32[buckets * slots]`.
        iou,
        /// `f32[buckets * slots]`.
        object_score,
        /// Pointers and memory of each bucket.
        buckets: list FollowedBucket,
    }
}

/// A tracked frame of buckets as one program, as [`Follow`](super::Follow).
#[derive(Clone, Copy, Debug)]
pub struct FollowBuckets {
    /// The memories of the buckets.
    pub bank: BankShape,
    /// Whether the frame is remembered by the same program, or later by [`RememberBuckets`].
    pub remember: bool,
}

pub(super) fn multiplex(config: &ModelConfig) -> Result<&MultiplexConfig, ModelError> {
    config.memory()?.multiplex.as_ref().ok_or(ModelError::NoMemory)
}

/// Memories of buckets, `bf16[buckets, grid * grid, width]`.
fn remember<'g>(
    masks: BucketMasks<'g>,
    source: MaskSource,
    w: &Scope<'g>,
    config: &ModelConfig,
) -> Result<Value<'g>, ModelError> {
    let memory = config.memory()?;
    let encoded = bucket_memory(masks, source, &memory.form.weights(w), memory);
    Ok(encoded.stage("encoded_memory").cast(DType::BF16))
}

impl Part for RememberBuckets {
    type Inputs = RememberBucketsInputs<()>;
    type Outputs = Remembered<()>;

    fn inputs(
        &self,
        config: &ModelConfig,
    ) -> Result<RememberBucketsInputs<TensorType>, ModelError> {
        let (side, slots) = (config.mask_side(), multiplex(config)?.slots);
        let of_slots = || TensorType::f32([self.buckets, slots]);
        Ok(RememberBucketsInputs {
            level2: frame_types(config)?.level2,
            logits: TensorType::f32([self.buckets, slots, side, side]),
            object_score: of_slots(),
            valid: of_slots(),
            given: of_slots(),
        })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        inputs: RememberBucketsInputs<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<Remembered<Value<'g>>, ModelError> {
        let RememberBucketsInputs { level2, logits, object_score, valid, given } = inputs;
        let side = config.encoder.image_size();
        let masks = BucketMasks { image: level2, logits, score: object_score, valid, given, side };
        let all = remember(masks, self.source, w, config)?;
        let bucket =
            |index: usize| MemoryInput { memory: all.slice(0, index..index + 1), image: None };
        Ok(Remembered { objects: (0..self.buckets).map(bucket).collect() })
    }
}

impl Part for FollowBuckets {
    type Inputs = FollowBucketsInputs<()>;
    type Outputs = FollowedBuckets<()>;

    fn inputs(&self, config: &ModelConfig) -> Result<FollowBucketsInputs<TensorType>, ModelError> {
        let slots = multiplex(config)?.slots;
        Ok(FollowBucketsInputs {
            frame: frame_types(config)?,
            bank: self.bank.types(config)?,
            valid: TensorType::f32([self.bank.objects, slots]),
        })
    }

    fn build<'g>(
        &self,
        config: &ModelConfig,
        FollowBucketsInputs { frame, bank, valid }: FollowBucketsInputs<Value<'g>>,
        w: &Scope<'g>,
    ) -> Result<FollowedBuckets<Value<'g>>, ModelError> {
        let attention = attention(config)?;
        let tracker = &attention.config.form.weights(w);
        let embedding = attention.attend(frame.level2, &bank, tracker);
        let slots = SlotInputs { embedding, valid, fine: [frame.level0, frame.level1] };
        let decoded = followed(slots, tracker, config)?;
        let remembered = || -> Result<FrameMemory<Value<'g>>, ModelError> {
            let masks = decoded.masks(frame.level2, valid, config.encoder.image_size());
            let memory = remember(masks, MaskSource::Predicted, w, config)?;
            Ok(match self.bank.projected {
                true => attention.project(memory, Some(frame.level2), tracker),
                false => FrameMemory::plain(memory, None),
            })
        };
        let all = self.remember.then(remembered).transpose()?;
        let bucket = |index: usize| FollowedBucket {
            pointers: decoded.pointers.slice(0, index..index + 1),
            memory: all.as_ref().map(|all| one_of(all, index)),
        };
        Ok(FollowedBuckets {
            buckets: (0..self.bank.objects).map(bucket).collect(),
            logits: decoded.logits,
            iou: decoded.iou,
            object_score: decoded.object_score,
        })
    }
}

/// The answers of all slots.
#[derive(Clone, Copy)]
pub(super) struct FollowedSlots<'g> {
    /// `[buckets * slots, side, side]`.
    pub(super) logits: Value<'g>,
    /// `[buckets * slots]`.
    pub(super) iou: Value<'g>,
    /// `[buckets * slots]`.
    pub(super) object_score: Value<'g>,
    /// `[buckets, slots * width]`.
    pub(super) pointers: Value<'g>,
}

/// Decodes embeddings after memory attention. `w` is at the tracker.
pub(super) fn followed<'g>(
    inputs: SlotInputs<'g>,
    w: &Scope<'g>,
    config: &ModelConfig,
) -> Result<FollowedSlots<'g>, ModelError> {
    let multiplex = multiplex(config)?;
    let [buckets, slots] = inputs.valid.dims();
    let width = multiplex.decoder.width;
    let decoded = multiplex_decoder(inputs, w, multiplex);
    decoded.logits.stage("multiplex.logits");
    decoded.iou.stage("multiplex.iou");
    if let Some(object) = decoded.object {
        object.score.stage("multiplex.object_score");
        object.tokens.stage("multiplex.tokens");
    }
    let answer = followed_answer(&decoded, w, config.memory()?.form)?;
    let pointers = answer.pointer.reshape([buckets, slots, width]);
    let pointers = pointers * inputs.valid.reshape([buckets, slots, 1]);
    Ok(FollowedSlots {
        logits: answer.logits,
        iou: answer.iou,
        object_score: answer.object_score,
        pointers: pointers.reshape([buckets, slots * width]),
    })
}

impl<'g> FollowedSlots<'g> {
    /// What is remembered of the answers: no mask was given.
    fn masks(self, image: Value<'g>, valid: Value<'g>, side: usize) -> BucketMasks<'g> {
        let [buckets, slots] = valid.dims();
        let [_, low, _] = self.logits.dims();
        BucketMasks {
            image,
            logits: self.logits.reshape([buckets, slots, low, low]),
            score: self.object_score.reshape([buckets, slots]),
            valid,
            given: valid * 0.0,
            side,
        }
    }
}
