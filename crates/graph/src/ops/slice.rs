//! Ranges of indices along each axis.

use std::ops::Range;

use cutout_tensor::{Shape, TensorType, Tolerance};

use crate::cases::{bools, integers, noise};
use crate::dense::{ravel, unravel};
use crate::op::{ViewRule, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// Every `steps[axis]`-th element of `starts[axis]..ends[axis]`, for each axis of `x`. Any element type.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Slice {
    /// First index of each axis.
    pub starts: Vec<usize>,
    /// Exclusive end of each axis.
    pub ends: Vec<usize>,
    /// Distance between the indices taken, at least 1.
    pub steps: Vec<usize>,
}

impl Slice {
    /// Lengths of the result's axes.
    fn shape(&self) -> Shape {
        let ranges = self.starts.iter().zip(&self.ends).zip(&self.steps);
        ranges.map(|((start, end), &step)| (end - start).div_ceil(step)).collect()
    }
}

impl<'g> Value<'g> {
    /// The indices `range` of one axis.
    #[track_caller]
    pub fn slice(self, axis: usize, range: Range<usize>) -> Value<'g> {
        let ty = self.ty();
        if axis >= ty.rank() {
            return self.builder().fail(format!("slice axis {axis} is outside {ty}"));
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
            return [self.builder().fail(format!("{ty} has no {N} parts along axis {axis}")); N];
        };
        if part * N != ty.shape[axis] {
            return [self.builder().fail(format!("axis {axis} of {ty} has no {N} equal parts")); N];
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
            return [self.builder().fail(format!("axis {axis} of {ty} has not length {N}")); N];
        }
        let mut shape = ty.shape.to_vec();
        shape.remove(axis);
        let mut parts = self.split(axis);
        for part in &mut parts {
            *part = part.reshape(&shape[..]);
        }
        parts
    }
}

impl OpDef for Slice {
    const NAME: &'static str = "slice";
    const VIEW: Option<ViewRule<Self>> =
        Some(|op, layout| Some(layout.slice(&op.starts, &op.ends, &op.steps)));

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x] = take(inputs)?;
        let rank = x.rank();
        if [&self.starts, &self.ends, &self.steps].iter().any(|given| given.len() != rank) {
            return Err(OpError::Attribute(format!("needs one range for each axis of {x}")));
        }
        for axis in 0..rank {
            let (start, end, step) = (self.starts[axis], self.ends[axis], self.steps[axis]);
            if start > end || end > x.shape[axis] {
                let message = format!("{start}..{end} of axis {axis} is outside {x}");
                return Err(OpError::Attribute(message));
            }
            if step == 0 {
                let message = format!("the step of axis {axis} must be at least 1");
                return Err(OpError::Attribute(message));
            }
        }
        Ok(TensorType::new(x.dtype, self.shape()))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let x = inputs[0];
        let shape = self.shape();
        x.gather(shape.clone(), |i| {
            let mut index = unravel(i, &shape);
            for (axis, position) in index.iter_mut().enumerate() {
                *position = self.starts[axis] + *position * self.steps[axis];
            }
            ravel(&index, &x.shape)
        })
    }

    fn flops(&self, _: &[&TensorType], _: &TensorType) -> u64 {
        0
    }

    fn cases() -> Vec<Case> {
        let case = |name, ranges: &[[usize; 3]], input| {
            let take = |which: usize| ranges.iter().map(|range| range[which]).collect();
            let slice = Slice { starts: take(0), ends: take(1), steps: take(2) };
            Case::new(name, slice, [input]).within(Tolerance::Exact)
        };
        vec![
            case("rows", &[[2, 5, 1], [0, 37, 1]], noise([7, 37])),
            case("columns", &[[0, 7, 1], [3, 20, 1]], noise([7, 37])),
            case("middle", &[[0, 2, 1], [1, 4, 1], [0, 5, 1]], noise([2, 5, 5])),
            case("every_second", &[[0, 5, 2], [1, 9, 2], [0, 3, 1]], noise([5, 9, 3])),
            case("step_past_the_end", &[[1, 4, 7]], noise([5])),
            case("everything", &[[0, 3, 1]], noise([3])),
            case("scalar", &[], noise([])),
            case("nothing", &[[2, 2, 1], [0, 4, 3]], noise([3, 4])),
            case("integers", &[[1, 8, 3]], integers([9], -9, 9)),
            case("bools", &[[1, 8, 3]], bools([9])),
        ]
    }
}
