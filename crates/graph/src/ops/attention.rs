//! Multi-head attention with everything the models fuse into it: masks, separable biases, rotation, windows.

mod cases;
mod check;
mod reference;
#[cfg(test)]
mod tests;

use cutout_tensor::TensorType;

use super::checks::{expect_inputs, saturating_product};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// `softmax(scale * rope(q) · rope(k)ᵀ + bias) · v`, per batch and head.
///
/// Inputs in order, the optional ones as far as the attributes ask for them (see [`AttentionInputs`]):
///
/// | input | type |
/// |---|---|
/// | `query` | `f32[batch, queries, heads * width]` |
/// | `key` | `f32[batch, keys, heads * width]` |
/// | `value` | `f32[batch, keys, heads * value_width]` |
/// | key mask (`key_mask`) | `bool[batch, keys]`, true where the key takes part |
/// | bias rows, bias columns (`bias`) | `f32[batch, queries, heads, R]`, `f32[batch, queries, heads, C]` |
/// | query cos, query sin (`rope`) | `f32[query_positions, width / 2]` |
/// | key cos, key sin (`rope`) | `f32[key_positions, width / 2]` |
/// | padding key, padding value (`windows` with padding) | `f32[heads * width]`, `f32[heads * value_width]` |
///
/// Output `f32[batch, queries, heads * value_width]`. There is at least one key, and `width` and `value_width` are
/// at least 1; `batch` and `queries` may be 0.
///
/// A query all of whose keys are masked gives `NaN`, as PyTorch's softmax does. Masked keys must be finite: their
/// weight is 0, and whether a backend multiplies by it is its own choice.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Attention {
    /// Heads that the channels are split into.
    pub heads: usize,
    /// Factor on the products of queries and keys, not on the bias.
    pub scale: f32,
    /// Whether a key mask is among the inputs.
    pub key_mask: bool,
    /// Whether query `i` sees only the keys `j <= i + (keys - queries)`; then `keys >= queries`.
    pub causal: bool,
    /// Positional bias added to the scores.
    pub bias: Option<SeparableBias>,
    /// Rotation of queries and keys.
    pub rope: Option<AttentionRope>,
    /// Windows that queries and keys are cut into. Not with `key_mask`, `causal` or a `key_tail`.
    pub windows: Option<Windows>,
}

/// A bias that is a sum of one number per row and one per column of the grid the keys lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SeparableBias {
    /// How rows and columns are indexed.
    pub form: BiasForm,
    /// `[height, width]` of the keys, row-major; with windows, of the keys of one window.
    pub grid: [usize; 2],
}

/// How the inputs of a [`SeparableBias`] are indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum BiasForm {
    /// `R = height`, `C = width`: key `(y, x)` gets `rows[y] + columns[x]`.
    Absolute,
    /// SAM 1's decomposed relative positions; the queries lie on the grid of the keys. `R = 2 height - 1`,
    /// `C = 2 width - 1`: key `(ky, kx)` gets `rows[ky - qy + height - 1] + columns[kx - qx + width - 1]` for query
    /// `(qy, qx)`.
    Relative,
}

/// Rotation of queries and keys before their product, as [`Rope`](super::Rope), per head and with one table for all
/// heads.
///
/// Query `t` takes position `t % query_positions`; key `t` takes `t % key_positions` unless it is in the tail. The
/// rotated tokens are a multiple of the positions. With windows, `t` counts inside the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AttentionRope {
    /// Keys at the end that are not rotated.
    pub key_tail: usize,
}

/// Queries and keys, each row-major on a grid `[height, width]`, cut into windows: a query sees the keys of the
/// window with its own index. Both grids have the same number of windows along each axis.
///
/// Where a window reaches beyond the bottom or the right of the key grid, the missing positions take part as keys and
/// values equal to the padding rows, rotated and biased like real ones. Queries are never padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Windows {
    /// `[height, width]` of the queries.
    pub query_grid: [usize; 2],
    /// `[height, width]` of the keys.
    pub key_grid: [usize; 2],
    /// `[height, width]` of a window of queries.
    pub query_window: [usize; 2],
    /// `[height, width]` of a window of keys.
    pub key_window: [usize; 2],
}

impl Windows {
    /// Whether some window reaches beyond the key grid, so that the op takes a padding key and a padding value.
    pub fn has_padding(&self) -> bool {
        let remainder = |axis: usize| self.key_grid[axis].checked_rem(self.key_window[axis]);
        (0..2).any(|axis| remainder(axis).is_some_and(|rest| rest > 0))
    }

    /// Keys of one window, real and padding.
    pub(crate) fn keys(&self) -> usize {
        self.key_window[0].saturating_mul(self.key_window[1])
    }
}

/// The inputs of an [`Attention`] by name: types, tensors, or values of model code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionInputs<I> {
    /// `f32[batch, queries, heads * width]`.
    pub query: I,
    /// `f32[batch, keys, heads * width]`.
    pub key: I,
    /// `f32[batch, keys, heads * value_width]`.
    pub value: I,
    /// `bool[batch, keys]`.
    pub key_mask: Option<I>,
    /// Rows and columns, `f32[batch, queries, heads, R or C]`.
    pub bias: Option<[I; 2]>,
    /// Query cos, query sin, key cos, key sin, `f32[positions, width / 2]`.
    pub rope: Option<[I; 4]>,
    /// Padding key and padding value, `f32[channels]`.
    pub padding: Option<[I; 2]>,
}

impl<I> AttentionInputs<I> {
    /// Queries, keys and values alone.
    pub const fn new(query: I, key: I, value: I) -> Self {
        AttentionInputs { query, key, value, key_mask: None, bias: None, rope: None, padding: None }
    }

    /// The inputs in the order of the op.
    pub fn into_vec(self) -> Vec<I> {
        let AttentionInputs { query, key, value, key_mask, bias, rope, padding } = self;
        [query, key, value]
            .into_iter()
            .chain(key_mask)
            .chain(bias.into_iter().flatten())
            .chain(rope.into_iter().flatten())
            .chain(padding.into_iter().flatten())
            .collect()
    }
}

impl Attention {
    /// Attention of every query to every key, without bias or rotation.
    pub const fn new(heads: usize, scale: f32) -> Self {
        Attention {
            heads,
            scale,
            key_mask: false,
            causal: false,
            bias: None,
            rope: None,
            windows: None,
        }
    }

    /// Whether a padding key and a padding value are among the inputs.
    pub fn has_padding(&self) -> bool {
        self.windows.is_some_and(|windows| windows.has_padding())
    }

    /// Gives the inputs their names, or says how many there should be.
    pub fn name_inputs<I: Copy>(&self, inputs: &[I]) -> Result<AttentionInputs<I>, OpError> {
        let expected = 3
            + usize::from(self.key_mask)
            + 2 * usize::from(self.bias.is_some())
            + 4 * usize::from(self.rope.is_some())
            + 2 * usize::from(self.has_padding());
        expect_inputs(expected, inputs.len())?;
        let mut rest = inputs.iter().copied();
        let mut next = || rest.next().expect("the inputs were counted");
        Ok(AttentionInputs {
            query: next(),
            key: next(),
            value: next(),
            key_mask: self.key_mask.then(&mut next),
            bias: self.bias.map(|_| [next(), next()]),
            rope: self.rope.map(|_| [next(), next(), next(), next()]),
            padding: self.has_padding().then(|| [next(), next()]),
        })
    }

    /// Keys that one query meets, when there are `keys`.
    fn keys_met(&self, keys: usize) -> usize {
        self.windows.map_or(keys, |windows| windows.keys())
    }
}

impl<'g> Value<'g> {
    /// Attention of these queries, without mask, bias, rotation or padding; see [`AttentionInputs::attend`] for those.
    #[track_caller]
    pub fn attention(self, key: Value<'g>, value: Value<'g>, op: Attention) -> Value<'g> {
        AttentionInputs::new(self, key, value).attend(op)
    }
}

impl<'g> AttentionInputs<Value<'g>> {
    /// Adds an attention that takes exactly these inputs; see [`Attention`].
    #[track_caller]
    pub fn attend(self, op: Attention) -> Value<'g> {
        self.query.builder().op(op, &self.into_vec())
    }
}

impl OpDef for Attention {
    const NAME: &'static str = "attention";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        check::infer(self, inputs)
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let inputs = self.name_inputs(inputs).expect("inference counted the inputs");
        reference::attention(self, &inputs)
    }

    /// The two products, masked keys included; 2 per multiply-add.
    fn flops(&self, inputs: &[&TensorType], _: &TensorType) -> u64 {
        let [query, key, value] = [inputs[0], inputs[1], inputs[2]].map(|ty| &ty.shape[..]);
        let channels = query[2].saturating_add(value[2]);
        saturating_product(&[2, query[0], query[1], self.keys_met(key[1]), channels])
    }

    fn cases() -> Vec<Case> {
        cases::all()
    }
}
