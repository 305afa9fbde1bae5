//! Normalisation over groups of channels.

use cutout_tensor::{Shape, TensorType};

use super::checks::{expect_epsilon, expect_positive};
use super::layer_norm::Statistics;
use crate::cases::noise;
use crate::op::{expect_f32, expect_shape, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// `(x - mean) / sqrt(variance + epsilon) * weight + bias`, channel-last.
///
/// `x: f32[batch, .., channels]`, `weight` and `bias: f32[channels]`. Mean and biased variance are those of one image
/// and one group: all middle axes and `channels / groups` neighbouring channels.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct GroupNorm {
    /// Groups that the channels are split into.
    pub groups: usize,
    /// Added to the variance; finite, not negative.
    pub epsilon: f32,
}

impl<'g> Value<'g> {
    /// Normalisation of `[batch, .., channels]` over groups of channels; see [`GroupNorm`].
    #[track_caller]
    pub fn group_norm(self, weight: Value<'g>, bias: Value<'g>, op: GroupNorm) -> Value<'g> {
        self.apply(op, &[weight, bias])
    }
}

impl OpDef for GroupNorm {
    const NAME: &'static str = "group_norm";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        expect_epsilon(self.epsilon)?;
        expect_positive("groups", self.groups)?;
        let [x, weight, bias] = take(inputs)?;
        for (name, ty) in [("x", x), ("weight", weight), ("bias", bias)] {
            expect_f32(name, ty)?;
        }
        let [_, .., channels] = x.shape[..] else {
            return Err(OpError::Shape(format!("x needs at least 2 axes, got {x}")));
        };
        if channels == 0 || !channels.is_multiple_of(self.groups) {
            let groups = self.groups;
            return Err(OpError::Shape(format!(
                "the channels of {x} do not split into {groups} groups"
            )));
        }
        expect_shape("weight", weight, &[channels])?;
        expect_shape("bias", bias, &[channels])?;
        Ok(x.clone())
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let (x, weight, bias) = (inputs[0], inputs[1].real(), inputs[2].real());
        let channels = x.shape.last_axis();
        let width = channels / self.groups;
        let image = Shape::new(&x.shape[1..]).elements();
        let mut values = x.real().to_vec();
        for image in values.chunks_mut(image.max(1)) {
            for group in 0..self.groups {
                let own = |&i: &usize| i % channels / width == group;
                let places: Vec<usize> = (0..image.len()).filter(own).collect();
                let statistics = Statistics::of(places.iter().map(|&i| image[i]));
                for i in places {
                    let channel = i % channels;
                    let normal = statistics.normalise(image[i], self.epsilon);
                    image[i] = normal * weight[channel] + bias[channel];
                }
            }
        }
        DenseTensor::from_real(x.shape.clone(), values)
    }

    fn flops(&self, _: &[&TensorType], output: &TensorType) -> u64 {
        (output.shape.elements() as u64).saturating_mul(8)
    }

    fn cases() -> Vec<Case> {
        let case = |name, groups, x: &[usize]| {
            let vector = [x[x.len() - 1]];
            let op = GroupNorm { groups, epsilon: 1e-5 };
            Case::new(name, op, [noise(x), noise(vector), noise(vector)])
        };
        vec![
            case("pixels", 8, &[2, 5, 7, 32]),
            case("one_group", 1, &[1, 6, 5, 9]),
            case("group_per_channel", 5, &[2, 7, 3, 5]),
            case("odd_groups", 3, &[2, 4, 3, 21]),
            case("large_image", 4, &[1, 33, 31, 24]),
            case("tokens", 4, &[3, 11, 64]),
            case("no_middle", 3, &[4, 12]),
            case("no_batch", 2, &[0, 3, 3, 4]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::LayerNorm;

    #[test]
    fn one_group_is_a_layer_norm_of_the_whole_image() {
        let x = DenseTensor::from_real([2, 3, 2], (0..12).map(|i| f64::from(i * i % 7)).collect());
        let flat = x.gather([2, 6], |i| i);
        let constant = |length, value| DenseTensor::from_real([length], vec![value; length]);
        let group = GroupNorm { groups: 1, epsilon: 1e-3 };
        let layer = LayerNorm { axis: 1, epsilon: 1e-3 };
        let actual = group.reference(&[&x, &constant(2, 3.0), &constant(2, 0.5)]);
        let expected = layer.reference(&[&flat, &constant(6, 3.0), &constant(6, 0.5)]);
        assert_eq!(actual.real(), expected.real());
    }

    #[test]
    fn attributes_and_shapes_that_do_not_fit_are_refused() {
        let refusal = |groups, epsilon, x: &[usize]| {
            let (x, vector) = (TensorType::f32(x), TensorType::f32([4]));
            let op = GroupNorm { groups, epsilon };
            op.infer(&[&x, &vector, &vector]).unwrap_err().to_string()
        };
        assert_eq!(refusal(0, 1e-5, &[1, 4]), "groups must be at least 1, got 0");
        assert!(refusal(1, f32::NAN, &[1, 4]).contains("epsilon must be finite"));
        assert!(refusal(3, 1e-5, &[1, 4]).contains("do not split into 3 groups"));
        assert!(refusal(1, 1e-5, &[1, 0]).contains("do not split into 1 groups"));
        assert_eq!(refusal(1, 1e-5, &[4]), "x needs at least 2 axes, got f32[4]");
        assert_eq!(refusal(1, 1e-5, &[1, 5]), "weight must have shape [5], got f32[4]");
    }
}
