//! Batched products of two activations: neither operand is packed in advance.

use std::ops::Range;

use cutout_parallel::Pool;

use crate::gemm::driver::blocks;
use crate::gemm::kernel::{Block, FloatProduct};
use crate::gemm::left::{LeftSource, PanelBlock, RowMajor};
use crate::gemm::right::{RightBlock, RightView};
use crate::gemm::split::{Shape, even_blocks};
use crate::gemm::tile::Tile;
use crate::gemm::writer::OutputWriter;
use crate::gemm::{Epilogue, Output, Residual};
use crate::simd::{Isa, dispatch};

/// `batch` products of `rows` by `depth` with `depth` by `columns`.
#[derive(Clone, Copy, Debug)]
pub struct BatchedProduct<'a> {
    /// The instruction set to compute with.
    pub isa: Isa,
    /// Number of products.
    pub batch: usize,
    /// Rows of each left operand and output.
    pub rows: usize,
    /// Columns of each right operand and output.
    pub columns: usize,
    /// Length of the sums.
    pub depth: usize,
    /// Left operands, contiguous in depth.
    pub left: BatchedLeft<'a>,
    /// Right operands, in any memory order.
    pub right: BatchedRight<'a>,
}

/// Left operands: product `b`, row `m`, depth `k` is at `b * batch_stride + m * row_stride + k`.
#[derive(Clone, Copy, Debug)]
pub struct BatchedLeft<'a> {
    /// The elements.
    pub data: &'a [f32],
    /// Elements from one product to the next; zero to share one left operand.
    pub batch_stride: usize,
    /// Elements from one row to the next.
    pub row_stride: usize,
}

/// Right operands: product `b`, depth `k`, column `n` is at `b * batch_stride + k * depth_stride + n * column_stride`. Packing is
/// fast if one of the last two is 1: `B[K, N]` has strides `(N, 1)`, `B[N, K]` (for `A · B^T`) has `(1, K)`.
#[derive(Clone, Copy, Debug)]
pub struct BatchedRight<'a> {
    /// The elements.
    pub data: &'a [f32],
    /// Elements from one product to the next; zero to share one right operand.
    pub batch_stride: usize,
    /// Elements from one depth to the next.
    pub depth_stride: usize,
    /// Elements from one column to the next.
    pub column_stride: usize,
}

/// Outputs: product `b`, row `m`, column `n` is at `b * batch_stride + m * row_stride + n`.
#[derive(Debug)]
pub struct BatchedOutput<'a> {
    /// The elements.
    pub data: &'a mut [f32],
    /// Elements from one product to the next.
    pub batch_stride: usize,
    /// Elements from one row to the next.
    pub row_stride: usize,
}

/// Bytes of packed right panels and of packed left panels of a task: together half of a 1 MiB L2 cache.
const RIGHT_BYTES: usize = 320 << 10;
const LEFT_BYTES: usize = 192 << 10;
/// Most depths per block.
const MAX_DEPTH: usize = 512;
/// Most rows of a task: the right operand is packed once for all of them.
const MAX_TASK_ROWS: usize = 576;

/// Block sizes of a batched product, chosen by shape alone.
#[derive(Clone, Copy)]
struct BatchSplit {
    task_rows: usize,
    row_block: usize,
    column_block: usize,
    depth_block: usize,
}

impl BatchSplit {
    fn new(shape: Shape, tile: Tile) -> BatchSplit {
        let depth_block = even_blocks(shape.depth, MAX_DEPTH, 16);
        let row_block = even_blocks(shape.rows, LEFT_BYTES / 4 / depth_block, tile.rows);
        BatchSplit {
            task_rows: even_blocks(shape.rows, MAX_TASK_ROWS.max(row_block), row_block),
            row_block,
            column_block: even_blocks(shape.columns, RIGHT_BYTES / 4 / depth_block, tile.columns()),
            depth_block,
        }
    }
}

/// `output[b] = activation(scale * left[b] · right[b] + bias) + residual` for each product `b` of the batch.
///
/// The right operand is packed on the fly. The residual has the batch stride of the output. With depth zero the sums are zero.
/// The result has the same bits for any number of threads.
///
/// Panics if a matrix reaches beyond its data or if outputs overlap.
pub fn batched_gemm(
    pool: &Pool,
    product: &BatchedProduct<'_>,
    epilogue: &Epilogue<'_>,
    output: BatchedOutput<'_>,
) {
    let BatchedProduct { batch, rows, columns, depth, .. } = *product;
    let shape = Shape { rows, columns, depth };
    if batch == 0 || rows == 0 || columns == 0 {
        return;
    }
    product.check();
    let batch_stride = output.batch_stride;
    let writer = first_writer(product, epilogue, output);
    let tile = Tile::choose(product.isa, columns);
    let mut split = BatchSplit::new(shape, tile);
    if writer.needs_complete_sums() {
        split.depth_block = depth.max(1);
    }
    let (row_tasks, column_tasks) =
        (rows.div_ceil(split.task_rows), columns.div_ceil(split.column_block));
    let left_size = split.row_block * split.depth_block;
    let scratch = left_size + split.column_block * split.depth_block;
    pool.run_with_scratch(batch * row_tasks * column_tasks, scratch, &|task, scratch| {
        let (index, rest) = (task / (row_tasks * column_tasks), task % (row_tasks * column_tasks));
        let block = OutputBlock {
            product,
            writer: writer.shifted(index * batch_stride),
            index,
            rows: block_of(rest / column_tasks, split.task_rows, rows),
            columns: block_of(rest % column_tasks, split.column_block, columns),
        };
        let (left, right) = scratch.split_at_mut(left_size);
        block.run(tile, split, left, right);
    });
}

/// Block number `index` of `0..total`.
fn block_of(index: usize, block: usize, total: usize) -> Range<usize> {
    index * block..total.min((index + 1) * block)
}

impl BatchedProduct<'_> {
    /// Panics unless every element lies inside its data.
    fn check(&self) {
        if self.depth == 0 {
            return;
        }
        let (batch, rows, columns, depth) =
            (self.batch - 1, self.rows - 1, self.columns - 1, self.depth - 1);
        let last = batch * self.left.batch_stride + rows * self.left.row_stride + depth;
        assert!(last < self.left.data.len(), "left operand: element {last} needed");
        let right = &self.right;
        let last =
            batch * right.batch_stride + depth * right.depth_stride + columns * right.column_stride;
        assert!(last < right.data.len(), "right operand: element {last} needed");
    }
}

/// Checks the output and the residual of all products; the writer of the first.
fn first_writer<'a>(
    product: &BatchedProduct<'_>,
    epilogue: &Epilogue<'a>,
    output: BatchedOutput<'_>,
) -> OutputWriter<'a> {
    let BatchedProduct { batch, rows, columns, depth, .. } = *product;
    let BatchedOutput { data, batch_stride, row_stride } = output;
    let extent = (rows - 1) * row_stride + columns;
    let one_after_the_other = batch_stride >= extent;
    let side_by_side =
        batch_stride >= columns && row_stride >= (batch - 1) * batch_stride + columns;
    assert!(batch == 1 || one_after_the_other || side_by_side, "the outputs overlap");
    let needed = (batch - 1) * batch_stride + extent;
    assert!(needed <= data.len(), "output: {needed} elements needed, {} given", data.len());
    if let Residual::Rows { data, row_stride } = epilogue.residual {
        let (needed, given) =
            ((batch - 1) * batch_stride + (rows - 1) * row_stride + columns, data.len());
        assert!(needed <= given, "residual: {needed} elements needed, {given} given");
    }
    let shape = Shape { rows, columns, depth };
    let writer = OutputWriter::new(shape, epilogue, Output::new(data, row_stride));
    OutputWriter { streaming: false, ..writer }
}

/// The block of one product's output that a task computes.
struct OutputBlock<'a> {
    product: &'a BatchedProduct<'a>,
    writer: OutputWriter<'a>,
    index: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl OutputBlock<'_> {
    fn run(&self, tile: Tile, split: BatchSplit, left: &mut [f32], right: &mut [f32]) {
        let BatchedProduct { rows, columns, depth: total, left: matrix, right: other, .. } =
            *self.product;
        let source = RowMajor::new(
            &matrix.data[if total == 0 { 0 } else { self.index * matrix.batch_stride }..],
            rows,
            total,
            matrix.row_stride,
        );
        let view = RightView {
            data: &other.data[if total == 0 { 0 } else { self.index * other.batch_stride }..],
            column_stride: other.column_stride,
            depth_stride: other.depth_stride,
        };
        for depth in blocks(total, split.depth_block) {
            let writer = self.writer.for_depths(&depth, total);
            let block = RightBlock { tile, columns: self.columns.clone(), depth: depth.clone() };
            view.pack(&block, right);
            for rows in blocks(self.rows.len(), split.row_block) {
                let rows = self.rows.start + rows.start..self.rows.start + rows.end;
                let (isa, panel_rows) = (tile.isa, tile.rows);
                let block =
                    PanelBlock { isa, rows: rows.clone(), depth: depth.clone(), panel_rows };
                source.pack(&block, &mut left[..block.len()]);
                let product = FloatProduct {
                    left: left.as_ptr(),
                    left_stride: depth.len() * tile.rows,
                    right: right.as_ptr(),
                    right_stride: depth.len() * tile.columns(),
                    depth: depth.len(),
                };
                let block = Block {
                    tile,
                    product,
                    writer: &writer,
                    first_row: rows.start,
                    rows: rows.len(),
                    first_column: self.columns.start,
                    panels: 0..self.columns.len().div_ceil(tile.columns()),
                    columns,
                };
                dispatch(tile.isa, block);
            }
        }
    }
}
