//! Bilinear upsampling of mask logits to the size of the image, row by row. The full-size logits are never stored.

use std::ops::Range;

use crate::{ImageError, Mapping, Size};

/// One axis of PyTorch's `interpolate(mode="bilinear", align_corners=False)`: for each output position, two input positions
/// and the weight of the second.
struct Axis {
    taps: Vec<(u32, u32, f32)>,
}

impl Axis {
    fn new(input: usize, output: usize) -> Self {
        // In f32, as PyTorch computes positions for f32 tensors.
        let scale = input as f32 / output as f32;
        let last = input - 1;
        let tap = |i: usize| {
            let position = (scale * (i as f32 + 0.5) - 0.5).max(0.0);
            let first = (position as usize).min(last);
            let weight = (position - first as f32).clamp(0.0, 1.0);
            (first as u32, (first + 1).min(last) as u32, weight)
        };
        Axis { taps: (0..output).map(tap).collect() }
    }

    /// Keeps the first `length` outputs.
    fn crop(mut self, length: usize) -> Self {
        self.taps.truncate(length);
        self
    }

    /// Writes some of the outputs, each at its place.
    fn stretch(&self, row: &[f32], outputs: Range<usize>, result: &mut [f32]) {
        let taps = &self.taps[outputs.clone()];
        for (value, &(first, second, weight)) in result[outputs].iter_mut().zip(taps) {
            let (first, second) = (row[first as usize], row[second as usize]);
            *value = (1.0 - weight) * first + weight * second;
        }
    }
}

impl Axis {
    /// The outputs that read any of these inputs.
    fn readers(&self, inputs: &Range<usize>) -> Range<usize> {
        let start = self.taps.partition_point(|tap| (tap.1 as usize) < inputs.start);
        let end = self.taps.partition_point(|tap| (tap.0 as usize) < inputs.end);
        start..end.max(start)
    }
}

/// A part of a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Area {
    columns: Range<usize>,
    rows: Range<usize>,
}

impl Area {
    /// The smallest that has all values above 0.
    fn above_zero(values: &[f32], width: usize) -> Area {
        let is_above = |value: &f32| *value > 0.0;
        let mut area = Area { columns: width..0, rows: 0..0 };
        for (y, row) in values.chunks(width).enumerate() {
            // Looks at every value, which is faster than stopping at the first.
            if !row.iter().fold(false, |any, value| any | is_above(value)) {
                continue;
            }
            let first = row.iter().position(is_above).unwrap_or(0);
            let last = row.iter().rposition(is_above).unwrap_or(first);
            area.columns = area.columns.start.min(first)..area.columns.end.max(last + 1);
            area.rows = if area.rows.is_empty() { y..y + 1 } else { area.rows.start..y + 1 };
        }
        area
    }
}

/// One bilinear resampling that produces its rows in order.
struct Stage {
    across: Axis,
    down: Axis,
}

impl Stage {
    fn new(input: Size, output: Size) -> Self {
        let across = Axis::new(input.width, output.width);
        Stage { across, down: Axis::new(input.height, output.height) }
    }

    fn width(&self) -> usize {
        self.across.taps.len()
    }

    /// The part of the result that reads this part of the input.
    fn readers(&self, area: &Area) -> Area {
        let columns = self.across.readers(&area.columns);
        Area { columns, rows: self.down.readers(&area.rows) }
    }
}

/// The two horizontally resampled input rows around the next output row.
struct Window {
    rows: [Vec<f32>; 2],
    indices: [Option<u32>; 2],
}

impl Window {
    fn new(width: usize) -> Self {
        Window { rows: [vec![0.0; width], vec![0.0; width]], indices: [None; 2] }
    }

    /// Computes a range of columns of output row `i` of `stage`; the range is the same in every call. `source(index, destination)` writes an input row.
    fn row(
        &mut self,
        stage: &Stage,
        (i, columns): (usize, &Range<usize>),
        result: &mut [f32],
        mut source: impl FnMut(u32, &mut dyn FnMut(&[f32])),
    ) {
        let (first, second, weight) = stage.down.taps[i];
        if self.indices[1] == Some(first) && self.indices[0] != Some(first) {
            self.rows.swap(0, 1);
            self.indices.swap(0, 1);
        }
        for (slot, index) in [first, second].into_iter().enumerate() {
            if self.indices[slot] == Some(index) {
                continue;
            }
            let stretched = &mut self.rows[slot];
            source(index, &mut |row| stage.across.stretch(row, columns.clone(), stretched));
            self.indices[slot] = Some(index);
        }
        let [above, below] = [0, 1].map(|slot| &self.rows[slot][columns.clone()]);
        for ((value, above), below) in result[columns.clone()].iter_mut().zip(above).zip(below) {
            *value = (1.0 - weight) * above + weight * below;
        }
    }
}

/// The part of an upsampled mask that may be above 0.
pub struct AboveZero<'a> {
    upsampler: &'a Upsampler,
    logits: &'a [f32],
    area: Area,
}

impl AboveZero<'_> {
    /// Calls `receive(y, x, row)` for those of `rows` that the part has, from top to bottom: `row` begins at column `x`, which is
    /// always the same.
    pub fn for_each_row(&self, rows: Range<usize>, mut receive: impl FnMut(usize, usize, &[f32])) {
        let Area { columns, rows: own } = self.area.clone();
        let rows = own.start.max(rows.start)..own.end.min(rows.end);
        if !rows.is_empty() && !columns.is_empty() {
            let x = columns.start;
            let area = Area { columns, rows };
            self.upsampler.receive_area(self.logits, &area, |y, row| receive(y, x, row));
        }
    }
}

/// Upsamples low-resolution logits to the size of the image with PyTorch's arithmetic.
pub struct Upsampler {
    low: Size,
    size: Size,
    /// Upsampling to the model's square without the padding; `None` for a direct upsampling.
    first: Option<Stage>,
    last: Stage,
}

impl Upsampler {
    /// Two resamplings: to the model's square, where padding is cropped, then to the image.
    pub fn through_model(low: Size, mapping: &Mapping) -> Result<Self, ImageError> {
        let Mapping { original, content, model } = *mapping;
        for size in [low, original, content, model] {
            size.pixels(4)?;
        }
        if content.width > model.width || content.height > model.height {
            return Err(ImageError::Mismatch { expected: model, found: content });
        }
        let stage = Stage::new(low, model);
        let across = stage.across.crop(content.width);
        let first = Stage { across, down: stage.down.crop(content.height) };
        Ok(Upsampler {
            low,
            size: original,
            first: Some(first),
            last: Stage::new(content, original),
        })
    }

    /// One resampling, directly to the size of the image.
    pub fn direct(low: Size, size: Size) -> Result<Self, ImageError> {
        low.pixels(4)?;
        size.pixels(4)?;
        Ok(Upsampler { low, size, first: None, last: Stage::new(low, size) })
    }

    /// Size of the result.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Calls `receive(y, row)` for each row of the result, from top to bottom. `logits`: f32 `[low.height, low.width]`.
    pub fn for_each_row(
        &self,
        logits: &[f32],
        receive: impl FnMut(usize, &[f32]),
    ) -> Result<(), ImageError> {
        self.low.expect_values(1, logits.len())?;
        self.receive_area(
            logits,
            &Area { columns: 0..self.size.width, rows: 0..self.size.height },
            receive,
        );
        Ok(())
    }

    /// The part of the result that may be above 0. No value outside is, because each value lies between those it is computed from.
    pub fn above_zero<'a>(&'a self, logits: &'a [f32]) -> Result<AboveZero<'a>, ImageError> {
        self.low.expect_values(1, logits.len())?;
        let mut area = Area::above_zero(logits, self.low.width);
        for stage in self.first.iter().chain([&self.last]) {
            area = stage.readers(&area);
        }
        Ok(AboveZero { upsampler: self, logits, area })
    }

    /// Calls `receive` with the rows of an area of the result, each from the area's first column.
    fn receive_area(&self, logits: &[f32], area: &Area, mut receive: impl FnMut(usize, &[f32])) {
        let low_row = |index: u32| &logits[index as usize * self.low.width..][..self.low.width];
        let mut result = vec![0.0; self.size.width];
        let mut last = Window::new(self.last.width());
        let between_columns = 0..self.first.as_ref().map_or(0, Stage::width);
        let mut first = Window::new(between_columns.end);
        let mut between = vec![0.0; between_columns.end];
        for y in area.rows.clone() {
            last.row(&self.last, (y, &area.columns), &mut result, |index, stretch| {
                let Some(stage) = &self.first else { return stretch(low_row(index)) };
                let from_low = |index: u32, stretch: &mut dyn FnMut(&[f32])| {
                    stretch(low_row(index));
                };
                let place = (index as usize, &between_columns);
                first.row(stage, place, &mut between, from_low);
                stretch(&between);
            });
            receive(y, &result[area.columns.clone()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(upsampler: &Upsampler, logits: &[f32]) -> Vec<f32> {
        let mut values = Vec::new();
        upsampler.for_each_row(logits, |_, row| values.extend(row)).unwrap();
        values
    }

    #[test]
    fn doubling_the_width_gives_hand_computed_values() {
        let upsampler = Upsampler::direct(Size::new(2, 1), Size::new(4, 1)).unwrap();
        assert_eq!(collect(&upsampler, &[0.0, 4.0]), [0.0, 1.0, 3.0, 4.0]);
    }

    #[test]
    fn the_same_size_changes_nothing() {
        let upsampler = Upsampler::direct(Size::new(3, 2), Size::new(3, 2)).unwrap();
        let values = [1.0, -2.0, 3.5, 4.0, 5.0, -6.0];
        assert_eq!(collect(&upsampler, &values), values);
    }

    /// Low-resolution masks with values on both sides of 0 in some places.
    fn masks(low: Size) -> Vec<Vec<f32>> {
        let Size { width, height } = low;
        let of = |value: &dyn Fn(usize, usize) -> f32| {
            (0..width * height).map(|i| value(i % width, i / width)).collect()
        };
        vec![
            of(&|_, _| -1.0),
            of(&|_, _| 0.0),
            of(&|x, y| if (x, y) == (0, 0) { 1e-30 } else { -3.0 }),
            of(&|x, y| if (x, y) == (width - 1, height - 1) { 9.0 } else { -0.0 }),
            of(&|x, y| if (3..5).contains(&x) && y == 4 { 2.0 } else { -1.5 }),
            of(&|x, y| if x == 5 { f32::NAN } else { (x * y) as f32 - 20.0 }),
            of(&|x, y| ((x * 7 + y * 13) % 5) as f32 - 2.0),
        ]
    }

    #[test]
    fn rows_above_zero_leave_nothing_out() {
        let low = Size::new(9, 7);
        let mapping = Mapping {
            original: Size::new(40, 33),
            content: Size::new(16, 13),
            model: Size::square(16),
        };
        let upsamplers = [
            Upsampler::direct(low, Size::new(40, 33)).unwrap(),
            Upsampler::direct(low, Size::new(5, 4)).unwrap(),
            Upsampler::through_model(low, &mapping).unwrap(),
        ];
        for (number, upsampler) in upsamplers.iter().enumerate() {
            for (index, logits) in masks(low).iter().enumerate() {
                let (found, expected) = (above_zero(upsampler, logits), collect(upsampler, logits));
                for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    assert_eq!(
                        *found,
                        expected.max(0.0),
                        "upsampler {number}, mask {index}, {place}"
                    );
                }
            }
        }
    }

    /// The values above 0, and 0 in all other places; computed in two halves.
    fn above_zero(upsampler: &Upsampler, logits: &[f32]) -> Vec<f32> {
        let Size { width, height } = upsampler.size();
        let mut found = vec![0.0; width * height];
        for rows in [0..height / 2, height / 2..height] {
            let receive = |y: usize, x: usize, row: &[f32]| {
                let found = &mut found[y * width + x..][..row.len()];
                found.iter_mut().zip(row).for_each(|(found, value)| *found = value.max(0.0));
            };
            upsampler.above_zero(logits).unwrap().for_each_row(rows, receive);
        }
        found
    }

    #[test]
    fn only_the_neighbourhood_of_a_mask_is_computed() {
        let upsampler = Upsampler::direct(Size::square(8), Size::square(32)).unwrap();
        let mut logits = [-1.0; 64];
        logits[3 * 8 + 2] = 1.0;
        let mut pixels = 0;
        let count = |_: usize, _: usize, row: &[f32]| pixels += row.len();
        upsampler.above_zero(&logits).unwrap().for_each_row(0..32, count);
        assert_eq!(pixels, 64, "four pixels, and two to either side that are interpolated");
    }

    #[test]
    fn wrong_lengths_are_errors() {
        let upsampler = Upsampler::direct(Size::new(3, 2), Size::new(3, 2)).unwrap();
        assert!(upsampler.for_each_row(&[0.0; 5], |_, _| ()).is_err());
        assert!(Upsampler::direct(Size::new(0, 2), Size::new(3, 2)).is_err());
    }
}
