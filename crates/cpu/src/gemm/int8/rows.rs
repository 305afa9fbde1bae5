//! The quantised rows of a task.

use std::ops::Range;

use crate::gemm::int8::PackedInt8;
use crate::gemm::int8::quantize::{Offset, quantize_row};
use crate::gemm::left::LeftSource;
use crate::gemm::word_rows::WordRows;
use crate::simd::Isa;

/// Layout of a task's scratch memory, in words of 32 bits: quantised rows, their scales, one row of floats.
#[derive(Clone, Copy)]
pub(super) struct QuantizedRows {
    isa: Isa,
    /// What is added to the bytes.
    offset: Offset,
    /// Most rows of a task.
    rows: usize,
    layout: WordRows,
    /// Floats per row.
    depth: usize,
}

impl QuantizedRows {
    /// Room for `rows` rows of the operand that `weights` are multiplied with on vectors.
    pub(super) fn for_vectors(weights: &PackedInt8, rows: usize) -> QuantizedRows {
        let PackedInt8 { tile, words, depth, .. } = *weights;
        let layout = WordRows::in_rows(words);
        QuantizedRows { isa: tile.isa, offset: Offset::OfVectors, rows, layout, depth }
    }

    /// The same for tile registers.
    pub(super) fn for_tiles(weights: &PackedInt8, rows: usize) -> QuantizedRows {
        let PackedInt8 { tile, words, depth, .. } = *weights;
        let layout = WordRows::in_tiles(words);
        QuantizedRows { isa: tile.isa, offset: Offset::None, rows, layout, depth }
    }

    /// Words from one row to the next, on vectors.
    pub(super) fn stride(&self) -> usize {
        self.layout.stride()
    }

    /// Length of the scratch memory.
    pub(super) fn floats(&self) -> usize {
        self.layout.length(self.rows) + self.rows + self.depth
    }

    /// Quantises rows of the left operand. Returns the rows and the scales, also those of the padding, which mean nothing.
    pub(super) fn quantize<'s>(
        &self,
        left: &dyn LeftSource,
        rows: Range<usize>,
        scratch: &'s mut [f32],
    ) -> (&'s [f32], &'s [f32]) {
        let (bytes, scratch) = scratch.split_at_mut(self.layout.length(self.rows));
        let (scales, gathered) = scratch.split_at_mut(self.rows);
        for (number, (source, scale)) in rows.zip(&mut *scales).enumerate() {
            let lines = self.layout.row(bytes, number);
            *scale = quantize_row(self.isa, left.row(source, gathered), lines, self.offset);
        }
        (bytes, scales)
    }
}
