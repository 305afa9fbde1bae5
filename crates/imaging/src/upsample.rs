//! Bilinear upsampling of mask logits to the size of the image, row by row. The full-size logits are never stored.

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

    fn stretch(&self, row: &[f32], result: &mut [f32]) {
        for (value, &(first, second, weight)) in result.iter_mut().zip(&self.taps) {
            let (first, second) = (row[first as usize], row[second as usize]);
            *value = (1.0 - weight) * first + weight * second;
        }
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

    /// Output row `i` of `stage`. `source(index, destination)` writes an input row.
    fn row(
        &mut self,
        stage: &Stage,
        i: usize,
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
            source(index, &mut |row| stage.across.stretch(row, stretched));
            self.indices[slot] = Some(index);
        }
        let [above, below] = &self.rows;
        for ((value, above), below) in result.iter_mut().zip(above).zip(below) {
            *value = (1.0 - weight) * above + weight * below;
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
        mut receive: impl FnMut(usize, &[f32]),
    ) -> Result<(), ImageError> {
        self.low.expect_values(1, logits.len())?;
        let low_row = |index: u32| &logits[index as usize * self.low.width..][..self.low.width];
        let mut result = vec![0.0; self.size.width];
        let mut last = Window::new(self.last.width());
        let mut first = Window::new(self.first.as_ref().map_or(0, Stage::width));
        let mut between = vec![0.0; self.first.as_ref().map_or(0, Stage::width)];
        for y in 0..self.size.height {
            last.row(&self.last, y, &mut result, |index, stretch| match &self.first {
                None => stretch(low_row(index)),
                Some(stage) => {
                    let from_low = |index: u32, stretch: &mut dyn FnMut(&[f32])| {
                        stretch(low_row(index));
                    };
                    first.row(stage, index as usize, &mut between, from_low);
                    stretch(&between);
                }
            });
            receive(y, &result);
        }
        Ok(())
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

    #[test]
    fn wrong_lengths_are_errors() {
        let upsampler = Upsampler::direct(Size::new(3, 2), Size::new(3, 2)).unwrap();
        assert!(upsampler.for_each_row(&[0.0; 5], |_, _| ()).is_err());
        assert!(Upsampler::direct(Size::new(0, 2), Size::new(3, 2)).is_err());
    }
}
