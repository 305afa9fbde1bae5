//! The memory encoder of SAM 3.1: one memory for a bucket of objects, each in a slot.

use cutout_graph::ops::ResizeMode;
use cutout_graph::{Reduced, Scope, Value};
use cutout_tensor::{DType, Tensor};

use super::encoder::{LOST, MaskSource, fitted, fused};
use crate::model::config::MemoryConfig;

/// Masks enter as probabilities stretched to -1..1.
const MASK_SCALE: f32 = 2.0;

/// Logit of an empty slot where slots compete for a pixel: below that of any object.
const NOBODY: f32 = f32::MIN;

/// Inputs of the memory encoder.
#[derive(Clone, Copy)]
pub(crate) struct BucketMasks<'g> {
    /// The top level of the frame, `[1, grid, grid, width]`.
    pub(crate) image: Value<'g>,
    /// Low-resolution mask logits, `[buckets, slots, 4 grid, 4 grid]`.
    pub(crate) logits: Value<'g>,
    /// Object scores, `[buckets, slots]`.
    pub(crate) score: Value<'g>,
    /// 1 for slots with an object, 0 for empty ones, `[buckets, slots]`.
    pub(crate) valid: Value<'g>,
    /// 1 for objects whose mask was given on this frame: prompted, new or renewed; `[buckets, slots]`.
    pub(crate) given: Value<'g>,
    /// Side of the model's input, to which logits are resized first.
    pub(crate) side: usize,
}

/// Memories of buckets, `[buckets, grid * grid, width]`. `w` is [`MemoryForm::weights`](crate::model::config::MemoryForm).
pub(crate) fn bucket_memory<'g>(
    remembered: BucketMasks<'g>,
    source: MaskSource,
    w: &Scope<'g>,
    config: &MemoryConfig,
) -> Value<'g> {
    let BucketMasks { image, logits, score, valid, given, side } = remembered;
    let [buckets, slots, ..] = logits.dims::<4>();
    let [_, grid, ..] = image.dims::<4>();
    let side = if source == MaskSource::Settled { 16 * grid } else { side };
    let of_slot = |value: Value<'g>| value.reshape([buckets, 1, 1, slots]);
    let masks = logits.permute([0, 2, 3, 1]).resize(ResizeMode::Bilinear, [side; 2]);
    let masks = match source {
        MaskSource::Predicted | MaskSource::Settled => masks,
        MaskSource::Prompted => separated(masks, of_slot(valid)),
    };
    // Background is -1, an empty slot 0.
    let masks = (masks.sigmoid() * MASK_SCALE - MASK_SCALE / 2.0) * of_slot(valid);
    let masks = fitted(masks, grid);
    let flags = of_slot(given * valid).broadcast([buckets, 16 * grid, 16 * grid, slots]);
    let encoder = &w.at(config.form.encoder());
    let memory = fused(image, Value::concat(&[masks, flags], 3), encoder, config);
    let embeddings = w.parameter("no_obj_embed_spatial", [slots, config.width]);
    // Empty slots count as hidden objects.
    let number = |value| w.builder().scalar(value);
    let visible = (score * valid).greater(number(0.0));
    let hidden = visible.select(number(0.0), number(1.0)).reshape([buckets, slots, 1]);
    let hidden = (hidden * embeddings.reshape([1, slots, config.width])).sum([1], Reduced::Keep);
    memory + hidden
}

/// Masks `[buckets, side, side, slots]` of objects that share a bucket: each pixel is left to the object with the largest logit,
/// the first of equal ones.
fn separated<'g>(logits: Value<'g>, valid: Value<'g>) -> Value<'g> {
    let builder = logits.builder();
    let [buckets, side, _, slots] = logits.dims();
    let number = |value| builder.scalar(value);
    let own = valid.greater(number(0.0)).select(logits, number(NOBODY));
    let winner = own.arg_max(3).cast(DType::F32).reshape([buckets, side, side, 1]);
    let numbers: Vec<f32> = (0..slots).map(|slot| slot as f32).collect();
    let away = winner - builder.computed(Tensor::from_vec([1, 1, 1, slots], numbers));
    (away * away).greater(number(0.0)).select(logits.minimum(number(LOST)), logits)
}
