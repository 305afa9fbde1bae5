//! Matrix products with fused epilogues.
//!
//! `C[M, N] = epilogue(A[M, K] · W[N, K]^T)`, where `W` was packed once ([`PackedWeights`]) and `A` is anything that can be
//! copied into panels ([`LeftSource`]). The steps:
//!
//! 1. The output is split into tasks of some rows by some column panels, by shape alone (`split`).
//! 2. A task packs its rows, one block of depths at a time, into its thread's scratch memory (`left`).
//! 3. It multiplies each left panel with each right panel in registers (`kernel`), applies the epilogue there (`epilogue`) and
//!    stores the tile (`writer`).
//!
//! Large products use Strassen's algorithm, seven multiplications instead of eight (`strassen`). `combined` sums several products
//! into several outputs, for Winograd convolutions.
//!
//! Every sum runs over the depths in order, in blocks fixed by the shape, so its bits do not depend on the thread count.

mod batched;
mod combined;
mod driver;
mod epilogue;
pub mod half_precision;
pub mod int8;
mod kernel;
mod left;
mod matrix;
mod pack;
mod right;
mod split;
mod strassen;
mod terms;
mod tile;
mod tile_block;
mod word_rows;
mod writer;

pub use batched::{BatchedLeft, BatchedOutput, BatchedProduct, BatchedRight, batched_gemm};
pub use combined::{LeftOperands, Quarters, Term, combined_gemm};
pub use cutout_graph::ops::Activation;
pub use driver::gemm;
pub use epilogue::{Epilogue, Residual};
pub use half_precision::HalfUnit;
pub use int8::ByteUnit;
pub use left::{LeftSource, PanelBlock, RUN_UNIT, RowMajor, interleave_rows};
pub(crate) use matrix::weight_data;
pub use matrix::{Arithmetic, ByteConvolutions, Matrix};
pub use pack::{PackedWeights, WeightData, WeightView};
pub use strassen::strassen_rule;
pub use terms::Use;
pub use tile::Tile;

/// The matrix that a product is stored in. Its rows may be parts of longer rows.
#[derive(Debug)]
pub struct Output<'a> {
    data: &'a mut [f32],
    row_stride: usize,
    rows: Groups,
    columns: Groups,
}

/// Groups of columns are multiples of this, so that no vector spans two groups.
pub const GROUP_COLUMNS: usize = crate::simd::MAX_LANES;

/// Rows or columns in groups, with a gap after each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Rows or columns of a group, at least one.
    pub length: usize,
    /// Elements between two groups, in addition to the stride of rows or columns. They are not written.
    pub gap: usize,
}

impl Groups {
    /// No gaps.
    pub const NONE: Groups = Groups { length: 1, gap: 0 };

    /// Offset of row or column `index`.
    #[inline(always)]
    fn start(self, index: usize, stride: usize) -> usize {
        // Almost every output has no gaps, and a division costs as much as a few multiply-adds.
        let gaps = if self.gap == 0 { 0 } else { index / self.length * self.gap };
        index * stride + gaps
    }

    /// Whether the `count` rows or columns from `first` on span more than one group.
    #[inline(always)]
    fn divide(self, first: usize, count: usize) -> bool {
        self.gap != 0 && first % self.length + count > self.length
    }
}

impl<'a> Output<'a> {
    /// An output whose rows start `row_stride` elements apart. Elements between the end of a row and the start of the next are
    /// not written.
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
pub(crate) mod tests;
