//! From tokens and image embedding to mask logits and their predicted quality.

use cutout_graph::{Scope, Value};

use crate::components::image_encoder::CHANNEL_NORM_EPSILON;
use crate::components::layers::{head, layer_norm, upscale};
use crate::components::two_way_transformer::{ImageOperands, TwoWay, two_way_transformer};
use crate::model::config::{DecoderConfig, DecoderForm};

/// Inputs of the decoder.
#[derive(Clone)]
pub(crate) struct DecoderInputs<'g> {
    /// Image embedding with the dense prompt added, `[prompts or 1, side * side, width]`.
    pub(crate) image: Value<'g>,
    /// Positions of the embedding's cells, `[1, side * side, width]`.
    pub(crate) positions: Value<'g>,
    /// Image operands of the first layer.
    pub(crate) first: ImageOperands<Value<'g>>,
    /// Prompt tokens, `[prompts, count, width]`.
    pub(crate) prompts: Value<'g>,
    /// The pyramid's fine levels, `[1, 4 side, 4 side, width / 8]` and `[1, 2 side, 2 side, width / 4]`: only
    /// [`DecoderForm::Sam2`] and later.
    pub(crate) fine: Option<[Value<'g>; 2]>,
}

/// Outputs of the decoder for all mask tokens: the first is the single mask, the others are the candidates.
#[derive(Clone, Copy)]
pub(crate) struct Decoded<'g> {
    /// `[prompts, mask tokens, 4 side, 4 side]`.
    pub(crate) logits: Value<'g>,
    /// Predicted IoU, `[prompts, mask tokens]`.
    pub(crate) iou: Value<'g>,
    /// Only [`DecoderForm::Sam2`] and later.
    pub(crate) object: Option<DecodedObject<'g>>,
}

/// Object score and mask tokens.
#[derive(Clone, Copy)]
pub(crate) struct DecodedObject<'g> {
    /// Whether it is in the image: above 0 it is, `[prompts]`.
    pub(crate) score: Value<'g>,
    /// The tokens of the masks, which object pointers are made of, `[prompts, mask tokens, width]`.
    pub(crate) tokens: Value<'g>,
}

/// The decoder's own tokens in front of the prompt's.
#[derive(Clone, Copy)]
struct OwnTokens {
    /// Token of the object score, if any.
    score: Option<usize>,
    /// Token of the predicted IoU.
    iou: usize,
    /// First token of the masks.
    masks: usize,
}

impl DecoderConfig {
    fn own_tokens(&self) -> OwnTokens {
        match self.form {
            DecoderForm::Sam1 => OwnTokens { score: None, iou: 0, masks: 1 },
            DecoderForm::Sam2 | DecoderForm::Sam3 | DecoderForm::Sam3_1 => {
                OwnTokens { score: Some(0), iou: 1, masks: 2 }
            }
        }
    }
}

/// Decodes all prompts.
pub(crate) fn mask_decoder<'g>(
    inputs: DecoderInputs<'g>,
    w: &Scope<'g>,
    config: &DecoderConfig,
) -> Decoded<'g> {
    let [prompts, _, width] = inputs.prompts.dims();
    let own = config.own_tokens();
    let table = own_table(w, config);
    let count = own.masks + config.mask_tokens;
    let table = table.reshape([1, count, width]).broadcast([prompts, count, width]);
    let start = TwoWay { tokens: Value::concat(&[table, inputs.prompts], 1), image: inputs.image };
    let end =
        two_way_transformer(start, inputs.positions, inputs.first, &w.at("transformer"), config);

    let token = |index: usize| end.tokens.slice(1, index..index + 1).reshape([prompts, width]);
    let iou = predicted_iou(token(own.iou), w, config);
    let mask_tokens = end.tokens.slice(1, own.masks..count);
    let object = own.score.map(|score| DecodedObject {
        score: object_score(token(score), w).reshape([prompts]),
        tokens: mask_tokens,
    });
    let pixels = upscaled(end.image, inputs.fine, w);
    Decoded { logits: masks(mask_tokens, pixels, w), iou, object }
}

/// Predicted IoU `[.., mask tokens]` from tokens `[.., width]`.
pub(super) fn predicted_iou<'g>(
    tokens: Value<'g>,
    w: &Scope<'g>,
    config: &DecoderConfig,
) -> Value<'g> {
    let mut widths = vec![config.iou_width; config.iou_depth - 1];
    widths.push(config.mask_tokens);
    let iou = head(tokens, &w.at("iou_prediction_head"), &widths);
    match config.form {
        DecoderForm::Sam1 | DecoderForm::Sam3_1 => iou,
        DecoderForm::Sam2 | DecoderForm::Sam3 => iou.sigmoid(),
    }
}

/// Object scores `[.., 1]` from tokens `[.., width]`.
pub(super) fn object_score<'g>(tokens: Value<'g>, w: &Scope<'g>) -> Value<'g> {
    let width = tokens.shape().last_axis();
    head(tokens, &w.at("pred_obj_score_head"), &[width, width, 1])
}

/// The decoder's own tokens, `[count, width]`.
fn own_table<'g>(w: &Scope<'g>, config: &DecoderConfig) -> Value<'g> {
    let width = config.width;
    let score = || w.at("obj_score_token").parameter("weight", [1, width]);
    let mut rows: Vec<Value<'g>> = config.own_tokens().score.map(|_| score()).into_iter().collect();
    rows.push(w.at("iou_token").parameter("weight", [1, width]));
    rows.push(w.at("mask_tokens").parameter("weight", [config.mask_tokens, width]));
    Value::concat(&rows, 0)
}

/// The image `[prompts, side * side, width]` in four times the resolution, with the fine levels added on the way:
/// `[prompts, 4 side, 4 side, width / 8]`.
pub(super) fn upscaled<'g>(
    image: Value<'g>,
    fine: Option<[Value<'g>; 2]>,
    w: &Scope<'g>,
) -> Value<'g> {
    let [prompts, cells, width] = image.dims();
    let side = cells.isqrt();
    let up = &w.at("output_upscaling");
    let with = |x: Value<'g>, level: usize| fine.map_or(x, |levels| x + levels[level]);
    let x = upscale(image.reshape([prompts, side, side, width]), &up.at(0), width / 4);
    let x = layer_norm(with(x, 1), &up.at(1), CHANNEL_NORM_EPSILON).gelu();
    with(upscale(x, &up.at(3), width / 8), 0).gelu()
}

/// Mask logits `[prompts, mask tokens, height, width]`: each mask token becomes a vector that is multiplied with every
/// pixel of the upscaled image.
fn masks<'g>(tokens: Value<'g>, image: Value<'g>, w: &Scope<'g>) -> Value<'g> {
    let [_, count, _] = tokens.dims();
    let of_token = |index: usize| mask_vectors(tokens.slice(1, index..index + 1), index, image, w);
    mask_logits(Value::concat(&(0..count).map(of_token).collect::<Vec<_>>(), 1), image)
}

/// The vectors of mask tokens `[.., width]` that have this number, `[.., channels]`.
pub(super) fn mask_vectors<'g>(
    tokens: Value<'g>,
    number: usize,
    image: Value<'g>,
    w: &Scope<'g>,
) -> Value<'g> {
    let (width, channels) = (tokens.shape().last_axis(), image.shape().last_axis());
    let mlp = w.at("output_hypernetworks_mlps").at(number);
    head(tokens, &mlp, &[width, width, channels])
}

/// Logits `[prompts, vectors, height, width]` of vectors `[prompts, vectors, channels]`.
pub(super) fn mask_logits<'g>(vectors: Value<'g>, image: Value<'g>) -> Value<'g> {
    let [prompts, height, width, channels] = image.dims();
    let [_, count, _] = vectors.dims();
    let pixels = image.reshape([prompts, height * width, channels]);
    vectors.matmul_transposed(pixels).reshape([prompts, count, height, width])
}
