//! Softmax over the last axis.

use cutout_tensor::{TensorType, Tolerance};

use crate::cases::{noise, uniform, values};
use crate::op::{expect_f32, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// `exp(x - max) / sum(exp(x - max))` over the last axis of `f32[.., length]`.
///
/// Minus infinity gives 0. A row of only minus infinity, or with a `NaN` or plus infinity, gives `NaN` everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Softmax;

impl<'g> Value<'g> {
    /// Softmax over the last axis.
    #[track_caller]
    pub fn softmax(self) -> Value<'g> {
        self.apply(Softmax, &[])
    }
}

impl OpDef for Softmax {
    const NAME: &'static str = "softmax";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x] = take(inputs)?;
        expect_f32("x", x)?;
        if x.rank() == 0 {
            return Err(OpError::Shape(format!("x needs at least 1 axis, got {x}")));
        }
        Ok(x.clone())
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let mut values = inputs[0].real().to_vec();
        values.chunks_mut(inputs[0].shape.last_axis().max(1)).for_each(softmax_row);
        DenseTensor::from_real(inputs[0].shape.clone(), values)
    }

    fn flops(&self, _: &[&TensorType], output: &TensorType) -> u64 {
        (output.shape.elements() as u64).saturating_mul(5)
    }

    fn cases() -> Vec<Case> {
        let lowest = f64::NEG_INFINITY;
        let masked = [1.0, lowest, 2.0, lowest, lowest, lowest, 0.5, lowest, lowest];
        let cases = [
            Case::new("one_row", Softmax, [noise([7])]),
            Case::new("one_element", Softmax, [noise([5, 1])]),
            Case::new("scores", Softmax, [noise([2, 3, 16, 16])]),
            Case::new("odd_rows", Softmax, [noise([3, 5, 37])]),
            Case::new("wider_than_a_warp", Softmax, [noise([4, 1031])]),
            Case::new("large_values", Softmax, [uniform([4, 65], -90.0, 90.0)]),
            Case::new("masked", Softmax, [values(TensorType::f32([3, 3]), &masked)]),
            Case::new("no_rows", Softmax, [noise([0, 4])]),
            Case::new("no_length", Softmax, [noise([3, 0])]),
        ];
        cases.into_iter().map(|case| case.within(Tolerance::FastMath)).collect()
    }
}

/// Replaces one row by its softmax.
pub(super) fn softmax_row<T: Real>(row: &mut [T]) {
    let largest = row.iter().fold(T::LOWEST, |largest, &x| largest.maximum(x));
    let mut sum = T::ZERO;
    for x in &mut *row {
        *x = (*x - largest).exp();
        sum += *x;
    }
    row.iter_mut().for_each(|x| *x = *x / sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinities_follow_the_contract() {
        let softmax = |row: [f64; 3]| {
            let output = Softmax.reference(&[&DenseTensor::from_real([3], row.to_vec())]);
            output.real().to_vec()
        };
        let lowest = f64::NEG_INFINITY;
        assert_eq!(softmax([lowest, 3.0, lowest]), [0.0, 1.0, 0.0]);
        for row in [[lowest; 3], [1.0, f64::NAN, 2.0], [1.0, f64::INFINITY, 2.0]] {
            assert!(softmax(row).iter().all(|x| x.is_nan()));
        }
    }

    #[test]
    fn a_scalar_is_refused() {
        let error = Softmax.infer(&[&TensorType::f32([])]).unwrap_err();
        assert_eq!(error.to_string(), "x needs at least 1 axis, got f32[]");
    }
}
