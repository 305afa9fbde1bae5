//! Preprocessing of images to model inputs, and the mapping of coordinates between both.

use cutout_parallel::Pool;
use cutout_tensor::{Tensor, memory};

use crate::resize::{
    Axis, Filter, WindowTable, resize_pillow, resize_torch_bytes, resize_torch_floats, window_table,
};
use crate::{Image, ImageError, Size};

/// Resize of an image to the model's input size. It also sets the range of values that `mean` and `std` refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fit {
    /// Longer side to the model's side by Pillow's bilinear resize, zero padding right and below; values 0 to 255.
    LongSide,
    /// Both sides to the model's side by torchvision's antialiased bilinear resize of floats; values 0 to 1.
    SquareFloats,
    /// Both sides to the model's side by torchvision's antialiased bilinear resize of bytes; values 0 to 1.
    SquareBytes,
    /// Both sides to the model's side by Pillow's bicubic resize of bytes; values 0 to 1.
    SquareBicubic,
}

/// The windows of a [`Fit`] for pictures of one size, for devices that resize pictures themselves: columns first, then rows, as
/// [`Preprocess::run`] does.
#[derive(Clone, Debug, PartialEq)]
pub struct FitWindows {
    /// From the width of the picture to that of its place in the model's input; `None` if it is the same and nothing changes.
    pub columns: Option<WindowTable>,
    /// The same for its height.
    pub rows: Option<WindowTable>,
}

/// Preprocessing of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocess {
    /// Side of the square model input, in pixels.
    pub side: usize,
    /// Mean of red, green and blue, subtracted from the values.
    pub mean: [f32; 3],
    /// Standard deviation of red, green and blue; the divisor.
    pub std: [f32; 3],
    /// Resize to the model's input size.
    pub fit: Fit,
}

impl Preprocess {
    /// The model's input, f32 `[1, side, side, 3]`, and where the picture lies in it.
    pub fn run(&self, image: &Image, pool: &Pool) -> Result<(Tensor, Mapping), ImageError> {
        let mapping = self.mapping(image.size())?;
        let size = mapping.content;
        let values = match self.fit {
            Fit::LongSide => {
                let resized = resize_pillow(image, size, Filter::Bilinear, pool)?;
                self.normalize(resized.as_rgb(), f32::from, size)?
            }
            Fit::SquareFloats => {
                let mut resized = resize_torch_floats(image, size, Filter::Bilinear, pool)?;
                self.normalize_row(&mut resized);
                resized
            }
            Fit::SquareBytes => {
                let resized = resize_torch_bytes(image, size, Filter::Bilinear, pool)?;
                self.normalize(resized.as_rgb(), unit, size)?
            }
            Fit::SquareBicubic => {
                let resized = resize_pillow(image, size, Filter::Bicubic, pool)?;
                self.normalize(resized.as_rgb(), unit, size)?
            }
        };
        let tensor = Tensor::from_vec([1, self.side, self.side, 3], values)
            .expect("the buffer was made for this shape");
        Ok((tensor, mapping))
    }

    /// The windows with which pictures of size `original` are resized.
    pub fn windows(&self, original: Size) -> Result<FitWindows, ImageError> {
        let Mapping { content, .. } = self.mapping(original)?;
        let table = |from: usize, to: usize| match self.fit {
            Fit::SquareFloats => Some(window_table(from, to, Filter::Bilinear)),
            _ if from == to => None,
            Fit::LongSide => Some(Axis::pillow(from, to, Filter::Bilinear).table()),
            Fit::SquareBytes => Some(Axis::torch(from, to, Filter::Bilinear).table()),
            Fit::SquareBicubic => Some(Axis::pillow(from, to, Filter::Bicubic).table()),
        };
        let columns = table(original.width, content.width);
        Ok(FitWindows { columns, rows: table(original.height, content.height) })
    }

    /// Position of an image of size `original` in the model's input square.
    pub fn mapping(&self, original: Size) -> Result<Mapping, ImageError> {
        original.pixels(3)?;
        let model = Size::square(self.side);
        model.pixels(12)?;
        let content = match self.fit {
            Fit::LongSide => {
                let scale = self.side as f64 / original.width.max(original.height) as f64;
                // A very narrow image keeps one pixel; Meta's code computes 0 and fails.
                let scaled = |length: usize| ((length as f64 * scale + 0.5) as usize).max(1);
                Size::new(scaled(original.width), scaled(original.height))
            }
            Fit::SquareFloats | Fit::SquareBytes | Fit::SquareBicubic => model,
        };
        Ok(Mapping { original, content, model })
    }

    /// `(value - mean) / std` of `[content.height, content.width, 3]` in the top left of `[side, side, 3]`.
    /// Padding is 0: Meta pads after normalising.
    fn normalize(
        &self,
        source: &[u8],
        value: impl Fn(u8) -> f32,
        content: Size,
    ) -> Result<Vec<f32>, ImageError> {
        let mut output = memory::zeroed::<f32>(Size::square(self.side).pixels(12)? * 3)?;
        let rows = output.chunks_exact_mut(3 * self.side);
        for (row, from) in rows.zip(source.chunks_exact(3 * content.width)) {
            let row = &mut row[..from.len()];
            for (to, from) in row.iter_mut().zip(from) {
                *to = value(*from);
            }
            self.normalize_row(row);
        }
        Ok(output)
    }

    /// `(value - mean) / std` of a row of whole pixels.
    fn normalize_row(&self, row: &mut [f32]) {
        // Four pixels fill three SIMD registers; the last chunk may be shorter.
        let mean: [f32; 12] = std::array::from_fn(|i| self.mean[i % 3]);
        let std: [f32; 12] = std::array::from_fn(|i| self.std[i % 3]);
        let mut groups = row.chunks_exact_mut(12);
        for group in &mut groups {
            for i in 0..12 {
                group[i] = (group[i] - mean[i]) / std[i];
            }
        }
        for (i, value) in groups.into_remainder().iter_mut().enumerate() {
            *value = (*value - mean[i]) / std[i];
        }
    }
}

/// A byte scaled to the range 0 to 1.
fn unit(byte: u8) -> f32 {
    f32::from(byte) / 255.0
}

/// Position of an image in the model's input square. Converts coordinates in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Size of the image.
    pub original: Size,
    /// Size of the resized image, which fills the top left corner of the model's square.
    pub content: Size,
    /// Size of the model's square, including padding.
    pub model: Size,
}

impl Mapping {
    /// Converts a point of the image to pixels of the model's square.
    pub fn to_model(&self, x: f64, y: f64) -> (f64, f64) {
        let (across, down) = self.scale();
        (x * across, y * down)
    }

    /// Converts a point of the model's square to pixels of the image.
    pub fn to_original(&self, x: f64, y: f64) -> (f64, f64) {
        let (across, down) = self.scale();
        (x / across, y / down)
    }

    fn scale(&self) -> (f64, f64) {
        let across = self.content.width as f64 / self.original.width as f64;
        (across, self.content.height as f64 / self.original.height as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long_side(side: usize) -> Preprocess {
        Preprocess { side, mean: [10.0, 20.0, 30.0], std: [1.0, 2.0, 4.0], fit: Fit::LongSide }
    }

    #[test]
    fn long_side_is_padded_with_zeros_after_normalising() {
        let image = Image::filled(Size::new(4, 2), [12, 24, 38]).unwrap();
        let (tensor, mapping) = long_side(8).run(&image, &Pool::new(1)).unwrap();
        assert_eq!(tensor.shape().to_vec(), [1, 8, 8, 3]);
        assert_eq!(mapping.content, Size::new(8, 4));
        let values = tensor.to_vec::<f32>().unwrap();
        assert!(values[..4 * 8 * 3].iter().all(|value| *value == 2.0));
        assert!(values[4 * 8 * 3..].iter().all(|value| *value == 0.0));
    }

    #[test]
    fn squares_are_filled_and_scaled_to_one() {
        let image = Image::filled(Size::new(40, 10), [0, 51, 255]).unwrap();
        for fit in [Fit::SquareFloats, Fit::SquareBytes, Fit::SquareBicubic] {
            let preprocess = Preprocess { side: 8, mean: [0.5; 3], std: [0.5, 0.1, 0.25], fit };
            let (tensor, mapping) = preprocess.run(&image, &Pool::new(2)).unwrap();
            assert_eq!(mapping.to_model(20.0, 10.0), (4.0, 8.0));
            let values = tensor.to_vec::<f32>().unwrap();
            for (value, expected) in values.iter().zip([-1.0, -3.0, 2.0].into_iter().cycle()) {
                assert!((value - expected).abs() < 1e-5, "{fit:?}: {value}, expected {expected}");
            }
        }
    }

    #[test]
    fn sizes_are_rounded_as_meta_rounds_them() {
        for (original, content) in [
            ((1800, 1200), (1024, 683)),
            ((1200, 1800), (683, 1024)),
            ((1, 1), (1024, 1024)),
            ((12000, 1), (1024, 1)),
            ((1023, 1023), (1024, 1024)),
        ] {
            let mapping = long_side(1024).mapping(Size::new(original.0, original.1)).unwrap();
            assert_eq!(mapping.content, Size::new(content.0, content.1));
        }
    }

    #[test]
    fn coordinates_round_trip() {
        let mapping = long_side(1024).mapping(Size::new(1800, 1200)).unwrap();
        let (x, y) = mapping.to_model(900.0, 600.0);
        assert_eq!((x, y), (512.0, 341.5));
        let (x, y) = mapping.to_original(x, y);
        assert!((x - 900.0).abs() < 1e-9 && (y - 600.0).abs() < 1e-9);
    }
}
