//! Boxes of a feature map, resampled to one size.

use cutout_tensor::{Shape, TensorType, Tolerance};

use super::checks::countable;
use crate::cases::{CaseInput, noise, values};
use crate::op::{axes, expect_f32, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// Boxes of a feature map, each averaged to `output` cells, as torchvision's `roi_align`.
///
/// `features: f32[batch, height, width, channels]`, `boxes: f32[count, 5]` as (batch index, x0, y0, x1, y1) →
/// `f32[count, output[0], output[1], channels]`. Each cell is the mean of a grid of bilinear samples; a sample more
/// than one pixel outside the map is 0. Batch indices are whole numbers in `0..batch`, coordinates are finite.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct RoiAlign {
    /// Rows and columns of cells, at least 1.
    pub output: [usize; 2],
    /// Pixels of the feature map per unit of the boxes, positive.
    pub spatial_scale: f32,
    /// Samples along each side of a cell; 0 takes as many as a cell has pixels (torchvision's -1).
    pub sampling_ratio: usize,
    /// Whether pixel centres lie at 0.5; if not, at whole numbers, and no box is smaller than one pixel.
    pub aligned: bool,
}

/// Limit on the samples along one side of a cell, which bounds the time that a huge box takes.
const MOST_SAMPLES: usize = 4096;

/// A box on the feature map along one direction.
#[derive(Clone, Copy)]
struct Side<T> {
    start: T,
    /// Length of one cell.
    cell: T,
    samples: usize,
}

impl RoiAlign {
    /// The side of a box from `low` to `high` in direction 0 (vertical) or 1.
    fn side<T: Real>(&self, direction: usize, low: T, high: T) -> Side<T> {
        let scale = T::of(f64::from(self.spatial_scale));
        let offset = if self.aligned { T::of(0.5) } else { T::ZERO };
        let start = low * scale - offset;
        let length = (high * scale - offset) - start;
        let length = if self.aligned { length } else { length.maximum(T::ONE) };
        let cell = length / T::of(self.output[direction] as f64);
        let pixels = -(-cell).floor();
        let adaptive = pixels.as_f64() as usize;
        let samples = if self.sampling_ratio > 0 { self.sampling_ratio } else { adaptive };
        Side { start, cell, samples }
    }

    /// What is wrong with a box of a batch of this length.
    fn check_box<T: Real>(&self, batch: usize, corners: &[T]) -> Result<(), String> {
        let index = corners[0].as_f64();
        if index.fract() != 0.0 || !(0.0..batch as f64).contains(&index) {
            return Err(format!("batch index {index} is outside a batch of {batch}"));
        }
        let [x, y] = [[corners[1], corners[3]], [corners[2], corners[4]]];
        if x.iter().chain(&y).any(|value| !value.as_f64().is_finite()) {
            return Err(format!("corners {x:?}, {y:?} are not finite"));
        }
        let samples = self.side(0, y[0], y[1]).samples.max(self.side(1, x[0], x[1]).samples);
        if samples > MOST_SAMPLES {
            return Err(format!("needs {samples} samples along a cell, {MOST_SAMPLES} at most"));
        }
        Ok(())
    }
}

impl<T: Real> Side<T> {
    /// Position of a sample of a cell.
    fn position(&self, cell: usize, sample: usize) -> T {
        let within = (sample as f64 + 0.5) / self.samples as f64;
        self.start + (T::of(cell as f64) + T::of(within)) * self.cell
    }
}

/// The two neighbours of a position among `length` pixels with their weights; `None` more than one pixel outside.
fn neighbours<T: Real>(position: T, length: usize) -> Option<[(usize, T); 2]> {
    if !(position >= -T::ONE && position <= T::of(length as f64)) {
        return None;
    }
    let inside = position.maximum(T::ZERO);
    let low = inside.floor().as_f64() as usize;
    if low + 1 >= length {
        return Some([(length - 1, T::ONE), (length - 1, T::ZERO)]);
    }
    let fraction = inside - T::of(low as f64);
    Some([(low, T::ONE - fraction), (low + 1, fraction)])
}

/// Adds one bilinear sample of `image: [height, width, channels]` to `sums: [channels]`.
fn add_sample<T: Real>(image: &[T], size: [usize; 2], at: [T; 2], sums: &mut [T]) {
    let (Some(rows), Some(columns)) = (neighbours(at[0], size[0]), neighbours(at[1], size[1]))
    else {
        return;
    };
    for (row, row_weight) in rows {
        for (column, column_weight) in columns {
            let pixel = &image[(row * size[1] + column) * sums.len()..][..sums.len()];
            for (sum, &value) in sums.iter_mut().zip(pixel) {
                *sum += row_weight * column_weight * value;
            }
        }
    }
}

impl<'g> Value<'g> {
    /// Boxes of this feature map, each resampled to one size; see [`RoiAlign`].
    #[track_caller]
    pub fn roi_align(self, boxes: Value<'g>, options: RoiAlign) -> Value<'g> {
        self.apply(options, &[boxes])
    }
}

impl OpDef for RoiAlign {
    const NAME: &'static str = "roi_align";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [features, boxes] = take(inputs)?;
        expect_f32("features", features)?;
        expect_f32("boxes", boxes)?;
        let [_, height, width, channels] = axes("features", features)?;
        let [count, columns] = axes("boxes", boxes)?;
        if columns != 5 {
            return Err(OpError::Shape(format!("boxes must be f32[count, 5], got {boxes}")));
        }
        if height == 0 || width == 0 {
            return Err(OpError::Shape(format!("{features} has no pixels")));
        }
        let positive = self.spatial_scale > 0.0 && self.spatial_scale.is_finite();
        if self.output.contains(&0) || !positive || self.sampling_ratio > MOST_SAMPLES {
            let message = format!(
                "needs output cells, a positive scale and at most {MOST_SAMPLES} samples, got {self:?}"
            );
            return Err(OpError::Attribute(message));
        }
        countable(TensorType::f32([count, self.output[0], self.output[1], channels]))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let &[_, height, width, channels] = &inputs[0].shape[..] else {
            panic!("inference checked the rank")
        };
        let count = inputs[1].shape[0];
        let shape = Shape::from([count, self.output[0], self.output[1], channels]);
        let mut values = vec![T::ZERO; shape.elements()];
        for (i, sums) in values.chunks_exact_mut(channels.max(1)).enumerate() {
            let cell = [i / self.output[1] % self.output[0], i % self.output[1]];
            let corners = &inputs[1].real()[i / (self.output[0] * self.output[1]) * 5..][..5];
            let first = corners[0].as_f64() as usize * height * width * channels;
            let image = &inputs[0].real()[first..];
            let rows = self.side(0, corners[2], corners[4]);
            let columns = self.side(1, corners[1], corners[3]);
            for row in 0..rows.samples {
                for column in 0..columns.samples {
                    let at = [rows.position(cell[0], row), columns.position(cell[1], column)];
                    add_sample(image, [height, width], at, sums);
                }
            }
            let samples = (rows.samples * columns.samples).max(1);
            sums.iter_mut().for_each(|sum| *sum = *sum / T::of(samples as f64));
        }
        DenseTensor::from_real(shape, values)
    }

    fn check_values<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> Result<(), String> {
        let batch = inputs[0].shape[0];
        for (i, corners) in inputs[1].real().chunks_exact(5).enumerate() {
            self.check_box(batch, corners).map_err(|error| format!("box {i}: {error}"))?;
        }
        Ok(())
    }

    fn flops(&self, _: &[&TensorType], output: &TensorType) -> u64 {
        let samples = (self.sampling_ratio.max(2) as u64).pow(2);
        // Four neighbours, a multiply-add each.
        samples.saturating_mul(8).saturating_mul(output.shape.elements() as u64)
    }

    fn cases() -> Vec<Case> {
        let boxes = |rows: &[[f64; 5]]| -> CaseInput {
            values(TensorType::f32([rows.len(), 5]), rows.as_flattened())
        };
        // Inside, across the border, tiny, turned inside out, and wholly outside.
        let several = || {
            boxes(&[
                [0.0, 1.3, 2.1, 9.7, 8.2],
                [1.0, -3.6, 4.4, 6.9, 20.3],
                [1.0, 2.2, 3.3, 2.6, 3.9],
                [0.0, 7.1, 6.3, 3.2, 2.4],
                [0.0, 40.1, 50.2, 61.3, 72.4],
            ])
        };
        let usual =
            RoiAlign { output: [3, 4], spatial_scale: 1.0, sampling_ratio: 2, aligned: true };
        let case = |name, op, shape: [usize; 4], boxes| Case::new(name, op, [noise(shape), boxes]);
        let adaptive = RoiAlign { sampling_ratio: 0, ..usual };
        let quarter = RoiAlign { spatial_scale: 0.25, output: [7, 7], ..adaptive };
        let whole = || boxes(&[[0.0, 0.0, 0.0, 11.0, 9.0]]);
        vec![
            case("aligned", usual, [2, 9, 11, 5], several()),
            case("unaligned", RoiAlign { aligned: false, ..usual }, [2, 9, 11, 5], several()),
            case("adaptive", adaptive, [2, 9, 11, 3], several()),
            case(
                "adaptive_unaligned",
                RoiAlign { aligned: false, ..adaptive },
                [2, 9, 11, 3],
                several(),
            ),
            case("scaled", quarter, [2, 5, 7, 17], several()),
            case("whole_map", usual, [1, 9, 11, 3], whole()),
            case("one_pixel", usual, [1, 1, 1, 3], whole()),
            case("no_boxes", usual, [1, 4, 4, 3], boxes(&[])),
        ]
        .into_iter()
        .map(|case| case.within(Tolerance::Rounding))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_that_mean_nothing_are_reported() {
        let op = RoiAlign { output: [1, 1], spatial_scale: 1.0, sampling_ratio: 0, aligned: true };
        let features = DenseTensor::from_real([2, 1, 1, 1], vec![1.0f32, 2.0]);
        let check = |corners: [f32; 5]| {
            let good = [1.0, 0.0, 0.0, 1.0, 1.0];
            let boxes = DenseTensor::from_real([2, 5], [good, corners].concat());
            op.check_values(&[&features, &boxes])
        };
        assert_eq!(check([0.0, 0.0, 0.0, 1.0, 1.0]), Ok(()));
        let outside = |index| Err(format!("box 1: batch index {index} is outside a batch of 2"));
        assert_eq!(check([2.0, 0.0, 0.0, 1.0, 1.0]), outside("2"));
        assert_eq!(check([-1.0, 0.0, 0.0, 1.0, 1.0]), outside("-1"));
        assert_eq!(check([0.5, 0.0, 0.0, 1.0, 1.0]), outside("0.5"));
        assert_eq!(check([f32::NAN, 0.0, 0.0, 1.0, 1.0]), outside("NaN"));
        assert!(check([0.0, f32::INFINITY, 0.0, 1.0, 1.0]).is_err());
        assert!(check([0.0, 0.0, 0.0, 1e30, 1.0]).is_err());
    }
}
