//! Repetition of a tensor to a larger shape.

use cutout_tensor::{DType, Shape, TensorType, Tolerance};

use super::checks::countable;
use crate::cases::{bools, integers, noise};
use crate::dense::broadcast_position;
use crate::op::{ViewRule, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// `x` with its axes of length one, and missing leading axes, repeated to `shape` (NumPy's rule). Any element type.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Broadcast {
    /// Axes of the result.
    pub shape: Vec<usize>,
}

impl<'g> Value<'g> {
    /// Repeated to a larger shape.
    #[track_caller]
    pub fn broadcast(self, shape: impl Into<Shape>) -> Value<'g> {
        self.apply(Broadcast { shape: shape.into().to_vec() }, &[])
    }
}

impl OpDef for Broadcast {
    const NAME: &'static str = "broadcast";
    const VIEW: Option<ViewRule<Self>> = Some(|op, layout| Some(layout.broadcast(&op.shape)));

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x] = take(inputs)?;
        let shape = Shape::from(&self.shape[..]);
        if x.shape.broadcast(&shape).as_ref() != Some(&shape) {
            return Err(OpError::Shape(format!("{x} does not broadcast to {shape}")));
        }
        countable(TensorType::new(x.dtype, shape))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let x = inputs[0];
        x.gather(&self.shape[..], |i| broadcast_position(i, &x.shape, &self.shape))
    }

    fn flops(&self, _: &[&TensorType], _: &TensorType) -> u64 {
        0
    }

    fn cases() -> Vec<Case> {
        let case = |name, shape: &[usize], input| {
            Case::new(name, Broadcast { shape: shape.to_vec() }, [input]).within(Tolerance::Exact)
        };
        vec![
            case("scalar", &[3, 5], noise([])),
            case("row", &[3, 19], noise([19])),
            case("column", &[5, 19], noise([5, 1])),
            case("both_ways", &[2, 3, 5, 7], noise([3, 1, 7])),
            case("itself", &[3, 4], noise([3, 4])),
            case("to_nothing", &[0, 4], noise([1, 4])),
            case("integers", &[2, 3], integers([3], -9, 9)),
            case("halves", &[2, 3], noise([3]).of(DType::F16)),
            case("bools", &[2, 3], bools([2, 1])),
        ]
    }
}
