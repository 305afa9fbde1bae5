//! The layers that components are made of: functions from values to values.

use cutout_graph::ops::{Attention, AttentionInputs, Conv2d, ConvTranspose2d};
use cutout_graph::{Scope, Value};

/// `x · weightᵀ + bias` over the last axis.
pub(crate) fn linear<'g>(x: Value<'g>, w: &Scope<'g>, outputs: usize) -> Value<'g> {
    let inputs = x.shape().last_axis();
    x.linear(w.parameter("weight", [outputs, inputs])) + w.parameter("bias", [outputs])
}

/// Normalises the last axis; for images `[batch, height, width, channels]` that is Meta's `LayerNorm2d`.
pub(crate) fn layer_norm<'g>(x: Value<'g>, w: &Scope<'g>, epsilon: f32) -> Value<'g> {
    let width = x.shape().last_axis();
    x.layer_norm(w.parameter("weight", [width]), w.parameter("bias", [width]), epsilon)
}

/// Whether a convolution has a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bias {
    /// It has.
    With,
    /// It has not.
    Without,
}

/// A convolution of `x: [batch, height, width, channels]` with a square kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Convolution {
    pub(crate) outputs: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    pub(crate) bias: Bias,
}

impl Convolution {
    /// The layer applied to `x`.
    pub(crate) fn apply<'g>(self, x: Value<'g>, w: &Scope<'g>) -> Value<'g> {
        let [_, _, _, inputs] = x.dims();
        let weight = w.parameter("weight", [self.outputs, inputs, self.kernel, self.kernel]);
        let sums = x.conv2d(weight, Conv2d::new(self.stride, self.padding));
        match self.bias {
            Bias::With => sums + w.parameter("bias", [self.outputs]),
            Bias::Without => sums,
        }
    }
}

/// Doubles height and width: a transposed 2×2 convolution with stride 2.
pub(crate) fn upscale<'g>(x: Value<'g>, w: &Scope<'g>, outputs: usize) -> Value<'g> {
    let [_, _, _, inputs] = x.dims();
    let weight = w.parameter("weight", [inputs, outputs, 2, 2]);
    x.conv_transpose2d(weight, ConvTranspose2d::new(2, 0)) + w.parameter("bias", [outputs])
}

/// Function between the two layers of a transformer's MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MlpActivation {
    /// Exact (error function) GELU: image encoders.
    Gelu,
    /// ReLU: decoders.
    Relu,
}

/// What checkpoints call the two layers of an MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MlpNames {
    /// `lin1` and `lin2`: SAM 1.
    Lin,
    /// `layers.0` and `layers.1`: SAM 2.
    Layers,
    /// `linear1` and `linear2`: memory attention.
    Linear,
    /// `fc1` and `fc2`: SAM 3's image encoder.
    Fc,
    /// `c_fc` and `c_proj`: text encoder.
    Clip,
}

/// The two-layer MLP of a transformer block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mlp {
    /// Channels between the layers.
    pub(crate) hidden: usize,
    pub(crate) activation: MlpActivation,
    pub(crate) names: MlpNames,
}

impl Mlp {
    /// The MLP applied to `x`; input and output have the same channels.
    pub(crate) fn apply<'g>(self, x: Value<'g>, w: &Scope<'g>) -> Value<'g> {
        let [first, second] = match self.names {
            MlpNames::Lin => ["lin1", "lin2"],
            MlpNames::Layers => ["layers.0", "layers.1"],
            MlpNames::Linear => ["linear1", "linear2"],
            MlpNames::Fc => ["fc1", "fc2"],
            MlpNames::Clip => ["c_fc", "c_proj"],
        };
        let width = x.shape().last_axis();
        let inner = linear(x, &w.at(first), self.hidden);
        let inner = match self.activation {
            MlpActivation::Gelu => inner.gelu(),
            MlpActivation::Relu => inner.relu(),
        };
        linear(inner, &w.at(second), width)
    }
}

/// Layers `layers.0`, `layers.1`, …, ReLU between them: Meta's prediction heads.
pub(crate) fn head<'g>(x: Value<'g>, w: &Scope<'g>, widths: &[usize]) -> Value<'g> {
    let mut x = x;
    for (index, &width) in widths.iter().enumerate() {
        x = linear(x, &w.at("layers").at(index), width);
        if index + 1 < widths.len() {
            x = x.relu();
        }
    }
    x
}

/// Queries, keys and values of an attention, each `[batch, tokens, channels]`.
#[derive(Clone, Copy)]
pub(crate) struct Attended<'g> {
    pub(crate) query: AttentionOperand<'g>,
    pub(crate) key: AttentionOperand<'g>,
    pub(crate) value: AttentionOperand<'g>,
}

/// One operand of an attention, before or after its projection.
#[derive(Clone, Copy)]
pub(crate) enum AttentionOperand<'g> {
    /// Still to be projected.
    Raw(Value<'g>),
    /// Already projected, once for many runs.
    Projected(Value<'g>),
}

impl<'g> AttentionOperand<'g> {
    /// The projected operand.
    pub(crate) fn projected(self, w: &Scope<'g>, width: usize) -> Value<'g> {
        match self {
            AttentionOperand::Raw(x) => linear(x, w, width),
            AttentionOperand::Projected(x) => x,
        }
    }
}

/// Sizes of an attention: inner channels, heads and output channels.
#[derive(Clone, Copy)]
pub(crate) struct AttentionSize {
    pub(crate) width: usize,
    pub(crate) heads: usize,
    pub(crate) outputs: usize,
}

impl<'g> Attended<'g> {
    /// All operands raw.
    pub(crate) fn raw(query: Value<'g>, key: Value<'g>, value: Value<'g>) -> Self {
        Attended {
            query: AttentionOperand::Raw(query),
            key: AttentionOperand::Raw(key),
            value: AttentionOperand::Raw(value),
        }
    }

    /// Attention with projections `q_proj`, `k_proj`, `v_proj` and `out_proj`. Operands of batch one are projected once
    /// and shared by the whole batch.
    pub(crate) fn attend(self, w: &Scope<'g>, size: AttentionSize) -> Value<'g> {
        let query = self.query.projected(&w.at("q_proj"), size.width);
        let key = self.key.projected(&w.at("k_proj"), size.width);
        let value = self.value.projected(&w.at("v_proj"), size.width);
        let scale = 1.0 / ((size.width / size.heads.max(1)) as f32).sqrt();
        let [query, key, value] = same_batch([query, key, value]);
        let op = Attention::new(size.heads, scale);
        let mixed = AttentionInputs::new(query, key, value).attend(op);
        linear(mixed, &w.at("out_proj"), size.outputs)
    }
}

/// Repeats values of batch one to the largest batch among them; nothing is copied.
pub(crate) fn same_batch<'g>(values: [Value<'g>; 3]) -> [Value<'g>; 3] {
    let batch = values.iter().map(|value| value.dims::<3>()[0]).max().unwrap_or(1);
    values.map(|value| {
        let [own, tokens, channels] = value.dims();
        if own == batch { value } else { value.broadcast([batch, tokens, channels]) }
    })
}
