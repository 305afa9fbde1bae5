//! The quantised rows of a task, one after the other.

use std::ops::Range;

use crate::gemm::int8::PackedInt8;
use crate::gemm::int8::quantize::{Offset, quantize_row};
use crate::gemm::left::{LeftSource, row_stride};
use crate::simd::Isa;

/// Layout of a task's scratch memory, in words of 32 bits: quantised rows one after the other, their scales, one row of floats.
#[derive(Clone, Copy)]
pub(super) struct QuantizedRows {
    isa: Isa,
    /// What is added to the bytes.
    offset: Offset,
    /// Rows of a task, padded to what the unit reads at once.
    rows: usize,
    /// Words of four bytes per row.
    words: usize,
    /// Words from one row to the next.
    stride: usize,
    /// Floats per row.
    depth: usize,
}

impl QuantizedRows {
    /// Room for `rows` rows of the operand that `weights` are multiplied with.
    pub(super) fn new(weights: &PackedInt8, rows: usize, offset: Offset) -> QuantizedRows {
        let PackedInt8 { tile, words, depth, .. } = *weights;
        QuantizedRows { isa: tile.isa, offset, rows, words, stride: row_stride(words), depth }
    }

    /// Words from one row to the next.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Length of the scratch memory.
    pub(super) fn floats(&self) -> usize {
        self.rows * self.stride + self.rows + self.depth
    }

    /// Quantises rows of the left operand. Returns the rows and the scales, also those of the padding, which mean nothing.
    pub(super) fn quantize<'s>(
        &self,
        left: &dyn LeftSource,
        rows: Range<usize>,
        scratch: &'s mut [f32],
    ) -> (&'s [f32], &'s [f32]) {
        let (bytes, scratch) = scratch.split_at_mut(self.rows * self.stride);
        let (scales, row) = scratch.split_at_mut(self.rows);
        let targets = bytes.chunks_exact_mut(self.stride.max(1)).zip(&mut *scales);
        for (source, (bytes, scale)) in rows.zip(targets) {
            let bytes = bytemuck::cast_slice_mut(&mut bytes[..self.words]);
            *scale = quantize_row(self.isa, left.row(source, row), bytes, self.offset);
        }
        (bytes, scales)
    }
}
