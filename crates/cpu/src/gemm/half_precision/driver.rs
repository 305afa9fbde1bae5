//! Splits a product of bf16 numbers into tasks and a task into blocks.

use std::ops::Range;

use cutout_parallel::Pool;

use crate::gemm::driver::blocks;
use crate::gemm::half_precision::dots::DotProduct;
use crate::gemm::half_precision::rows::{GATHERED_ROWS, RoundedRows};
use crate::gemm::half_precision::{HalfUnit, PackedHalf};
use crate::gemm::kernel::Block;
use crate::gemm::left::LeftSource;
use crate::gemm::split::{Shape, Split, Tasks, even_blocks};
use crate::gemm::tile_block::{TileBlock, TileOperands};
use crate::gemm::word_rows::WordRows;
use crate::gemm::writer::OutputWriter;
use crate::gemm::{Epilogue, Output};
use crate::simd::{dispatch, dispatch_dots};
use crate::tiles::{Amx, Halves, ROWS, TileUnit, Twin};

/// Most pairs of depths per block: a right panel of 48 columns then takes 192 KiB.
const MAX_PAIRS: usize = 1024;
/// The same on tile registers, whose rows of sums wait for nothing else.
const MOST_TILE_PAIRS: usize = 2560;

/// `output = activation(scale * left · weights^T + bias) + residual`, with the left operand rounded to bf16.
///
/// With depth zero the sums are zero; without rows nothing is written. The result has the same bits for any number of threads.
///
/// Panics if the depths differ or the output, the bias or the residual is too short.
pub fn gemm_half(
    pool: &Pool,
    left: &dyn LeftSource,
    weights: &PackedHalf,
    epilogue: &Epilogue<'_>,
    output: Output<'_>,
) {
    assert_eq!(left.depth(), weights.depth(), "depth of the left operand and of the weights");
    let shape = Shape { rows: left.rows(), columns: weights.outputs(), depth: weights.depth() };
    if shape.rows == 0 || shape.columns == 0 {
        return;
    }
    let (tile, pairs) = (weights.tile, weights.pairs);
    let writer = OutputWriter::new(shape, epilogue, output);
    let on_tiles = matches!(weights.unit, HalfUnit::Tiles | HalfUnit::TileTwin);
    let most = if writer.needs_complete_sums() {
        pairs.max(1)
    } else if on_tiles {
        MOST_TILE_PAIRS
    } else {
        MAX_PAIRS
    };
    let depth_block = even_blocks(pairs, most, ROWS);
    let split = match on_tiles {
        true => Split::on_tiles(shape, depth_block),
        false => Split::with_depth_block(shape, tile, depth_block),
    };
    let tasks = Tasks::new(shape, tile, split);
    let layout = |pairs| match on_tiles {
        true => WordRows::in_tiles(pairs),
        false => WordRows::in_rows(pairs),
    };
    let rounded = layout(depth_block).length(split.row_block);
    let gathered = if left.in_place().is_some() { 0 } else { GATHERED_ROWS * 2 * depth_block };
    pool.run_with_scratch(tasks.count(), rounded + gathered, &|task, scratch| {
        let (rows, panels) = tasks.get(task);
        let (rounded, gathered) = scratch.split_at_mut(rounded);
        for pairs in blocks(pairs, split.depth_block) {
            let depth = 2 * pairs.start..shape.depth.min(2 * pairs.end);
            let layout = layout(pairs.len());
            let isa = tile.isa;
            RoundedRows { isa, layout }.round(left, (rows.clone(), depth), rounded, gathered);
            let task = HalfTask {
                weights,
                left: rounded,
                row_stride: layout.stride(),
                writer: &writer.for_depths(&pairs, weights.pairs),
                rows: rows.clone(),
                panels: panels.clone(),
            };
            task.run(pairs);
        }
    });
}

/// The part of a product that a task computes, over a block of depths.
struct HalfTask<'a> {
    weights: &'a PackedHalf,
    /// The task's rows, rounded.
    left: &'a [f32],
    /// Pairs from one of them to the next, on vectors.
    row_stride: usize,
    writer: &'a OutputWriter<'a>,
    rows: Range<usize>,
    panels: Range<usize>,
}

impl HalfTask<'_> {
    fn run(self, pairs: Range<usize>) {
        match self.weights.unit {
            HalfUnit::Tiles => self.run_on_tiles::<Amx>(pairs),
            HalfUnit::TileTwin => self.run_on_tiles::<Twin>(pairs),
            HalfUnit::Dots | HalfUnit::Widened => self.run_dots(pairs),
        }
    }

    fn run_dots(self, pairs: Range<usize>) {
        let HalfTask { weights, left, row_stride, writer, rows, panels } = self;
        let product = DotProduct {
            left: left.as_ptr().cast(),
            row_stride,
            last_row: rows.len() - 1,
            right: weights.at(0, pairs.start),
            right_stride: weights.pairs * weights.tile.columns(),
            pairs: pairs.len(),
        };
        let block = Block {
            tile: weights.tile,
            product,
            writer,
            first_row: rows.start,
            rows: rows.len(),
            first_column: 0,
            panels,
            columns: weights.outputs,
        };
        dispatch_dots(weights.tile.isa, block);
    }

    fn run_on_tiles<U: TileUnit>(self, pairs: Range<usize>) {
        let HalfTask { weights, left, writer, rows, panels, .. } = self;
        let operands = TileOperands {
            left,
            right: bytemuck::cast_slice(&weights.data),
            panel_words: weights.pairs,
            words: pairs,
        };
        let (place, target) = ((rows, panels), (writer, weights.outputs));
        // SAFETY: a weight is packed for tile registers only where the machine has them; the block of the output is the task's.
        let block = unsafe { TileBlock::<U, Halves>::new(operands, Halves, place, target) };
        dispatch(weights.tile.isa, block);
    }
}
