//! Choice between two tensors by a condition.

use cutout_tensor::{DType, TensorType, Tolerance};

use super::checks::countable;
use crate::cases::{bools, integers, noise};
use crate::dense::broadcast_position;
use crate::op::{broadcast_all, expect_bool, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// `a` where `condition: bool` holds, else `b`; the three broadcast to a common shape, `a` and `b` have one element
/// type (any).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Select;

impl<'g> Value<'g> {
    /// `a` where this condition holds, else `b`.
    #[track_caller]
    pub fn select(self, a: Value<'g>, b: Value<'g>) -> Value<'g> {
        self.apply(Select, &[a, b])
    }
}

impl OpDef for Select {
    const NAME: &'static str = "select";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [condition, a, b] = take(inputs)?;
        expect_bool("condition", condition)?;
        if b.dtype != a.dtype {
            let expected = "of the element type of a";
            return Err(OpError::Type { input: "b", expected, found: b.clone() });
        }
        countable(TensorType::new(a.dtype, broadcast_all(inputs)?))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let [condition, a, b] = [inputs[0], inputs[1], inputs[2]];
        let both = a.shape.broadcast(&b.shape);
        let shape = both
            .and_then(|both| both.broadcast(&condition.shape))
            .expect("inference has checked the shapes");
        let at = |i, x: &DenseTensor<T>| broadcast_position(i, &x.shape, &shape);
        DenseTensor::choose(&[a, b], shape.clone(), |i| {
            if condition.bool()[at(i, condition)] { (0, at(i, a)) } else { (1, at(i, b)) }
        })
    }

    fn cases() -> Vec<Case> {
        let case = |name, inputs: [_; 3]| Case::new(name, Select, inputs).within(Tolerance::Exact);
        let half = || noise([3, 5]).of(DType::F16);
        vec![
            case("same_shape", [bools([3, 37]), noise([3, 37]), noise([3, 37])]),
            case("numbers", [bools([3, 37]), noise([]), noise([])]),
            case("rows", [bools([5, 1]), noise([5, 19]), noise([19])]),
            case("every_way", [bools([2, 1, 1]), noise([3, 1]), noise([5])]),
            case("integers", [bools([9]), integers([9], -9, 9), integers([], -9, 9)]),
            case("halves", [bools([3, 5]), half(), half()]),
            case("bools", [bools([7]), bools([7]), bools([7])]),
            case("empty", [bools([0, 4]), noise([4]), noise([1, 4])]),
        ]
    }
}
