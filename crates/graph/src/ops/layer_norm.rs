//! Normalisation over one axis.

use cutout_tensor::{Shape, TensorType};

use super::checks::expect_epsilon;
use crate::cases::noise;
use crate::op::{expect_f32, expect_shape, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// `(x - mean) / sqrt(variance + epsilon) * weight + bias` with mean and biased variance over one axis.
///
/// `x: f32[.., length, ..]`, `weight` and `bias: f32[length]`. The axis has at least one element.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct LayerNorm {
    /// The axis that is normalised; the last one for channel-last values.
    pub axis: usize,
    /// Added to the variance; finite, not negative.
    pub epsilon: f32,
}

impl<'g> Value<'g> {
    /// Normalisation over the last axis; see [`LayerNorm`].
    #[track_caller]
    pub fn layer_norm(self, weight: Value<'g>, bias: Value<'g>, epsilon: f32) -> Value<'g> {
        let axis = self.shape().rank().saturating_sub(1);
        self.apply(LayerNorm { axis, epsilon }, &[weight, bias])
    }
}

impl OpDef for LayerNorm {
    const NAME: &'static str = "layer_norm";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        expect_epsilon(self.epsilon)?;
        let [x, weight, bias] = take(inputs)?;
        for (name, ty) in [("x", x), ("weight", weight), ("bias", bias)] {
            expect_f32(name, ty)?;
        }
        let axis = self.axis;
        let length = match x.shape.get(axis) {
            None => return Err(OpError::Shape(format!("there is no axis {axis} in {x}"))),
            Some(0) => return Err(OpError::Shape(format!("axis {axis} of {x} is empty"))),
            Some(&length) => length,
        };
        expect_shape("weight", weight, &[length])?;
        expect_shape("bias", bias, &[length])?;
        Ok(x.clone())
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let (x, weight, bias) = (inputs[0], inputs[1].real(), inputs[2].real());
        let length = x.shape[self.axis];
        let inner = Shape::new(&x.shape[self.axis + 1..]).elements();
        let mut values = x.real().to_vec();
        for line in 0..values.len() / length {
            // Line `inner * outer + offset` starts there and steps by `inner`.
            let start = line / inner * inner * length + line % inner;
            let at = |i: usize| start + i * inner;
            let statistics = Statistics::of((0..length).map(|i| values[at(i)]));
            for i in 0..length {
                values[at(i)] =
                    statistics.normalise(values[at(i)], self.epsilon) * weight[i] + bias[i];
            }
        }
        DenseTensor::from_real(x.shape.clone(), values)
    }

    fn flops(&self, _: &[&TensorType], output: &TensorType) -> u64 {
        (output.shape.elements() as u64).saturating_mul(8)
    }

    fn cases() -> Vec<Case> {
        let case = |name, axis: usize, epsilon, x: &[usize]| {
            let vector = [x[axis]];
            Case::new(name, LayerNorm { axis, epsilon }, [noise(x), noise(vector), noise(vector)])
        };
        vec![
            case("one_row", 0, 1e-5, &[7]),
            case("tokens", 2, 1e-6, &[2, 9, 33]),
            case("wider_than_tiles", 1, 1e-5, &[5, 1100]),
            case("pixels", 3, 1e-6, &[2, 5, 7, 64]),
            case("channels_first", 1, 1e-6, &[2, 17, 5, 7]),
            case("outermost_axis", 0, 1e-5, &[6, 35]),
            case("large_epsilon", 1, 2.0, &[3, 16]),
            case("two_elements", 1, 1e-5, &[40, 2]),
            case("no_rows", 1, 1e-5, &[0, 4]),
        ]
    }
}

/// Mean and biased variance of some values.
pub(super) struct Statistics<T> {
    mean: T,
    variance: T,
}

impl<T: Real> Statistics<T> {
    /// The statistics of at least one value.
    pub(super) fn of(values: impl Iterator<Item = T> + Clone) -> Self {
        let average = |values: &mut dyn Iterator<Item = T>| {
            let (mut sum, mut count) = (T::ZERO, 0usize);
            for value in values {
                sum += value;
                count += 1;
            }
            sum / T::of(count as f64)
        };
        let mean = average(&mut values.clone());
        let variance = average(&mut values.map(|value| (value - mean) * (value - mean)));
        Statistics { mean, variance }
    }

    /// `(value - mean) / sqrt(variance + epsilon)`.
    pub(super) fn normalise(&self, value: T, epsilon: f32) -> T {
        (value - self.mean) / (self.variance + T::of(f64::from(epsilon))).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_by_hand() {
        // Mean 3, variance 8: with epsilon 1 the deviation is 3.
        let x = DenseTensor::from_real([1, 3], vec![3.0, 3.0 - 12f64.sqrt(), 3.0 + 12f64.sqrt()]);
        let weight = DenseTensor::from_real([3], vec![1.0, 3.0, 6.0]);
        let bias = DenseTensor::from_real([3], vec![5.0, 0.0, 1.0]);
        let output = LayerNorm { axis: 1, epsilon: 1.0 }.reference(&[&x, &weight, &bias]);
        let expected = [5.0, -(12f64.sqrt()), 2.0 * 12f64.sqrt() + 1.0];
        for (actual, expected) in output.real().iter().zip(expected) {
            assert!((actual - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn attributes_and_shapes_that_do_not_fit_are_refused() {
        let refusal = |axis, epsilon, x: &[usize], vector: usize| {
            let (x, vector) = (TensorType::f32(x), TensorType::f32([vector]));
            let op = LayerNorm { axis, epsilon };
            op.infer(&[&x, &vector, &vector]).unwrap_err().to_string()
        };
        for epsilon in [f32::NAN, f32::INFINITY, -1e-6] {
            assert!(refusal(1, epsilon, &[2, 3], 3).contains("epsilon must be finite"));
        }
        assert_eq!(refusal(2, 0.0, &[2, 3], 3), "there is no axis 2 in f32[2, 3]");
        assert_eq!(refusal(0, 0.0, &[], 1), "there is no axis 0 in f32[]");
        assert_eq!(refusal(1, 0.0, &[2, 0], 0), "axis 1 of f32[2, 0] is empty");
        assert_eq!(refusal(1, 0.0, &[2, 3], 2), "weight must have shape [3], got f32[2]");
    }
}
