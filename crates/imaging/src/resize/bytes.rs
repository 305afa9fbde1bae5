//! The two byte resizes: fixed-point weights, and rounding to a byte after each pass.

use cutout_parallel::Pool;
use cutout_tensor::memory;

use super::TASK_ROWS;
use super::window::{Filter, WindowTable, WindowWeights, Windows};
use crate::{Image, ImageError, Size};

/// Fractional bits of Pillow's weights: 32, minus 8 for the byte, minus 2 for sign and overshoot.
const PILLOW_BITS: u32 = 32 - 8 - 2;

/// `Image.resize(size, filter)` of Pillow up to version 12, bit-exact. Meta's models were trained with these versions;
/// Pillow 13 processes the columns first for some sizes.
pub fn resize_pillow(
    image: &Image,
    size: Size,
    filter: Filter,
    pool: &Pool,
) -> Result<Image, ImageError> {
    resize(image, size, pool, |input, output| Axis::pillow(input, output, filter))
}

/// `torchvision.transforms.v2.Resize(size, antialias=True)` of a uint8 tensor on the CPU, bit-exact. Same as Pillow's, with
/// 16-bit weights.
pub fn resize_torch_bytes(
    image: &Image,
    size: Size,
    filter: Filter,
    pool: &Pool,
) -> Result<Image, ImageError> {
    resize(image, size, pool, |input, output| Axis::torch(input, output, filter))
}

/// Rounds half away from zero.
fn round(x: f64) -> i32 {
    if x < 0.0 { (x - 0.5) as i32 } else { (x + 0.5) as i32 }
}

/// Fixed-point weights of one axis.
pub(crate) struct Axis {
    weights: Windows<i32>,
    bits: u32,
}

impl Axis {
    /// Pillow's.
    pub(crate) fn pillow(input: usize, output: usize, filter: Filter) -> Self {
        let scale = f64::from(1u32 << PILLOW_BITS);
        let weights = Windows::new(input, output, filter).map(|weight| round(weight * scale));
        Axis { weights, bits: PILLOW_BITS }
    }

    /// PyTorch's, of bytes.
    pub(crate) fn torch(input: usize, output: usize, filter: Filter) -> Self {
        let windows = Windows::new(input, output, filter);
        // Most fractional bits with which the largest weight fits into a signed 16-bit integer.
        let largest = windows.largest_weight();
        let fits = |bits: &u32| 0.5 + largest * f64::from(1u32 << bits) < f64::from(1u32 << 15);
        let bits = (1..=PILLOW_BITS).take_while(fits).last().unwrap_or(0);
        let scale = f64::from(1u32 << bits);
        Axis { weights: windows.map(|weight| round(weight * scale)), bits }
    }

    /// The windows and weights as tables.
    pub(crate) fn table(self) -> WindowTable {
        let bits = self.bits;
        self.weights.table(|weights| WindowWeights::Fixed { weights, bits })
    }

    /// Start value of a sum: half a unit, so that the final shift rounds.
    fn half(&self) -> i32 {
        if self.bits == 0 { 0 } else { 1 << (self.bits - 1) }
    }
}

fn resize(
    image: &Image,
    size: Size,
    pool: &Pool,
    axis: impl Fn(usize, usize) -> Axis,
) -> Result<Image, ImageError> {
    size.pixels(3)?;
    let mut pixels = None;
    if size.width != image.width() {
        let axis = axis(image.width(), size.width);
        let between = Size::new(size.width, image.height());
        pixels = Some(shrink_rows(image.as_rgb(), (image.width(), between), &axis, pool)?);
    }
    if size.height != image.height() {
        let axis = axis(image.height(), size.height);
        let source = pixels.as_deref().unwrap_or(image.as_rgb());
        pixels = Some(shrink_columns(source, size, &axis, pool)?);
    }
    let pixels = match pixels {
        Some(pixels) => pixels,
        None => memory::copied(image.as_rgb())?,
    };
    Image::from_rgb(size, pixels)
}

/// Resizes the rows: u8 `[height, width, 3]` to `[height, size.width, 3]`.
fn shrink_rows(
    source: &[u8],
    (width, size): (usize, Size),
    axis: &Axis,
    pool: &Pool,
) -> Result<Vec<u8>, ImageError> {
    let mut output = memory::zeroed::<u8>(size.pixels(3)? * 3)?;
    pool.for_chunks(&mut output, TASK_ROWS * 3 * size.width, &|task, results| {
        let rows = source.chunks_exact(3 * width).skip(task * TASK_ROWS);
        for (row, result) in rows.zip(results.chunks_exact_mut(3 * size.width)) {
            shrink_row(row, result, axis);
        }
    });
    Ok(output)
}

fn shrink_row(row: &[u8], result: &mut [u8], axis: &Axis) {
    for (i, pixel) in result.chunks_exact_mut(3).enumerate() {
        let (start, weights) = axis.weights.get(i);
        let mut sums = [axis.half(); 3];
        for (weight, from) in weights.iter().zip(row[3 * start..].chunks_exact(3)) {
            sums[0] += weight * i32::from(from[0]);
            sums[1] += weight * i32::from(from[1]);
            sums[2] += weight * i32::from(from[2]);
        }
        pixel.copy_from_slice(&sums.map(|sum| to_byte(sum, axis.bits)));
    }
}

/// Resizes the columns: u8 `[rows, size.width, 3]` to `[size.height, size.width, 3]`.
fn shrink_columns(
    source: &[u8],
    size: Size,
    axis: &Axis,
    pool: &Pool,
) -> Result<Vec<u8>, ImageError> {
    let length = 3 * size.width;
    let mut output = memory::zeroed::<u8>(size.pixels(3)? * 3)?;
    pool.for_chunks(&mut output, TASK_ROWS * length, &|task, results| {
        let mut sums = vec![0i32; length];
        for (i, result) in results.chunks_exact_mut(length).enumerate() {
            let (start, weights) = axis.weights.get(task * TASK_ROWS + i);
            sums.fill(axis.half());
            for (weight, row) in weights.iter().zip(source[start * length..].chunks_exact(length)) {
                for (sum, value) in sums.iter_mut().zip(row) {
                    *sum += weight * i32::from(*value);
                }
            }
            for (byte, sum) in result.iter_mut().zip(&sums) {
                *byte = to_byte(*sum, axis.bits);
            }
        }
    });
    Ok(output)
}

fn to_byte(sum: i32, bits: u32) -> u8 {
    (sum >> bits).clamp(0, 255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_stays_constant() {
        let colour = [7, 128, 255];
        for (from, to) in [((5, 3), (17, 1)), ((300, 200), (31, 64)), ((1, 1), (9, 9))] {
            let image = Image::filled(Size::new(from.0, from.1), colour).unwrap();
            let expected = Image::filled(Size::new(to.0, to.1), colour).unwrap();
            let (pool, size) = (Pool::new(2), expected.size());
            for filter in [Filter::Bilinear, Filter::Bicubic] {
                assert_eq!(resize_pillow(&image, size, filter, &pool).unwrap(), expected);
                assert_eq!(resize_torch_bytes(&image, size, filter, &pool).unwrap(), expected);
            }
        }
    }
}
