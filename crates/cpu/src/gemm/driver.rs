//! Splits a product into tasks and a task into blocks.

use std::ops::Range;

use cutout_parallel::Pool;

use crate::gemm::kernel::{Block, FloatProduct, Product, RowProduct};
use crate::gemm::left::{LeftSource, PanelBlock, RowMajor};
use crate::gemm::pack::{PackedWeights, RightPanels};
use crate::gemm::split::{Shape, Split, Tasks};
use crate::gemm::strassen::{Rule, Strassen};
use crate::gemm::tile::Tile;
use crate::gemm::writer::OutputWriter;
use crate::gemm::{Epilogue, Output};
use crate::simd::dispatch;

/// `output = activation(scale * left · weights^T + bias) + residual`
///
/// With depth zero the sums are zero; without rows nothing is written. The result has the same bits for any number of threads.
///
/// Panics if the depths differ or the output, the bias or the residual is too short.
pub fn gemm(
    pool: &Pool,
    left: &dyn LeftSource,
    weights: &PackedWeights,
    epilogue: &Epilogue<'_>,
    output: Output<'_>,
) {
    assert_eq!(left.depth(), weights.depth(), "depth of the left operand and of the weights");
    let shape = Shape { rows: left.rows(), columns: weights.outputs(), depth: weights.depth() };
    if shape.rows == 0 || shape.columns == 0 {
        return;
    }
    let tile = weights.tile();
    let writer = OutputWriter::new(shape, epilogue, output);
    let whole_depth = writer.needs_complete_sums();
    if weights.may_combine()
        && let Some(strassen) = Strassen::new(shape, tile, Rule::detect(tile.isa))
        && !(whole_depth && strassen.is_partial())
    {
        return strassen.run(pool, left, weights, &writer);
    }
    let mut split = Split::new(shape, tile);
    if whole_depth {
        split = Split::with_depth_block(shape, tile, shape.depth.max(1));
    }
    let tasks = Tasks::new(shape, tile, split);
    let in_place = left.in_place().filter(|rows| reads_in_place(rows, split));
    if let Some(rows) = in_place {
        assert!(rows.rows() == shape.rows && rows.depth() == shape.depth, "the same matrix");
    }
    let scratch = match in_place {
        Some(_) => 0,
        None => split.row_block.next_multiple_of(tile.rows) * split.depth_block,
    };
    weights.for_readers(pool, shape.rows.div_ceil(split.row_block), |right| {
        pool.run_with_scratch(tasks.count(), scratch, &|task, scratch| {
            let (rows, panels) = tasks.get(task);
            for depth in blocks(shape.depth, split.depth_block) {
                let left = match in_place {
                    Some(rows) => LeftRows::InPlace(rows),
                    None => LeftRows::Packed(pack(left, tile, &rows, &depth, scratch)),
                };
                let writer = &writer.for_depths(&depth, shape.depth);
                let rows = rows.clone();
                let block = RowBlock { tile, left, rows, writer, columns: shape.columns };
                block.multiply(right, depth, panels.clone());
            }
        });
    });
}

/// Up to this many right panels a task reads its rows in place: with few columns per row, packing (a transpose) costs more than
/// it saves.
const FEW_PANELS: usize = 24;
/// Bytes of a way of the L1 cache: rows at multiples of this distance fall into the same set and evict each other.
const CACHE_WAY: usize = 4 << 10;

/// Whether a product reads its rows in place.
fn reads_in_place(rows: &RowMajor<'_>, split: Split) -> bool {
    let conflict = rows.row_stride() > 0 && (4 * rows.row_stride()).is_multiple_of(CACHE_WAY);
    split.panel_block <= FEW_PANELS && !conflict
}

/// Packs a block of rows and depths.
fn pack<'a>(
    left: &dyn LeftSource,
    tile: Tile,
    rows: &Range<usize>,
    depth: &Range<usize>,
    scratch: &'a mut [f32],
) -> &'a [f32] {
    let (isa, rows, depth) = (tile.isa, rows.clone(), depth.clone());
    let block = PanelBlock { isa, rows, depth, panel_rows: tile.rows };
    let packed = &mut scratch[..block.len()];
    left.pack(&block, packed);
    packed
}

/// The left operand of a task.
#[derive(Clone, Copy)]
pub(super) enum LeftRows<'a> {
    /// Packed panels of the task's rows and depths.
    Packed(&'a [f32]),
    /// The whole matrix, not packed.
    InPlace(RowMajor<'a>),
}

/// A block of rows of a product.
pub(super) struct RowBlock<'a> {
    pub(super) tile: Tile,
    pub(super) left: LeftRows<'a>,
    /// The rows in the output.
    pub(super) rows: Range<usize>,
    pub(super) writer: &'a OutputWriter<'a>,
    /// Columns of the whole output.
    pub(super) columns: usize,
}

impl RowBlock<'_> {
    /// Multiplies by `panels` of the weights over `depth`, which are the depths of packed rows.
    pub(super) fn multiply(
        &self,
        right: &RightPanels<'_>,
        depth: Range<usize>,
        panels: Range<usize>,
    ) {
        right.for_each(&depth, panels, |right, right_stride, panels| match self.left {
            LeftRows::Packed(left) => {
                let (left, left_stride) = (left.as_ptr(), depth.len() * self.tile.rows);
                let depth = depth.len();
                self.run(FloatProduct { left, left_stride, right, right_stride, depth }, panels);
            }
            LeftRows::InPlace(left) => {
                let product = RowProduct {
                    left: left.at(self.rows.start, depth.start),
                    row_stride: left.row_stride(),
                    last_row: self.rows.len() - 1,
                    right,
                    right_stride,
                    depth: depth.len(),
                };
                self.run(product, panels);
            }
        });
    }

    fn run<P: Product>(&self, product: P, panels: Range<usize>) {
        let block = Block {
            tile: self.tile,
            product,
            writer: self.writer,
            first_row: self.rows.start,
            rows: self.rows.len(),
            first_column: 0,
            panels,
            columns: self.columns,
        };
        dispatch(self.tile.isa, block);
    }
}

/// `0..total` in blocks; one empty block if `total` is zero.
pub(super) fn blocks(total: usize, block: usize) -> impl Iterator<Item = Range<usize>> {
    (0..total.div_ceil(block).max(1)).map(move |i| i * block..total.min((i + 1) * block))
}
