//! The float resize.

use cutout_parallel::Pool;
use cutout_tensor::memory;

use super::TASK_ROWS;
use super::window::{Filter, WindowTable, WindowWeights, Windows};
use crate::{Image, ImageError, Size};

/// `torchvision.transforms.Resize(size)`, antialiased, of an image converted by `ToTensor`. Returns f32
/// `[height, width, 3]` with values from 0 to 1.
pub fn resize_torch_floats(
    image: &Image,
    size: Size,
    filter: Filter,
    pool: &Pool,
) -> Result<Vec<f32>, ImageError> {
    let pixels = size.pixels(12)?;
    let across = windows(image.width(), size.width, filter);
    let down = windows(image.height(), size.height, filter);
    let mut output = memory::zeroed::<f32>(pixels * 3)?;
    pool.for_chunks(&mut output, TASK_ROWS * 3 * size.width, &|task, rows| {
        shrink_rows(image, (&across, &down), task * TASK_ROWS, rows);
    });
    Ok(output)
}

/// The windows of one axis.
fn windows(input: usize, output: usize, filter: Filter) -> Windows<f32> {
    Windows::new(input, output, filter).map(|weight| weight as f32)
}

/// The windows of one axis and their weights as tables.
pub(crate) fn window_table(input: usize, output: usize, filter: Filter) -> WindowTable {
    windows(input, output, filter).table(WindowWeights::Single)
}

/// Computes output rows, starting at row `first`.
fn shrink_rows(
    image: &Image,
    (across, down): (&Windows<f32>, &Windows<f32>),
    first: usize,
    results: &mut [f32],
) {
    let source: Vec<&[u8]> = image.as_rgb().chunks_exact(3 * image.width()).collect();
    // Input rows resized to the output width. Each is computed once and dropped after its last window.
    let mut rows: Vec<(usize, Vec<f32>)> = Vec::new();
    let mut floats = vec![0.0; 3 * image.width() + 1];
    for (i, result) in results.chunks_exact_mut(3 * across.len()).enumerate() {
        let (start, weights) = down.get(first + i);
        rows.retain(|(row, _)| *row >= start);
        let next = rows.last().map_or(start, |(row, _)| row + 1);
        let missing = source.iter().enumerate().take(start + weights.len()).skip(next);
        rows.extend(missing.map(|(row, pixels)| (row, shrink_row(pixels, across, &mut floats))));
        for (weight, (_, row)) in weights.iter().zip(&rows) {
            for (sum, value) in result.iter_mut().zip(row) {
                *sum += weight * value;
            }
        }
    }
}

/// Resizes an input row to the output width. `floats` is scratch space for the row and one extra element.
fn shrink_row(row: &[u8], across: &Windows<f32>, floats: &mut [f32]) -> Vec<f32> {
    for (float, byte) in floats.iter_mut().zip(row) {
        *float = f32::from(*byte) / 255.0;
    }
    let mut result = vec![0.0; 3 * across.len()];
    for (i, pixel) in result.chunks_exact_mut(3).enumerate() {
        let (start, weights) = across.get(i);
        // Four lanes fill a SIMD register; the fourth belongs to the next pixel and is dropped.
        let mut sums = [0.0; 4];
        let window = &floats[3 * start..][..3 * weights.len() + 1];
        for (weight, from) in weights.iter().zip(window.windows(4).step_by(3)) {
            for (sum, value) in sums.iter_mut().zip(from) {
                *sum += weight * value;
            }
        }
        pixel.copy_from_slice(&sums[..3]);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_stays_constant() {
        let image = Image::filled(Size::new(40, 30), [51, 0, 255]).unwrap();
        let output =
            resize_torch_floats(&image, Size::new(7, 90), Filter::Bilinear, &Pool::new(1)).unwrap();
        for pixel in output.chunks_exact(3) {
            for (found, expected) in pixel.iter().zip([0.2, 0.0, 1.0]) {
                assert!((found - expected).abs() < 1e-6);
            }
        }
    }

    /// Covers several tasks, enlarging and reducing, and the last pixel of a row.
    #[test]
    fn every_pixel_is_the_weighted_mean_of_its_window() {
        for (from, to) in [((31, 400), (13, 259)), ((9, 50), (40, 300))] {
            let (from, size) = (Size::new(from.0, from.1), Size::new(to.0, to.1));
            let bytes = (0..from.width * from.height * 3).map(|i| (i * i * 31 % 251) as u8);
            let image = Image::from_rgb(from, bytes.collect()).unwrap();
            let [one, two, seven] = [1, 2, 7].map(|threads| {
                resize_torch_floats(&image, size, Filter::Bilinear, &Pool::new(threads)).unwrap()
            });
            assert!(one == two && one == seven);
            let [across, down] = [(from.width, size.width), (from.height, size.height)]
                .map(|(input, output)| windows(input, output, Filter::Bilinear));
            for (i, found) in one.iter().enumerate() {
                let (channel, x, y) = (i % 3, i / 3 % size.width, i / 3 / size.width);
                let expected = pixel(&image, down.get(y), across.get(x), channel);
                assert_eq!(found.to_bits(), expected.to_bits(), "{x} {y} {channel}");
            }
        }
    }

    /// One output value, computed directly from its row and column windows.
    fn pixel(
        image: &Image,
        (top, rows): (usize, &[f32]),
        (left, columns): (usize, &[f32]),
        channel: usize,
    ) -> f32 {
        let value = |y: usize, x: usize| image.as_rgb()[(y * image.width() + x) * 3 + channel];
        let row = |y: usize| {
            let terms = columns.iter().enumerate();
            terms.fold(0.0, |sum, (k, weight)| {
                sum + weight * (f32::from(value(y, left + k)) / 255.0)
            })
        };
        rows.iter().enumerate().fold(0.0, |sum, (j, weight)| sum + weight * row(top + j))
    }
}
