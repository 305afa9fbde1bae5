//! Matrix products with fused epilogues.
//!
//! `C[M, N] = epilogue(A[M, K] · W[N, K]^T)`, where `W` was packed once ([`PackedWeights`]) and `A` is anything that can be
//! copied into panels ([`LeftSource`]). All products share one driver:
//!
//! 1. The output is cut into tasks of some rows by some column panels, by shape alone (`split`).
//! 2. A task packs its rows, one block of depths at a time, into its thread's scratch memory (`left`).
//! 3. It multiplies each right panel with each left panel in registers (`kernel`) and finishes the sums there (`finish`).
//!
//! Large products are cut in another way, with seven multiplications for eight (`strassen`). Several products can be summed
//! into several outputs on the way (`combined`), as convolutions do that multiply less than once per element of their kernel.
//!
//! Every sum runs over the depths in order, in blocks fixed by the shape, so its bits do not depend on the thread count.

mod batched;
mod combined;
mod driver;
mod epilogue;
pub mod int8;
mod kernel;
mod left;
mod pack;
mod right;
mod split;
mod strassen;
mod terms;
mod tile;
mod writer;

pub use batched::{BatchedLeft, BatchedOutput, BatchedProduct, BatchedRight, batched_gemm};
pub use combined::{LeftSides, Quarters, Term, combined_gemm};
pub use cutout_graph::ops::Activation;
pub use driver::gemm;
pub use epilogue::{Epilogue, Residual};
pub use left::{LeftSource, PanelBlock, RowMajor, interleave_rows};
pub use pack::{PackedWeights, WeightData, WeightView};
pub use terms::Use;
pub use tile::Tile;

/// Where a product goes: rows of a larger matrix, perhaps.
#[derive(Debug)]
pub struct Output<'a> {
    data: &'a mut [f32],
    row_stride: usize,
    rows: Groups,
    columns: Groups,
}

/// What groups of columns are multiples of: the lanes of the widest vector, so that no vector is in two of them.
pub const GROUP_COLUMNS: usize = 16;

/// Rows or columns that are further apart where one group ends and the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Rows or columns of a group, at least one.
    pub length: usize,
    /// Elements between groups, besides the usual distance of two rows or columns. Nothing touches them.
    pub gap: usize,
}

impl Groups {
    /// No gaps.
    pub const NONE: Groups = Groups { length: 1, gap: 0 };

    /// Where row or column `index` begins.
    #[inline(always)]
    fn start(self, index: usize, stride: usize) -> usize {
        // Almost every output has no gaps, and a division costs as much as a few multiply-adds.
        let gaps = if self.gap == 0 { 0 } else { index / self.length * self.gap };
        index * stride + gaps
    }

    /// Whether some of the `count` rows or columns from `first` on are in different groups.
    #[inline(always)]
    fn divide(self, first: usize, count: usize) -> bool {
        self.gap != 0 && first % self.length + count > self.length
    }
}

impl<'a> Output<'a> {
    /// An output whose rows start `row_stride` elements apart. What lies between the end of one row and the start of the next
    /// is not touched.
    pub fn new(data: &'a mut [f32], row_stride: usize) -> Output<'a> {
        Output { data, row_stride, rows: Groups::NONE, columns: Groups::NONE }
    }

    /// Like [`Output::new`], with gaps between groups of rows and of columns. Groups of columns are multiples of
    /// [`GROUP_COLUMNS`], unless there is only one. A residual has the same gaps.
    pub fn grouped(
        data: &'a mut [f32],
        row_stride: usize,
        rows: Groups,
        columns: Groups,
    ) -> Output<'a> {
        assert!(rows.length > 0 && columns.length > 0, "groups are not empty");
        Output { data, row_stride, rows, columns }
    }

    /// Whether no two elements of a product with `columns` columns overlap: a row ends before the next begins, a group of rows
    /// before its next group of columns, and all groups of columns before the next group of rows.
    fn is_disjoint(&self, columns: usize) -> bool {
        let Output { row_stride, rows, columns: groups, .. } = *self;
        let (length, count) = match groups.gap {
            0 => (columns, 1),
            _ => (groups.length, columns.div_ceil(groups.length)),
        };
        let apart = if rows.length == 1 { row_stride + rows.gap } else { row_stride };
        let row_group = rows.length * row_stride;
        let column_group = groups.length + groups.gap;
        apart >= length
            && (count == 1
                || (row_group <= column_group && count * column_group <= row_group + rows.gap))
    }
}

#[cfg(test)]
mod tests;
