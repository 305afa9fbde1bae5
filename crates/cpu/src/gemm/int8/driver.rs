//! Splits a product of bytes into tasks and a task into blocks.

use std::ops::Range;

use cutout_parallel::Pool;

use crate::gemm::int8::product::{BlockProduct, ChannelProduct};
use crate::gemm::int8::quantize::quantize_row;
use crate::gemm::int8::{PackedInt8, Scales, padded_depth};
use crate::gemm::kernel::{Block, Product};
use crate::gemm::left::{LeftSource, row_stride};
use crate::gemm::split::{Shape, Split, Tasks};
use crate::gemm::tile::Tile;
use crate::gemm::writer::OutputWriter;
use crate::gemm::{Epilogue, Output};
use crate::simd::{Isa, dispatch};

/// `output = activation(scale * left · weights^T + bias) + residual`, with the left operand quantised row by row and
/// integer sums, as the module's documentation defines.
///
/// With depth zero the sums are zero; without rows nothing is written. The result has the same bits for any number of threads.
///
/// Panics if the depths differ or the output, the bias or the residual is too short.
pub fn gemm_int8(
    pool: &Pool,
    left: &dyn LeftSource,
    weights: &PackedInt8,
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
    let words = padded_depth(shape.depth, weights.granularity) / 4;
    let split = Split::with_depth_block(shape, tile, words.max(1));
    let tasks = Tasks::new(shape, tile, split);
    let layout = QuantizedRows {
        isa: tile.isa,
        rows: split.row_block,
        words,
        stride: row_stride(words),
        depth: shape.depth,
    };
    pool.run_with_scratch(tasks.count(), layout.floats(), &|task, scratch| {
        let (rows, panels) = tasks.get(task);
        let (bytes, row_scales) = layout.quantize(left, rows.clone(), scratch);
        let product = ChannelProduct {
            left: bytes.as_ptr().cast(),
            row_stride: layout.stride,
            last_row: rows.len() - 1,
            row_scales: row_scales.as_ptr(),
            right: weights.data.as_ptr().cast(),
            scales: weights.scales.as_ptr(),
            starts: weights.starts.as_ptr(),
            words,
        };
        let block = OutputBlock { tile, writer: &writer, rows, panels, columns: shape.columns };
        match weights.granularity {
            Scales::PerRow => block.run(product),
            Scales::PerBlock => block.run(BlockProduct(product)),
        }
    });
}

/// The block of the output that a task computes.
struct OutputBlock<'a> {
    tile: Tile,
    writer: &'a OutputWriter<'a>,
    rows: Range<usize>,
    panels: Range<usize>,
    columns: usize,
}

impl OutputBlock<'_> {
    fn run<P: Product>(self, product: P) {
        let block = Block {
            tile: self.tile,
            product,
            writer: self.writer,
            first_row: self.rows.start,
            rows: self.rows.len(),
            first_column: 0,
            panels: self.panels,
            columns: self.columns,
        };
        dispatch(self.tile.isa, block);
    }
}

/// Layout of a task's scratch memory, in words of 32 bits: quantised rows one after the other, their scales, one row of floats.
#[derive(Clone, Copy)]
struct QuantizedRows {
    isa: Isa,
    /// Rows of a task.
    rows: usize,
    /// Words of four bytes per row.
    words: usize,
    /// Words from one row to the next.
    stride: usize,
    /// Floats per row.
    depth: usize,
}

impl QuantizedRows {
    /// Length of the scratch memory.
    fn floats(&self) -> usize {
        self.rows * self.stride + self.rows + self.depth
    }

    /// Quantises rows of the left operand. Returns the rows and their scales.
    fn quantize<'s>(
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
            *scale = quantize_row(self.isa, left.row(source, row), bytes);
        }
        (bytes, scales)
    }
}
