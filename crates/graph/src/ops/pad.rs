//! Padding with a constant.

use cutout_tensor::{Shape, TensorType, Tolerance};

use super::checks::countable;
use crate::cases::noise;
use crate::dense::{ravel, unravel};
use crate::op::{expect_f32, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// `x: f32` with `before[axis]` elements of `value` in front of each axis and `after[axis]` behind it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Pad {
    /// Elements added in front of each axis.
    pub before: Vec<usize>,
    /// Elements added behind each axis.
    pub after: Vec<usize>,
    /// Value of the added elements.
    pub value: f32,
}

impl<'g> Value<'g> {
    /// Padded with `before[axis]` elements of `value` in front of each axis and `after[axis]` behind it.
    #[track_caller]
    pub fn pad(
        self,
        before: impl Into<Vec<usize>>,
        after: impl Into<Vec<usize>>,
        value: f32,
    ) -> Value<'g> {
        self.apply(Pad { before: before.into(), after: after.into(), value }, &[])
    }
}

impl OpDef for Pad {
    const NAME: &'static str = "pad";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x] = take(inputs)?;
        expect_f32("x", x)?;
        if self.before.len() != x.rank() || self.after.len() != x.rank() {
            return Err(OpError::Attribute(format!("needs a border for each axis of {x}")));
        }
        let borders = self.before.iter().zip(&self.after);
        let shape: Option<Shape> = borders
            .zip(x.shape.iter())
            .map(|((before, &after), &axis)| axis.checked_add(*before)?.checked_add(after))
            .collect::<Option<Vec<usize>>>()
            .map(Shape::from);
        match shape {
            Some(shape) => countable(TensorType::f32(shape)),
            None => Err(OpError::Attribute(format!("the border of {x} cannot be counted"))),
        }
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let x = inputs[0];
        let rank = x.shape.rank();
        let shape: Shape =
            (0..rank).map(|axis| self.before[axis] + x.shape[axis] + self.after[axis]).collect();
        let mut values = Vec::with_capacity(shape.elements());
        for i in 0..shape.elements() {
            let index = unravel(i, &shape);
            let inside = (0..rank).all(|axis| {
                (self.before[axis]..self.before[axis] + x.shape[axis]).contains(&index[axis])
            });
            if inside {
                let own: Vec<usize> =
                    index.iter().zip(&self.before).map(|(i, before)| i - before).collect();
                values.push(x.real()[ravel(&own, &x.shape)]);
            } else {
                values.push(T::of(f64::from(self.value)));
            }
        }
        DenseTensor::from_real(shape, values)
    }

    fn flops(&self, _: &[&TensorType], _: &TensorType) -> u64 {
        0
    }

    fn cases() -> Vec<Case> {
        let case = |name, before: &[usize], after: &[usize], value, shape: &[usize]| {
            let pad = Pad { before: before.to_vec(), after: after.to_vec(), value };
            Case::new(name, pad, [noise(shape)]).within(Tolerance::Exact)
        };
        vec![
            case("behind", &[0, 0], &[1, 3], 0.0, &[5, 7]),
            case("in_front", &[2, 0], &[0, 0], 0.0, &[5, 7]),
            case("windows", &[0, 0, 0, 0], &[0, 2, 1, 0], 0.0, &[2, 5, 6, 3]),
            case("value", &[1, 2, 1], &[1, 0, 2], -1.5, &[2, 3, 4]),
            case("no_border", &[0, 0], &[0, 0], 7.0, &[3, 4]),
            case("of_nothing", &[1, 0], &[2, 1], 0.25, &[0, 3]),
            case("scalar", &[], &[], 0.0, &[]),
        ]
    }
}
