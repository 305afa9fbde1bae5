//! Cumulative sums along an axis.

use cutout_tensor::{Shape, TensorType};

use crate::cases::noise;
use crate::op::{expect_axis, expect_f32, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// Sum of each element of `x: f32` and all elements before it along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CumulativeSum {
    /// The axis summed along.
    pub axis: usize,
}

impl<'g> Value<'g> {
    /// Sum of each element and all elements before it along an axis.
    #[track_caller]
    pub fn cumulative_sum(self, axis: usize) -> Value<'g> {
        self.apply(CumulativeSum { axis }, &[])
    }
}

impl OpDef for CumulativeSum {
    const NAME: &'static str = "cumulative_sum";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x] = take(inputs)?;
        expect_f32("x", x)?;
        expect_axis(self.axis, x)?;
        Ok(x.clone())
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let shape = inputs[0].shape.clone();
        let stride = Shape::new(&shape[self.axis + 1..]).elements();
        let mut values = inputs[0].real().to_vec();
        for i in 0..values.len() {
            let index = i / stride % shape[self.axis];
            if index > 0 {
                values[i] = values[i - stride] + values[i];
            }
        }
        DenseTensor::from_real(shape, values)
    }

    fn cases() -> Vec<Case> {
        let case =
            |name, axis, shape: &[usize]| Case::new(name, CumulativeSum { axis }, [noise(shape)]);
        vec![
            case("last", 1, &[5, 37]),
            case("first", 0, &[37, 5]),
            case("middle", 1, &[2, 19, 3]),
            case("long", 0, &[1031]),
            case("one", 2, &[2, 3, 1]),
            case("empty", 1, &[3, 0]),
        ]
    }
}
