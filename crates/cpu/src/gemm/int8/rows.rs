//! The quantised rows of a task.

use std::ops::Range;

use crate::gemm::driver::blocks;
use crate::gemm::int8::PackedInt8;
use crate::gemm::int8::quantize::{Offset, quantize_row};
use crate::gemm::left::{LeftSource, PanelBlock};
use crate::gemm::word_rows::WordRows;
use crate::simd::Isa;

/// Most elements that are packed at a time, where rows cannot be read in place: half of a small L1 cache.
const GATHERED: usize = 4096;
/// Most rows that are packed at a time.
const GATHERED_ROWS: usize = 16;

/// Layout of a task's scratch memory, in words of 32 bits: quantised rows, their scales, some rows of floats.
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
        self.layout.length(self.rows) + self.rows + self.gathered_rows() * self.depth
    }

    /// Rows that are packed at a time.
    fn gathered_rows(&self) -> usize {
        (GATHERED / self.depth.max(1)).clamp(1, GATHERED_ROWS)
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
        let mut runs = Vec::new();
        left.runs(rows.start, &mut runs);
        let packs = runs.is_empty();
        for block in blocks(rows.len(), self.gathered_rows()) {
            if packs {
                self.gather(left, rows.start + block.start..rows.start + block.end, gathered);
            }
            for number in block.clone() {
                let packed = [&gathered[(number - block.start) * self.depth..][..self.depth]];
                runs.clear();
                left.runs(rows.start + number, &mut runs);
                let row = if packs { &packed } else { &runs[..] };
                let lines = self.layout.row(bytes, number);
                scales[number] = quantize_row(self.isa, row, lines, self.offset);
            }
        }
        (bytes, scales)
    }

    /// Packs rows of the left operand.
    fn gather(&self, left: &dyn LeftSource, rows: Range<usize>, out: &mut [f32]) {
        let block = PanelBlock { isa: self.isa, rows, depth: 0..self.depth, panel_rows: 1 };
        left.pack(&block, &mut out[..block.len()]);
    }
}
