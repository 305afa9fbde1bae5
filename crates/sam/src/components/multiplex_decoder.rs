//! The mask decoder of SAM 3.1 for objects that are followed: all slots of a bucket from one embedding.

use cutout_graph::{Scope, Value};

use crate::components::mask_decoder::{
    Decoded, DecodedObject, mask_logits, mask_vectors, object_score, predicted_iou, upscaled,
};
use crate::components::prompt_encoder::grid_features;
use crate::components::two_way_transformer::{TwoWay, image_operands, two_way_transformer};
use crate::model::config::MultiplexConfig;

/// Inputs of the decoder.
#[derive(Clone, Copy)]
pub(crate) struct SlotInputs<'g> {
    /// Embeddings after memory attention, `[buckets, grid, grid, width]`.
    pub(crate) embedding: Value<'g>,
    /// 1 for slots with an object, 0 for empty ones, `[buckets, slots]`.
    pub(crate) valid: Value<'g>,
    /// The pyramid's fine levels.
    pub(crate) fine: [Value<'g>; 2],
}

/// Decodes all slots, empty ones too: the prompts of [`Decoded`] are the slots of the first bucket, then those of the next. All
/// mask tokens of a slot are candidates. `w` is at the tracker.
pub(crate) fn multiplex_decoder<'g>(
    inputs: SlotInputs<'g>,
    w: &Scope<'g>,
    config: &MultiplexConfig,
) -> Decoded<'g> {
    let MultiplexConfig { slots, decoder, .. } = config;
    let (slots, candidates, width) = (*slots, decoder.mask_tokens, decoder.width);
    let [buckets, grid, ..] = inputs.embedding.dims::<4>();
    let image = inputs.embedding.reshape([buckets, grid * grid, width]);
    let positions = grid_features(&w.at("image_pe_layer"), grid, width);
    let tokens = slot_tokens(inputs.valid, w, config);
    let w = &w.at("sam_mask_decoder");
    let transformer = &w.at("transformer");
    let first = image_operands(image, positions, transformer, decoder);
    let end = two_way_transformer(TwoWay { tokens, image }, positions, first, transformer, decoder);

    let part = |start: usize, count: usize| end.tokens.slice(1, start..start + count);
    let score = object_score(part(0, slots), w).reshape([buckets * slots]);
    let iou = predicted_iou(part(slots, slots), w, decoder).reshape([buckets * slots, candidates]);
    let tokens = part(2 * slots, slots * candidates).reshape([buckets * slots, candidates, width]);
    let pixels = upscaled(end.image, Some(inputs.fine), w);
    let vectors =
        |number: usize| mask_vectors(tokens.slice(1, number..number + 1), number, pixels, w);
    let vectors = Value::concat(&(0..candidates).map(vectors).collect::<Vec<_>>(), 1);
    let channels = vectors.shape().last_axis();
    let logits = mask_logits(vectors.reshape([buckets, slots * candidates, channels]), pixels);
    let [_, _, height, across] = logits.dims();
    let logits = logits.reshape([buckets * slots, candidates, height, across]);
    Decoded { logits, iou, object: Some(DecodedObject { score, tokens }) }
}

/// Tokens of object scores, of predicted IoU and of masks, each for all slots, `[buckets, tokens, width]`. Those of masks say
/// whether their slot is empty.
fn slot_tokens<'g>(valid: Value<'g>, w: &Scope<'g>, config: &MultiplexConfig) -> Value<'g> {
    let MultiplexConfig { slots, decoder, .. } = config;
    let (slots, candidates, width) = (*slots, decoder.mask_tokens, decoder.width);
    let [buckets, _] = valid.dims();
    let [used, empty] = ["output_valid_embed", "output_invalid_embed"]
        .map(|name| w.parameter(name, [slots, width]).reshape([1, slots, 1, width]));
    let is_used = valid.greater(w.builder().scalar(0.0)).reshape([buckets, slots, 1, 1]);
    let table = |name: &str, rows: usize| {
        w.at("sam_mask_decoder").at(name).parameter("weight", [rows, width])
    };
    let masks = table("mask_tokens", slots * candidates).reshape([1, slots, candidates, width]);
    let masks = (is_used.select(used, empty) + masks).reshape([buckets, slots * candidates, width]);
    let [score, iou] = ["obj_score_token", "iou_token"].map(|name| {
        table(name, slots).reshape([1, slots, width]).broadcast([buckets, slots, width])
    });
    Value::concat(&[score, iou, masks], 1)
}
