//! Bilinear samples of an image at given positions.

use cutout_tensor::TensorType;

use super::checks::countable;
use crate::cases::{noise, uniform, values};
use crate::dense::{ravel, unravel};
use crate::op::{axes, expect_f32, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// Bilinear samples of an image: `x: f32[batch, height, width, channels]`,
/// `grid: f32[batch, out_height, out_width, 2]` as (x, y) → `f32[batch, out_height, out_width, channels]`.
///
/// -1 and 1 are the outer edges of the image; pixels outside it are 0. PyTorch's `grid_sample` with
/// `padding_mode="zeros", align_corners=False`. A position that is not a number reads 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct GridSample;

/// The neighbours, inside the image, of a coordinate in -1..1, with their weights.
fn neighbours<T: Real>(coordinate: T, length: usize) -> impl Iterator<Item = (usize, T)> {
    let position = ((coordinate + T::ONE) * T::of(length as f64) - T::ONE) * T::of(0.5);
    let low = position.floor();
    let fraction = position - low;
    let both = [(low, T::ONE - fraction), (low + T::ONE, fraction)];
    let end = T::of(length as f64);
    let inside = both.into_iter().filter(move |&(at, _)| at >= T::ZERO && at < end);
    inside.map(|(at, weight)| (at.as_f64() as usize, weight))
}

impl<'g> Value<'g> {
    /// This image at the positions of `grid`; see [`GridSample`].
    #[track_caller]
    pub fn grid_sample(self, grid: Value<'g>) -> Value<'g> {
        self.apply(GridSample, &[grid])
    }
}

impl OpDef for GridSample {
    const NAME: &'static str = "grid_sample";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x, grid] = take(inputs)?;
        expect_f32("x", x)?;
        expect_f32("grid", grid)?;
        let [batch, height, width, channels] = axes("x", x)?;
        let [grid_batch, rows, columns, coordinates] = axes("grid", grid)?;
        if coordinates != 2 || grid_batch != batch {
            let message = format!("grid must be f32[{batch}, .., .., 2], got {grid}");
            return Err(OpError::Shape(message));
        }
        if height == 0 || width == 0 {
            return Err(OpError::Shape(format!("{x} has no pixels")));
        }
        countable(TensorType::f32([batch, rows, columns, channels]))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let &[_, height, width, channels] = &inputs[0].shape[..] else {
            panic!("inference checked the rank")
        };
        let mut shape = inputs[1].shape.clone();
        shape[3] = channels;
        let mut values = vec![T::ZERO; shape.elements()];
        for (i, sum) in values.iter_mut().enumerate() {
            let index = unravel(i, &shape);
            let position = &inputs[1].real()[i / channels * 2..][..2];
            for (row, row_weight) in neighbours(position[1], height) {
                for (column, column_weight) in neighbours(position[0], width) {
                    let at = ravel(&[index[0], row, column, index[3]], &inputs[0].shape);
                    *sum += row_weight * column_weight * inputs[0].real()[at];
                }
            }
        }
        DenseTensor::from_real(shape, values)
    }

    fn flops(&self, _: &[&TensorType], output: &TensorType) -> u64 {
        // Four neighbours, a multiply-add each.
        (output.shape.elements() as u64).saturating_mul(8)
    }

    fn cases() -> Vec<Case> {
        let case = |name, x: [usize; 4], grid| Case::new(name, GridSample, [noise(x), grid]);
        let corners = [-1.0, -1.0, 1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 2.5, -3.0];
        let corners = values(TensorType::f32([1, 2, 3, 2]), &corners);
        vec![
            case("inside", [2, 7, 5, 3], uniform([2, 4, 6, 2], -0.9, 0.9)),
            case("across_the_border", [1, 6, 9, 17], uniform([1, 5, 5, 2], -1.4, 1.4)),
            case("corners", [1, 4, 5, 3], corners),
            case("points", [2, 8, 8, 4], uniform([2, 1, 19, 2], -1.1, 1.1)),
            case("one_pixel", [1, 1, 1, 2], uniform([1, 3, 3, 2], -1.5, 1.5)),
            case("no_points", [1, 4, 5, 3], uniform([1, 0, 3, 2], -1.0, 1.0)),
        ]
    }
}
