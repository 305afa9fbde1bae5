//! The attention of PyTorch's `nn.MultiheadAttention`: one weight for all three projections.

use cutout_graph::ops::{Attention, AttentionInputs};
use cutout_graph::{Scope, Value};

use crate::components::layers::linear;

/// An attention with weights `in_proj_weight`, `in_proj_bias` and `out_proj`.
pub(crate) struct MultiHead<'g> {
    pub(crate) w: Scope<'g>,
    pub(crate) width: usize,
    pub(crate) heads: usize,
}

/// First of several consecutive projections, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Projection {
    Query,
    Key,
    Value,
}

impl<'g> MultiHead<'g> {
    /// `N` neighbouring projections of the same tokens `[1, tokens, width]`.
    pub(crate) fn project<const N: usize>(
        &self,
        x: Value<'g>,
        first: Projection,
    ) -> [Value<'g>; N] {
        let width = self.width;
        let start = match first {
            Projection::Query => 0,
            Projection::Key => width,
            Projection::Value => 2 * width,
        };
        let rows = start..start + N * width;
        let weight = self.w.parameter("in_proj_weight", [3 * width, width]);
        let bias = self.w.parameter("in_proj_bias", [3 * width]);
        // A slice is packed as a separate weight in addition to the whole.
        let [weight, bias] = if N == 3 {
            [weight, bias]
        } else {
            [weight, bias].map(|whole| whole.slice(0, rows.clone()))
        };
        (x.linear(weight) + bias).split(2)
    }

    /// The op of this attention, without mask or bias.
    pub(crate) fn op(&self) -> Attention {
        let head_width = self.width / self.heads.max(1);
        Attention::new(self.heads, 1.0 / (head_width as f32).sqrt())
    }

    /// Mixes projected values and projects the result.
    pub(crate) fn mix(&self, inputs: AttentionInputs<Value<'g>>, op: Attention) -> Value<'g> {
        linear(inputs.attend(op), &self.w.at("out_proj"), self.width)
    }

    /// Cross-attention; keys may include positions that values do not.
    pub(crate) fn cross(&self, query: Value<'g>, keys: Value<'g>, values: Value<'g>) -> Value<'g> {
        let [query] = self.project(query, Projection::Query);
        let [key] = self.project(keys, Projection::Key);
        let [value] = self.project(values, Projection::Value);
        self.mix(AttentionInputs::new(query, key, value), self.op())
    }
}
