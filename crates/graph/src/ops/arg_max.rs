//! Index of the largest element along an axis.

use cutout_tensor::{DType, Shape, TensorType, Tolerance};

use super::checks::countable;
use crate::cases::{noise, values};
use crate::op::{expect_axis, expect_f32, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// Index of the largest element along an axis of `x: f32`, as `i64`; the result has no such axis.
/// Of equal elements the first counts; a `NaN` is larger than every number, as in PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ArgMax {
    /// The axis searched along.
    pub axis: usize,
}

impl ArgMax {
    fn shape(self, x: &Shape) -> Shape {
        let (before, after) = (&x[..self.axis], &x[self.axis + 1..]);
        before.iter().chain(after).copied().collect()
    }
}

impl<'g> Value<'g> {
    /// Index of the largest element along an axis; the result has no such axis.
    #[track_caller]
    pub fn arg_max(self, axis: usize) -> Value<'g> {
        self.apply(ArgMax { axis }, &[])
    }
}

impl OpDef for ArgMax {
    const NAME: &'static str = "arg_max";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x] = take(inputs)?;
        expect_f32("x", x)?;
        expect_axis(self.axis, x)?;
        if x.shape[self.axis] == 0 {
            let message = format!("axis {} of {x} has no largest element", self.axis);
            return Err(OpError::Shape(message));
        }
        countable(TensorType::new(DType::I64, self.shape(&x.shape)))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let x = inputs[0];
        let length = x.shape[self.axis];
        let stride = Shape::new(&x.shape[self.axis + 1..]).elements();
        let shape = self.shape(&x.shape);
        let largest = |i: usize| {
            let start = i / stride * stride * length + i % stride;
            let at = |index: usize| x.real()[start + index * stride];
            let mut best = 0;
            for index in 1..length {
                let larger = at(index) > at(best) || at(index).is_nan();
                if larger && !at(best).is_nan() {
                    best = index;
                }
            }
            best as i64
        };
        let found = (0..shape.elements()).map(largest).collect();
        DenseTensor::from_int(shape, found)
    }

    fn flops(&self, inputs: &[&TensorType], _: &TensorType) -> u64 {
        inputs[0].shape.elements() as u64
    }

    fn cases() -> Vec<Case> {
        let case =
            |name, axis, input| Case::new(name, ArgMax { axis }, [input]).within(Tolerance::Exact);
        let ties = [1.0, 3.0, 3.0, f64::NAN, 5.0, f64::NAN, -7.0, -7.0, -7.0];
        vec![
            case("last", 1, noise([5, 37])),
            case("first", 0, noise([37, 5])),
            case("middle", 1, noise([3, 17, 4])),
            case("vector", 0, noise([1031])),
            case("ties_and_nan", 1, values(TensorType::f32([3, 3]), &ties)),
            case("one", 2, noise([2, 3, 1])),
            case("no_rows", 1, noise([0, 4])),
        ]
    }
}
