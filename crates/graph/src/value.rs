//! Handles to nodes, and the methods model code is written with.

mod arithmetic;

use std::ops::Range;

use cutout_tensor::{DType, Shape, TensorType};

use crate::graph::NodeId;
use crate::ops::{
    ArgMax, Attention, AttentionInputs, Broadcast, Cast, Concat, Conv2d, ConvTranspose2d,
    CumulativeSum, Epilogue, Gather, GridSample, GroupNorm, LayerNorm, Linear, MatMul, MaxPool2d,
    Pad, Permute, Reduce, ReduceKind, Reshape, Resize, ResizeMode, RoiAlign, Rope, Select, Slice,
    Softmax,
};
use crate::{Builder, Op};

/// A value of the graph being built: a small handle, free to copy.
#[derive(Clone, Copy)]
pub struct Value<'g> {
    builder: &'g Builder,
    id: NodeId,
}

impl<'g> Value<'g> {
    pub(crate) fn new(builder: &'g Builder, id: NodeId) -> Self {
        Value { builder, id }
    }

    pub(crate) fn id(self) -> NodeId {
        self.id
    }

    /// The builder this value belongs to.
    pub fn builder(self) -> &'g Builder {
        self.builder
    }

    /// Element type and shape.
    pub fn ty(self) -> TensorType {
        self.builder.ty(self.id)
    }

    /// Lengths of the axes.
    pub fn shape(self) -> Shape {
        self.ty().shape
    }

    /// The axes as an array; another rank is an error of the model code, and gives ones.
    #[track_caller]
    pub fn dims<const N: usize>(self) -> [usize; N] {
        let ty = self.ty();
        match <[usize; N]>::try_from(&ty.shape[..]) {
            Ok(axes) => axes,
            Err(_) => {
                self.builder.fail(format!("expected {N} axes, got {ty}"));
                [1; N]
            }
        }
    }

    /// Names this value as a stage of the model and returns it; see [`Builder::finish_with_stages`].
    pub fn stage(self, name: &str) -> Value<'g> {
        self.builder.stage(name, self);
        self
    }

    /// Adds any op with this value as its first input.
    #[track_caller]
    pub fn apply(self, op: impl Into<Op>, others: &[Value<'g>]) -> Value<'g> {
        let inputs: Vec<Value<'g>> = std::iter::once(self).chain(others.iter().copied()).collect();
        self.builder.op(op, &inputs)
    }

    /// `x · weightᵀ` over the last axis; see [`Linear`].
    #[track_caller]
    pub fn linear(self, weight: Value<'g>) -> Value<'g> {
        self.apply(Linear { epilogue: Epilogue::NONE }, &[weight])
    }

    /// The same elements under another shape.
    #[track_caller]
    pub fn reshape(self, shape: impl Into<Shape>) -> Value<'g> {
        self.apply(Reshape { shape: shape.into().to_vec() }, &[])
    }
}

/// Whether axes that were reduced to one number stay, with length one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduced {
    /// The axes stay, with length one.
    Keep,
    /// The axes are gone.
    Drop,
}

impl<'g> Value<'g> {
    /// The axes in another order: axis `i` of the result is axis `axes[i]`.
    #[track_caller]
    pub fn permute(self, axes: impl Into<Vec<usize>>) -> Value<'g> {
        self.apply(Permute { axes: axes.into() }, &[])
    }

    /// The last two axes exchanged.
    #[track_caller]
    pub fn transposed(self) -> Value<'g> {
        let ty = self.ty();
        let Some(last) = ty.rank().checked_sub(1).filter(|&last| last > 0) else {
            return self.builder.fail(format!("transposed needs two axes, got {ty}"));
        };
        let mut axes: Vec<usize> = (0..=last).collect();
        axes.swap(last - 1, last);
        self.permute(axes)
    }

    /// The indices `range` of one axis.
    #[track_caller]
    pub fn slice(self, axis: usize, range: Range<usize>) -> Value<'g> {
        let ty = self.ty();
        if axis >= ty.rank() {
            return self.builder.fail(format!("slice axis {axis} is outside {ty}"));
        }
        let (mut starts, mut ends) = (vec![0; ty.rank()], ty.shape.to_vec());
        (starts[axis], ends[axis]) = (range.start, range.end);
        self.apply(Slice { starts, ends, steps: vec![1; ty.rank()] }, &[])
    }

    /// `N` parts of equal length along an axis.
    #[track_caller]
    pub fn split<const N: usize>(self, axis: usize) -> [Value<'g>; N] {
        let ty = self.ty();
        let length = ty.shape.get(axis).copied();
        let Some(part) = length.and_then(|length| length.checked_div(N)) else {
            return [self.builder.fail(format!("{ty} has no {N} parts along axis {axis}")); N];
        };
        if part * N != ty.shape[axis] {
            return [self.builder.fail(format!("axis {axis} of {ty} has no {N} equal parts")); N];
        }
        let mut parts = [self; N];
        for (i, value) in parts.iter_mut().enumerate() {
            *value = self.slice(axis, i * part..(i + 1) * part);
        }
        parts
    }

    /// The `N` slices along an axis of length `N`, without that axis.
    #[track_caller]
    pub fn unstack<const N: usize>(self, axis: usize) -> [Value<'g>; N] {
        let ty = self.ty();
        if ty.shape.get(axis) != Some(&N) {
            return [self.builder.fail(format!("axis {axis} of {ty} has not length {N}")); N];
        }
        let mut shape = ty.shape.to_vec();
        shape.remove(axis);
        let mut parts = self.split(axis);
        for part in &mut parts {
            *part = part.reshape(&shape[..]);
        }
        parts
    }

    /// The parts one after another along an axis.
    ///
    /// # Panics
    /// Without parts: nothing of nothing has no type.
    #[track_caller]
    pub fn concat(parts: &[Value<'g>], axis: usize) -> Value<'g> {
        let (first, others) = parts.split_first().expect("concat is given at least one part");
        first.apply(Concat { axis }, others)
    }

    /// With `before[axis]` elements of `value` in front of each axis and `after[axis]` behind it.
    #[track_caller]
    pub fn pad(
        self,
        before: impl Into<Vec<usize>>,
        after: impl Into<Vec<usize>>,
        value: f32,
    ) -> Value<'g> {
        self.apply(Pad { before: before.into(), after: after.into(), value }, &[])
    }

    /// Repeated to a larger shape.
    #[track_caller]
    pub fn broadcast(self, shape: impl Into<Shape>) -> Value<'g> {
        self.apply(Broadcast { shape: shape.into().to_vec() }, &[])
    }

    /// The same values in another element type.
    #[track_caller]
    pub fn cast(self, dtype: DType) -> Value<'g> {
        self.apply(Cast { dtype }, &[])
    }

    /// The rows of this table that `indices` name; see [`Gather`].
    #[track_caller]
    pub fn gather(self, indices: Value<'g>) -> Value<'g> {
        self.apply(Gather, &[indices])
    }

    /// Sums over axes.
    #[track_caller]
    pub fn sum(self, axes: impl Into<Vec<usize>>, reduced: Reduced) -> Value<'g> {
        self.reduce(ReduceKind::Sum, axes.into(), reduced)
    }

    /// Means over axes.
    #[track_caller]
    pub fn mean(self, axes: impl Into<Vec<usize>>, reduced: Reduced) -> Value<'g> {
        self.reduce(ReduceKind::Mean, axes.into(), reduced)
    }

    /// Largest elements over axes.
    #[track_caller]
    pub fn max(self, axes: impl Into<Vec<usize>>, reduced: Reduced) -> Value<'g> {
        self.reduce(ReduceKind::Maximum, axes.into(), reduced)
    }

    /// Smallest elements over axes.
    #[track_caller]
    pub fn min(self, axes: impl Into<Vec<usize>>, reduced: Reduced) -> Value<'g> {
        self.reduce(ReduceKind::Minimum, axes.into(), reduced)
    }

    #[track_caller]
    fn reduce(self, kind: ReduceKind, axes: Vec<usize>, reduced: Reduced) -> Value<'g> {
        self.apply(Reduce { kind, axes, keep: reduced == Reduced::Keep }, &[])
    }

    /// Index of the largest element along an axis, which is gone from the result.
    #[track_caller]
    pub fn arg_max(self, axis: usize) -> Value<'g> {
        self.apply(ArgMax { axis }, &[])
    }

    /// Each element plus all before it along an axis.
    #[track_caller]
    pub fn cumulative_sum(self, axis: usize) -> Value<'g> {
        self.apply(CumulativeSum { axis }, &[])
    }

    /// `a` where this condition holds, else `b`.
    #[track_caller]
    pub fn select(self, a: Value<'g>, b: Value<'g>) -> Value<'g> {
        self.apply(Select, &[a, b])
    }

    /// The largest pixel of each window; see [`MaxPool2d`].
    #[track_caller]
    pub fn max_pool2d(
        self,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
    ) -> Value<'g> {
        self.apply(MaxPool2d { kernel, stride, padding }, &[])
    }

    /// The image in another height and width; see [`Resize`].
    #[track_caller]
    pub fn resize(self, mode: ResizeMode, size: [usize; 2]) -> Value<'g> {
        self.apply(Resize { mode, antialias: false, size }, &[])
    }

    /// The image in another height and width, averaging all pixels that shrinking covers; see [`Resize`].
    #[track_caller]
    pub fn resize_antialiased(self, mode: ResizeMode, size: [usize; 2]) -> Value<'g> {
        self.apply(Resize { mode, antialias: true, size }, &[])
    }

    /// Boxes of this feature map, each resampled to one size; see [`RoiAlign`].
    #[track_caller]
    pub fn roi_align(self, boxes: Value<'g>, options: RoiAlign) -> Value<'g> {
        self.apply(options, &[boxes])
    }

    /// This image at the positions of `grid`; see [`GridSample`].
    #[track_caller]
    pub fn grid_sample(self, grid: Value<'g>) -> Value<'g> {
        self.apply(GridSample, &[grid])
    }
}

impl<'g> Value<'g> {
    /// Attention of these queries, without mask, bias, rotation or padding; see [`AttentionInputs::attend`] for those.
    #[track_caller]
    pub fn attention(self, key: Value<'g>, value: Value<'g>, op: Attention) -> Value<'g> {
        AttentionInputs::new(self, key, value).attend(op)
    }

    /// Convolution of `[batch, height, width, channels]`; see [`Conv2d`].
    #[track_caller]
    pub fn conv2d(self, weight: Value<'g>, op: Conv2d) -> Value<'g> {
        self.apply(op, &[weight])
    }

    /// Transposed convolution of `[batch, height, width, channels]`; see [`ConvTranspose2d`].
    #[track_caller]
    pub fn conv_transpose2d(self, weight: Value<'g>, op: ConvTranspose2d) -> Value<'g> {
        self.apply(op, &[weight])
    }

    /// Normalisation of `[batch, .., channels]` over groups of channels; see [`GroupNorm`].
    #[track_caller]
    pub fn group_norm(self, weight: Value<'g>, bias: Value<'g>, op: GroupNorm) -> Value<'g> {
        self.apply(op, &[weight, bias])
    }

    /// Normalisation over the last axis; see [`LayerNorm`].
    #[track_caller]
    pub fn layer_norm(self, weight: Value<'g>, bias: Value<'g>, epsilon: f32) -> Value<'g> {
        let axis = self.shape().rank().saturating_sub(1);
        self.apply(LayerNorm { axis, epsilon }, &[weight, bias])
    }

    /// Matrix product over the last two axes; see [`MatMul`].
    #[track_caller]
    pub fn matmul(self, right: Value<'g>) -> Value<'g> {
        self.apply(MatMul::PLAIN, &[right])
    }

    /// Matrix product with the transpose of `right: [.., N, K]`; see [`MatMul`].
    #[track_caller]
    pub fn matmul_transposed(self, right: Value<'g>) -> Value<'g> {
        self.apply(MatMul::TRANSPOSED, &[right])
    }

    /// Rotation of every token of `[.., tokens, width]`; see [`Rope`].
    #[track_caller]
    pub fn rope(self, cos: Value<'g>, sin: Value<'g>) -> Value<'g> {
        self.apply(Rope { tail: 0 }, &[cos, sin])
    }

    /// Exponentials over the last axis that sum to one.
    #[track_caller]
    pub fn softmax(self) -> Value<'g> {
        self.apply(Softmax, &[])
    }
}

impl<'g> AttentionInputs<Value<'g>> {
    /// Adds an attention that takes exactly these inputs; see [`Attention`].
    #[track_caller]
    pub fn attend(self, op: Attention) -> Value<'g> {
        self.query.builder.op(op, &self.into_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(model: impl for<'g> Fn(Value<'g>) -> Vec<Value<'g>>) -> String {
        let builder = Builder::new();
        model(builder.input("x", DType::F32, [6, 2]));
        builder.finish().unwrap_err().message
    }

    #[test]
    fn parts_of_an_axis() {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [2, 6, 5]);
        let halves: [Value<'_>; 3] = x.split(1);
        assert!(halves.iter().all(|half| half.shape()[..] == [2, 2, 5]));
        let [first, second] = x.unstack(0);
        assert_eq!(second.shape()[..], [6, 5]);
        let joined = Value::concat(&[first, second, first], 1).transposed();
        assert_eq!(joined.shape()[..], [15, 6]);
        assert_eq!(joined.max([0], Reduced::Keep).shape()[..], [1, 6]);
        assert_eq!(joined.max([0], Reduced::Drop).less(joined).ty(), joined.equal(joined).ty());
        assert!(builder.finish().is_ok());
    }

    #[test]
    fn wrong_parts_are_errors_of_the_model() {
        let split = failure(|x| x.split::<4>(0).into());
        assert_eq!(split, "axis 0 of f32[6, 2] has no 4 equal parts");
        let nowhere = failure(|x| x.split::<2>(7).into());
        assert_eq!(nowhere, "f32[6, 2] has no 2 parts along axis 7");
        assert_eq!(failure(|x| x.split::<0>(0).into()), "f32[6, 2] has no 0 parts along axis 0");
        let unstack = failure(|x| x.unstack::<3>(0).into());
        assert_eq!(unstack, "axis 0 of f32[6, 2] has not length 3");
        assert_eq!(failure(|x| vec![x.slice(2, 0..1)]), "slice axis 2 is outside f32[6, 2]");
        let flat = failure(|x| vec![x.reshape([12]).transposed()]);
        assert_eq!(flat, "transposed needs two axes, got f32[12]");
        let _: [Value<'_>; 1] = Builder::new().scalar(1.0).reshape([2]).split(0); // after an error
    }
}
