//! Matrix products with fused epilogues.
//!
//! `C[M, N] = epilogue(A[M, K] · W[N, K]^T)`, where `W` was packed once ([`PackedWeights`]) and `A` is anything that can be
//! copied into panels ([`LeftSource`]). All products share one driver:
//!
//! 1. The output is cut into tasks of some rows by some column panels, by shape alone (`split`).
//! 2. A task packs its rows, one block of depths at a time, into its thread's scratch memory (`left`).
//! 3. It multiplies each right panel with each left panel in registers (`kernel`) and finishes the sums there (`finish`).
//!
//! Every sum runs over the depths in order, in blocks fixed by the shape, so its bits do not depend on the thread count.

mod batched;
mod driver;
mod finish;
pub mod int8;
mod kernel;
mod left;
mod pack;
mod right;
mod split;
mod tile;

pub use batched::{BatchedLeft, BatchedOutput, BatchedProduct, BatchedRight, batched_gemm};
pub use cutout_graph::ops::Activation;
pub use driver::gemm;
pub use left::{LeftSource, PanelBlock, RowMajor, interleave_rows};
pub use pack::{PackedWeights, WeightData, WeightView};
pub use tile::Tile;

/// What is added to the activated sums.
#[derive(Clone, Copy, Debug)]
pub enum Residual<'a> {
    /// Nothing.
    None,
    /// A matrix of the output's shape.
    Rows {
        /// Its elements.
        data: &'a [f32],
        /// Elements from one row to the next.
        row_stride: usize,
    },
    /// What the output holds before the product.
    Output,
}

/// What becomes of the sums: `activation(scale * sum + bias) + residual`.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a> {
    /// Factor of the sums.
    pub scale: f32,
    /// One element per column.
    pub bias: Option<&'a [f32]>,
    /// Applied to the scaled and biased sums.
    pub activation: Activation,
    /// Added last.
    pub residual: Residual<'a>,
}

impl Epilogue<'_> {
    /// Leaves the sums as they are.
    pub const NONE: Epilogue<'static> = Epilogue {
        scale: 1.0,
        bias: None,
        activation: Activation::Identity,
        residual: Residual::None,
    };
}

/// Where a product goes: rows of a larger matrix, perhaps.
#[derive(Debug)]
pub struct Output<'a> {
    data: &'a mut [f32],
    row_stride: usize,
    groups: RowGroups,
}

/// Rows that are further apart where one group ends and the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowGroups {
    /// Rows of a group, at least one.
    rows: usize,
    /// Elements between groups, besides the distance of two rows.
    gap: usize,
}

impl RowGroups {
    /// Where row `index` begins.
    #[inline(always)]
    fn start(self, index: usize, row_stride: usize) -> usize {
        // Almost every output has no gaps, and a division costs as much as a few multiply-adds.
        let gaps = if self.gap == 0 { 0 } else { index / self.rows * self.gap };
        index * row_stride + gaps
    }

    /// Whether some of the `count` rows from `first` on are in different groups.
    #[inline(always)]
    fn divide(self, first: usize, count: usize) -> bool {
        self.gap != 0 && first % self.rows + count > self.rows
    }
}

impl<'a> Output<'a> {
    /// An output whose rows start `row_stride` elements apart. What lies between the end of one row and the start of the next
    /// is not touched.
    pub fn new(data: &'a mut [f32], row_stride: usize) -> Output<'a> {
        Output { data, row_stride, groups: RowGroups { rows: 1, gap: 0 } }
    }

    /// Like [`Output::new`], with `gap` further elements, not touched either, between every `group_rows` rows and the next.
    /// A residual has the same gaps.
    pub fn grouped(
        data: &'a mut [f32],
        row_stride: usize,
        group_rows: usize,
        gap: usize,
    ) -> Output<'a> {
        assert!(group_rows > 0, "groups have rows");
        Output { data, row_stride, groups: RowGroups { rows: group_rows, gap } }
    }
}

#[cfg(test)]
mod tests;
