//! The resize on floats.

use super::window::{Filter, Windows};
use crate::{Image, ImageError, Size};

/// `torchvision.transforms.Resize(size)` (antialiased) of the tensor that `ToTensor` makes of a picture:
/// f32 `[height, width, 3]`, values 0 to 1.
pub fn resize_torch_floats(
    image: &Image,
    size: Size,
    filter: Filter,
) -> Result<Vec<f32>, ImageError> {
    let pixels = size.pixels(12)?;
    let across = Windows::new(image.width(), size.width, filter).map(|weight| weight as f32);
    let down = Windows::new(image.height(), size.height, filter).map(|weight| weight as f32);
    let length = 3 * size.width;
    let mut output = vec![0.0; pixels * 3];
    // Rows of the input, already of the output's width; each is made once and dropped when no window needs it.
    let mut rows: Vec<(usize, Vec<f32>)> = Vec::new();
    let source: Vec<&[u8]> = image.as_rgb().chunks_exact(3 * image.width()).collect();
    for (i, result) in output.chunks_exact_mut(length).enumerate() {
        let (start, weights) = down.get(i);
        rows.retain(|(row, _)| *row >= start);
        let next = rows.last().map_or(start, |(row, _)| row + 1);
        let missing = source.iter().enumerate().take(start + weights.len()).skip(next);
        rows.extend(missing.map(|(row, pixels)| (row, shrink_row(pixels, &across))));
        for (weight, (_, row)) in weights.iter().zip(&rows) {
            for (sum, value) in result.iter_mut().zip(row) {
                *sum += weight * value;
            }
        }
    }
    Ok(output)
}

fn shrink_row(row: &[u8], across: &Windows<f32>) -> Vec<f32> {
    let mut result = vec![0.0; 3 * across.len()];
    for (i, pixel) in result.chunks_exact_mut(3).enumerate() {
        let (start, weights) = across.get(i);
        for (weight, from) in weights.iter().zip(row[3 * start..].chunks_exact(3)) {
            for (sum, value) in pixel.iter_mut().zip(from) {
                *sum += weight * (f32::from(*value) / 255.0);
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_stays_constant() {
        let image = Image::filled(Size::new(40, 30), [51, 0, 255]).unwrap();
        let output = resize_torch_floats(&image, Size::new(7, 90), Filter::Bilinear).unwrap();
        for pixel in output.chunks_exact(3) {
            for (found, expected) in pixel.iter().zip([0.2, 0.0, 1.0]) {
                assert!((found - expected).abs() < 1e-6);
            }
        }
    }
}
