//! The text encoder of SAM 3: phrases as features of the detector's width.

use cutout_graph::ops::{Attention, AttentionInputs};
use cutout_graph::{Scope, Value};

use crate::components::layers::{Mlp, MlpActivation, MlpNames, layer_norm, linear};
use crate::components::multi_head::{MultiHead, Projection};
use crate::model::config::TextConfig;

/// Epsilon of all layer norms.
const NORM_EPSILON: f32 = 1e-5;

/// Encodes a phrase's tokens `i64[tokens]` into `[1, kept, outputs]`: the features of the tokens numbered in
/// `kept: i64[kept]`.
///
/// Attention is causal, so a phrase needs no padding. All tokens take part in it, but Meta takes token 0 for padding
/// and hides it from the detector, although it is a valid token (`!` inside a word).
pub(crate) fn text_encoder<'g>(
    tokens: Value<'g>,
    kept: Value<'g>,
    w: &Scope<'g>,
    config: &TextConfig,
    outputs: usize,
) -> Value<'g> {
    let [length] = tokens.dims();
    let [count] = kept.dims();
    let width = config.width;
    let encoder = &w.at("encoder");
    let table = encoder.at("token_embedding").parameter("weight", [config.vocabulary, width]);
    let positions = encoder.parameter("positional_embedding", [config.context, width]);
    let x = table.gather(tokens) + positions.slice(0, 0..length);
    let mut x = x.reshape([1, length, width]);
    for index in 0..config.depth {
        let w = &encoder.at("transformer.resblocks").at(index);
        x = w.stage("", block(x, w, config));
    }
    let x = x.reshape([length, width]).gather(kept).reshape([1, count, width]);
    linear(layer_norm(x, &encoder.at("ln_final"), NORM_EPSILON), &w.at("resizer"), outputs)
}

/// Pre-norm block over `[1, tokens, width]`, each token seeing itself and those before it.
fn block<'g>(x: Value<'g>, w: &Scope<'g>, config: &TextConfig) -> Value<'g> {
    let attention = MultiHead { w: w.at("attn"), width: config.width, heads: config.heads };
    let normed = layer_norm(x, &w.at("ln_1"), NORM_EPSILON);
    let [query, key, value] = attention.project(normed, Projection::Query);
    let op = Attention { causal: true, ..attention.op() };
    let x = x + attention.mix(AttentionInputs::new(query, key, value), op);
    let mlp =
        Mlp { hidden: config.mlp_width, activation: MlpActivation::Gelu, names: MlpNames::Clip };
    x + mlp.apply(layer_norm(x, &w.at("ln_2"), NORM_EPSILON), &w.at("mlp"))
}
