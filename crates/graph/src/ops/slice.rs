//! A part of a tensor.

use cutout_tensor::{Shape, TensorType, Tolerance};

use crate::cases::{bools, integers, noise};
use crate::op::take;
use crate::plain::{ravel, unravel};
use crate::{Case, OpDef, OpError, Plain, Real};

/// Every `steps[axis]`-th element of `starts[axis]..ends[axis]`, for each axis of `x`. Any element type.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Slice {
    /// First index of each axis.
    pub starts: Vec<usize>,
    /// Bound of each axis that is not reached.
    pub ends: Vec<usize>,
    /// Distance between neighbours, at least 1.
    pub steps: Vec<usize>,
}

impl Slice {
    /// Lengths of the result's axes.
    fn shape(&self) -> Shape {
        let ranges = self.starts.iter().zip(&self.ends).zip(&self.steps);
        ranges.map(|((start, end), &step)| (end - start).div_ceil(step)).collect()
    }
}

impl OpDef for Slice {
    const NAME: &'static str = "slice";

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

    fn reference<T: Real>(&self, inputs: &[&Plain<T>]) -> Plain<T> {
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
