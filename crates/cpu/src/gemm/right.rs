//! The right operand of a product, packed into panels: weights once, activations in every run.

use std::ops::Range;

use crate::gemm::left::InterleaveRows;
use crate::gemm::tile::Tile;
use crate::simd::{MAX_LANES, dispatch};

/// A right operand in memory: column `n` at depth `k` is at `n * column_stride + k * depth_stride`.
#[derive(Clone, Copy)]
pub(super) struct RightView<'a> {
    pub(super) data: &'a [f32],
    pub(super) column_stride: usize,
    pub(super) depth_stride: usize,
}

/// Columns and depths of a block that is packed as `[panel][depth][tile.columns()]`.
#[derive(Clone, Debug)]
pub(super) struct RightBlock {
    pub(super) tile: Tile,
    pub(super) columns: Range<usize>,
    pub(super) depth: Range<usize>,
}

impl RightBlock {
    /// Elements of the packed block.
    pub(super) fn len(&self) -> usize {
        self.columns.len().next_multiple_of(self.tile.columns()) * self.depth.len()
    }
}

impl RightView<'_> {
    /// Packs a block, with zeros beyond the last column.
    pub(super) fn pack(&self, block: &RightBlock, out: &mut [f32]) {
        let width = block.tile.columns();
        let size = width * block.depth.len();
        if size == 0 {
            return;
        }
        for (index, panel) in out[..block.len()].chunks_exact_mut(size).enumerate() {
            let first = block.columns.start + index * width;
            let columns = first..block.columns.end.min(first + width);
            if self.depth_stride == 1 {
                self.pack_transposed(block, columns, panel);
            } else {
                self.pack_rows(block, columns, panel);
            }
        }
    }

    /// Packs a panel whose columns are contiguous in depth.
    fn pack_transposed(&self, block: &RightBlock, columns: Range<usize>, panel: &mut [f32]) {
        let (isa, width) = (block.tile.isa, block.tile.columns());
        for group in 0..block.tile.vectors {
            let first = columns.start + group * isa.lanes();
            let mut slices: [&[f32]; MAX_LANES] = [&[]; MAX_LANES];
            let count = columns.end.saturating_sub(first).min(isa.lanes());
            for (slice, column) in slices.iter_mut().zip(first..first + count) {
                *slice = &self.data[column * self.column_stride..][block.depth.clone()];
            }
            let out = &mut panel[group * isa.lanes()..];
            dispatch(isa, InterleaveRows::new(width, block.depth.len(), &slices[..count], out));
        }
    }

    /// Packs a panel of any other layout, depth by depth.
    fn pack_rows(&self, block: &RightBlock, columns: Range<usize>, panel: &mut [f32]) {
        let width = block.tile.columns();
        for (row, k) in panel.chunks_exact_mut(width).zip(block.depth.clone()) {
            let (row, padding) = row.split_at_mut(columns.len());
            let start = k * self.depth_stride;
            if self.column_stride == 1 {
                row.copy_from_slice(&self.data[start..][columns.clone()]);
            } else {
                for (element, n) in row.iter_mut().zip(columns.clone()) {
                    *element = self.data[start + n * self.column_stride];
                }
            }
            padding.fill(0.0);
        }
    }
}
