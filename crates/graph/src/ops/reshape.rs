//! The same elements under another shape.

use cutout_tensor::{Shape, TensorType, Tolerance};

use crate::cases::noise;
use crate::op::{ViewRule, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// The same elements, in row-major order, under another shape.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Reshape {
    /// The new axes.
    pub shape: Vec<usize>,
}

impl<'g> Value<'g> {
    /// The same elements under another shape.
    #[track_caller]
    pub fn reshape(self, shape: impl Into<Shape>) -> Value<'g> {
        self.apply(Reshape { shape: shape.into().to_vec() }, &[])
    }
}

impl OpDef for Reshape {
    const NAME: &'static str = "reshape";
    const VIEW: Option<ViewRule<Self>> = Some(|op, layout| layout.reshape(&op.shape));

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x] = take(inputs)?;
        let result = TensorType::new(x.dtype, self.shape.clone());
        let (before, after) = (x.shape.checked_len(), result.shape.checked_len());
        match (before, after) {
            (Ok(before), Ok(after)) if before == after => Ok(result),
            (Ok(before), Ok(after)) => {
                Err(OpError::Shape(format!("{x} has {before} elements, {result} has {after}")))
            }
            (Err(error), _) | (_, Err(error)) => Err(OpError::Shape(error.to_string())),
        }
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        inputs[0].gather(Shape::from(&self.shape[..]), |i| i)
    }

    fn flops(&self, _: &[&TensorType], _: &TensorType) -> u64 {
        0
    }

    fn cases() -> Vec<Case> {
        let case = |name, shape: &[usize], input| {
            Case::new(name, Reshape { shape: shape.to_vec() }, [input]).within(Tolerance::Exact)
        };
        vec![
            case("flatten", &[24], noise([2, 3, 4])),
            case("split", &[2, 3, 2, 2], noise([6, 4])),
            case("scalar", &[], noise([1, 1])),
            case("empty", &[0, 7], noise([3, 0])),
        ]
    }
}
