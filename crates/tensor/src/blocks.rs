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
    /// Quantises `f32[rows, columns]`: `scale = max|x| / 127` per group, `value = round(x / scale)`.
    pub fn quantize(matrix: &Tensor, layout: Scales) -> Result<Self, TensorError> {
        let &[rows, columns] = &matrix.shape()[..] else {
            return Err(TensorError::Shape(format!("expected a matrix, got {}", matrix.ty())));
        };
        let source = matrix.to_vec::<f32>()?;
        matrix.expect_finite()?;
        let block = layout.block_length(columns);
        let mut values = memory::with_capacity(source.len())?;
        let mut scales = memory::with_capacity(rows * layout.per_row(columns))?;
        for group in source.chunks(columns.max(1)).flat_map(|row| row.chunks(block)) {
            let scale = group.iter().fold(0f32, |largest, x| largest.max(x.abs())) / 127.0;
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            scales.push(scale);
            values.extend(group.iter().map(|x| (x * inverse).round().clamp(-127.0, 127.0) as i8));
        }
        if columns == 0 {
            scales.resize(rows * layout.per_row(columns), 0.0);
        }
        Ok(QuantizedMatrix {
            values: Tensor::from_vec(matrix.shape().clone(), values)?,
            scales: Tensor::from_vec(Shape::from([rows, layout.per_row(columns)]), scales)?,
            layout,
        })
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
    fn zeros_stay_zero_and_nan_is_an_error() {
        let zeros = Tensor::from_vec([2, 4], vec![0f32; 8]).unwrap();
        let quantized = QuantizedMatrix::quantize(&zeros, Scales::PerRow).unwrap();
        assert_eq!(quantized.dequantize().unwrap().to_vec::<f32>().unwrap(), vec![0f32; 8]);
        let bad = Tensor::from_vec([1, 1], vec![f32::NAN]).unwrap();
        assert!(QuantizedMatrix::quantize(&bad, Scales::PerRow).is_err());
    }
}
