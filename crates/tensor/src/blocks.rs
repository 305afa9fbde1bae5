//! Quantised matrices: signed bytes with one scale per row or per block of 32.

use crate::{Shape, Tensor, TensorError, memory};

/// Elements that share one scale in the blocked form (as in GGUF's `q8_0`).
pub const BLOCK_LENGTH: usize = 32;

/// How many elements of a row share one scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scales {
    /// One scale per row (output channel).
    PerRow,
    /// One scale per [`BLOCK_LENGTH`] elements of a row.
    PerBlock,
}

impl Scales {
    /// Scales per row of `columns` elements.
    pub fn per_row(self, columns: usize) -> usize {
        match self {
            Scales::PerRow => 1,
            Scales::PerBlock => columns.div_ceil(BLOCK_LENGTH),
        }
    }

    /// Elements that share a scale in a row of `columns` elements.
    pub fn block_length(self, columns: usize) -> usize {
        match self {
            Scales::PerRow => columns.max(1),
            Scales::PerBlock => BLOCK_LENGTH,
        }
    }
}

/// A `[rows, columns]` matrix of `value * scale`, values in -127..=127.
#[derive(Clone, Debug)]
pub struct QuantizedMatrix {
    /// `i8[rows, columns]`.
    pub values: Tensor,
    /// `f32[rows, scales]`, see [`Scales::per_row`].
    pub scales: Tensor,
    /// Which elements share a scale.
    pub layout: Scales,
}

impl QuantizedMatrix {
    /// Quantises `f32[rows, columns]`: `scale = max|x| / 127` per group, `value = round(x / scale)`, halves to even.
    pub fn quantize(matrix: &Tensor, layout: Scales) -> Result<Self, TensorError> {
        let shape = expect_matrix(matrix)?;
        matrix.expect_finite()?;
        let matrix = matrix.to_contiguous()?;
        let source = matrix.as_slice::<f32>()?;
        let mut values = memory::zeroed(source.len())?;
        let mut scales = memory::zeroed(shape[0] * layout.per_row(shape[1]))?;
        let mut rest = &mut values[..];
        for (group, scale) in groups(source, &matrix, layout).zip(&mut scales) {
            let (out, after) = rest.split_at_mut(group.len());
            *scale = quantize_group(group, out);
            rest = after;
        }
        let values = Tensor::from_vec(matrix.shape().clone(), values)?;
        let scales = Tensor::from_vec([shape[0], layout.per_row(shape[1])], scales)?;
        Ok(QuantizedMatrix { values, scales, layout })
    }

    /// The scales alone of the quantised `f32[rows, columns]`.
    pub fn scales(matrix: &Tensor, layout: Scales) -> Result<Tensor, TensorError> {
        let [rows, columns] = expect_matrix(matrix)?;
        matrix.expect_finite()?;
        let matrix = matrix.to_contiguous()?;
        let mut scales = memory::with_capacity(rows * layout.per_row(columns))?;
        let groups = groups(matrix.as_slice::<f32>()?, &matrix, layout);
        scales.extend(groups.map(|group| largest_magnitude(group) / 127.0));
        if columns == 0 {
            scales.resize(rows * layout.per_row(columns), 0.0);
        }
        Tensor::from_vec(Shape::from([rows, layout.per_row(columns)]), scales)
    }

    /// The matrix as `f32`.
    pub fn dequantize(&self) -> Result<Tensor, TensorError> {
        let values = self.values.to_vec::<i8>()?;
        let scales = self.scales.to_vec::<f32>()?;
        let columns = self.values.shape().last_axis();
        let block = self.layout.block_length(columns);
        let floats =
            values.chunks(columns.max(1)).flat_map(|row| row.chunks(block)).zip(&scales).flat_map(
                |(group, &scale)| group.iter().map(move |&value| f32::from(value) * scale),
            );
        let floats = memory::collected(values.len(), floats)?;
        Tensor::from_vec(self.values.shape().clone(), floats)
    }
}

/// The shape of a matrix.
fn expect_matrix(matrix: &Tensor) -> Result<[usize; 2], TensorError> {
    match matrix.shape()[..] {
        [rows, columns] => Ok([rows, columns]),
        _ => Err(TensorError::Shape(format!("expected a matrix, got {}", matrix.ty()))),
    }
}

/// Quantises finite numbers that share a scale, which is returned; `out` is as long as the group. Inlined, so that it is compiled
/// for the instruction set of its caller.
#[inline(always)]
pub fn quantize_group(group: &[f32], out: &mut [i8]) -> f32 {
    let scale = largest_magnitude(group) / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    for (out, x) in out.iter_mut().zip(group) {
        *out = nearest(x * inverse);
    }
    scale
}

/// The elements of a matrix that share a scale, one group after the other.
fn groups<'a>(
    elements: &'a [f32],
    matrix: &Tensor,
    layout: Scales,
) -> impl Iterator<Item = &'a [f32]> + use<'a> {
    let columns = matrix.shape().last_axis();
    let block = layout.block_length(columns);
    elements.chunks(columns.max(1)).flat_map(move |row| row.chunks(block))
}

/// The largest magnitude of finite numbers: their bits without the sign are in the order of their magnitudes.
#[inline(always)]
fn largest_magnitude(group: &[f32]) -> f32 {
    let bits = group.iter().map(|x| x.to_bits() & 0x7fff_ffff);
    f32::from_bits(bits.max().unwrap_or(0))
}

/// The nearest whole number within -127..=127, halves to even. Adding 1.5 · 2^23 rounds to whole numbers, in instructions that
/// every processor has vectors of.
#[inline(always)]
fn nearest(x: f32) -> i8 {
    const WHOLE: f32 = 12_582_912.0;
    let rounded = x.clamp(-127.0, 127.0) + WHOLE;
    (rounded.to_bits() as i32 - WHOLE.to_bits() as i32) as i8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantisation_error_is_half_a_step() {
        let source: Vec<f32> = (0..3 * 70).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
        let matrix = Tensor::from_vec([3, 70], source.clone()).unwrap();
        for layout in [Scales::PerRow, Scales::PerBlock] {
            let quantized = QuantizedMatrix::quantize(&matrix, layout).unwrap();
            assert_eq!(quantized.scales.shape()[1], layout.per_row(70));
            let back = quantized.dequantize().unwrap().to_vec::<f32>().unwrap();
            for (value, expected) in back.iter().zip(&source) {
                assert!((value - expected).abs() <= 50.0 / 7.0 / 127.0 * 0.51);
            }
        }
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest_halves_to_even() {
        for (x, expected) in [(0.0, 0), (-0.0, 0), (0.5, 0), (1.5, 2), (2.5, 2), (-2.5, -2)] {
            assert_eq!(nearest(x), expected, "{x}");
        }
        for x in (-1300..=1300).map(|x| x as f32 / 10.0) {
            assert_eq!(f32::from(nearest(x)), x.clamp(-127.0, 127.0).round_ties_even(), "{x}");
        }
        assert_eq!(largest_magnitude(&[1.0, -3.0, 2.0]), 3.0);
    }

    #[test]
    fn zeros_stay_zero_and_nan_is_an_error() {
        let zeros = Tensor::from_vec([2, 4], vec![0f32; 8]).unwrap();
        let quantized = QuantizedMatrix::quantize(&zeros, Scales::PerRow).unwrap();
        assert_eq!(quantized.dequantize().unwrap().to_vec::<f32>().unwrap(), vec![0f32; 8]);
        let bad = Tensor::from_vec([1, 1], vec![f32::NAN]).unwrap();
        assert!(QuantizedMatrix::quantize(&bad, Scales::PerRow).is_err());
    }
}
