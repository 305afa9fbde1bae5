//! From tokens and image embedding to mask logits and their predicted quality.

use cutout_graph::{Scope, Value};

use crate::config::DecoderConfig;
use crate::image_encoder::CHANNEL_NORM_EPSILON;
use crate::layers::{head, layer_norm, upscale};
use crate::two_way_transformer::{ImageSide, TwoWay, two_way_transformer};

/// What the decoder reads.
#[derive(Clone, Copy)]
pub(crate) struct DecoderInputs<'g> {
    /// Image embedding with the dense prompt added, `[prompts or 1, side * side, width]`.
    pub(crate) image: Value<'g>,
    /// Positions of the embedding's cells, `[1, side * side, width]`.
    pub(crate) positions: Value<'g>,
    /// The image's part of the first layer.
    pub(crate) first: ImageSide<'g>,
    /// Prompt tokens, `[prompts, count, width]`.
    pub(crate) prompts: Value<'g>,
}

/// What the decoder gives, for all mask tokens: the first is the single mask, the others are the candidates.
#[derive(Clone, Copy)]
pub(crate) struct Decoded<'g> {
    /// `[prompts, mask tokens, 4 side, 4 side]`.
    pub(crate) logits: Value<'g>,
    /// Predicted IoU, `[prompts, mask tokens]`.
    pub(crate) iou: Value<'g>,
}

/// Decodes all prompts of one image.
pub(crate) fn mask_decoder<'g>(
    inputs: DecoderInputs<'g>,
    w: &Scope<'g>,
    config: &DecoderConfig,
) -> Decoded<'g> {
    let [prompts, _, width] = inputs.prompts.dims();
    let own = Value::concat(
        &[
            w.at("iou_token").parameter("weight", [1, width]),
            w.at("mask_tokens").parameter("weight", [config.mask_tokens, width]),
        ],
        0,
    );
    let own_count = 1 + config.mask_tokens;
    let own = own.reshape([1, own_count, width]).broadcast([prompts, own_count, width]);
    let start = TwoWay { tokens: Value::concat(&[own, inputs.prompts], 1), image: inputs.image };
    let end =
        two_way_transformer(start, inputs.positions, inputs.first, &w.at("transformer"), config);

    let iou_token = end.tokens.slice(1, 0..1).reshape([prompts, width]);
    let mut iou_widths = vec![config.iou_width; config.iou_depth - 1];
    iou_widths.push(config.mask_tokens);
    let iou = head(iou_token, &w.at("iou_prediction_head"), &iou_widths);
    Decoded { logits: masks(end, w, config), iou }
}

/// Mask logits: each mask token becomes a vector that is multiplied with every pixel of the upscaled embedding.
fn masks<'g>(end: TwoWay<'g>, w: &Scope<'g>, config: &DecoderConfig) -> Value<'g> {
    let [prompts, cells, width] = end.image.dims();
    let side = cells.isqrt();
    let up = &w.at("output_upscaling");
    let image = end.image.reshape([prompts, side, side, width]);
    let image = layer_norm(upscale(image, &up.at(0), width / 4), &up.at(1), CHANNEL_NORM_EPSILON);
    let image = upscale(image.gelu(), &up.at(3), width / 8).gelu();
    let pixels = image.reshape([prompts, 16 * cells, width / 8]);
    let vectors: Vec<Value<'g>> = (0..config.mask_tokens)
        .map(|index| {
            let token = end.tokens.slice(1, 1 + index..2 + index);
            let mlp = w.at("output_hypernetworks_mlps").at(index);
            head(token, &mlp, &[width, width, width / 8])
        })
        .collect();
    let vectors = Value::concat(&vectors, 1); // [prompts, mask tokens, width / 8]
    let logits = vectors.matmul_transposed(pixels); // [prompts, mask tokens, 16 cells]
    logits.reshape([prompts, config.mask_tokens, 4 * side, 4 * side])
}
