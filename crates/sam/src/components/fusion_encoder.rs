//! Transformer layers with self-attention and cross-attention: image to prompt, exemplars to image.

use cutout_graph::ops::AttentionInputs;
use cutout_graph::{Scope, Value};

use crate::components::layers::{Mlp, MlpActivation, MlpNames, layer_norm};
use crate::components::multi_head::{MultiHead, Projection};
use crate::model::config::DetectorConfig;

/// Epsilon of the detector's layer norms.
pub(crate) const NORM_EPSILON: f32 = 1e-5;

/// Keys and values of cross-attention, `[1, tokens, width]`.
#[derive(Clone, Copy)]
pub(crate) struct KeysAndValues<'g> {
    /// Tokens with positions, if any.
    pub(crate) keys: Value<'g>,
    /// Tokens without positions.
    pub(crate) values: Value<'g>,
}

/// A pre-norm layer: self-attention, cross-attention, MLP.
pub(crate) struct FusionLayer<'g, 'c> {
    pub(crate) w: Scope<'g>,
    pub(crate) config: &'c DetectorConfig,
}

impl<'g> FusionLayer<'g, '_> {
    fn attention(&self, name: &str) -> MultiHead<'g> {
        MultiHead { w: self.w.at(name), width: self.config.width, heads: self.config.heads }
    }

    fn normed(&self, x: Value<'g>, norm: &str) -> Value<'g> {
        layer_norm(x, &self.w.at(norm), NORM_EPSILON)
    }

    /// Self-attention of `x: [1, tokens, width]`. Positions are added to queries and keys only.
    pub(crate) fn self_attention(&self, x: Value<'g>, positions: Option<Value<'g>>) -> Value<'g> {
        let attention = self.attention("self_attn");
        let normed = self.normed(x, "norm1");
        let [query, key, value] = match positions {
            None => attention.project(normed, Projection::Query),
            Some(positions) => {
                let [query, key] = attention.project(normed + positions, Projection::Query);
                let [value] = attention.project(normed, Projection::Value);
                [query, key, value]
            }
        };
        x + attention.mix(AttentionInputs::new(query, key, value), attention.op())
    }

    /// Cross-attention to `source`, then the MLP.
    pub(crate) fn cross_attention_and_mlp(
        &self,
        x: Value<'g>,
        source: KeysAndValues<'g>,
    ) -> Value<'g> {
        let attention = self.attention("cross_attn_image");
        let x = x + attention.cross(self.normed(x, "norm2"), source.keys, source.values);
        x + mlp(self.config).apply(self.normed(x, "norm3"), &self.w)
    }
}

/// The MLP of every layer of the detector.
pub(crate) fn mlp(config: &DetectorConfig) -> Mlp {
    Mlp { hidden: config.mlp_width, activation: MlpActivation::Relu, names: MlpNames::Linear }
}
