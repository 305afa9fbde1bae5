//! Splits a product of bytes into tasks and a task into blocks.

use std::ops::Range;

use cutout_parallel::Pool;

use crate::gemm::int8::product::{BlockProduct, ChannelProduct};
use crate::gemm::int8::rows::QuantizedRows;
use crate::gemm::int8::tile_product::TileTasks;
use crate::gemm::int8::{ByteUnit, PackedInt8, Scales};
use crate::gemm::kernel::{Block, Product};
use crate::gemm::left::LeftSource;
use crate::gemm::split::{Shape, Split, Tasks};
use crate::gemm::tile::Tile;
use crate::gemm::writer::OutputWriter;
use crate::gemm::{Epilogue, Output};
use crate::simd::dispatch;
use crate::tiles::{Amx, Twin};

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
    let writer = OutputWriter::new(shape, epilogue, output);
    let on_tiles = TileTasks { left, weights, writer: &writer, shape };
    match weights.unit {
        ByteUnit::Tiles => on_tiles.run::<Amx>(pool),
        ByteUnit::TileTwin => on_tiles.run::<Twin>(pool),
        ByteUnit::Vectors => by_vectors(pool, left, weights, (&writer, shape)),
    }
}

/// The product on vector registers.
fn by_vectors(
    pool: &Pool,
    left: &dyn LeftSource,
    weights: &PackedInt8,
    (writer, shape): (&OutputWriter<'_>, Shape),
) {
    let PackedInt8 { tile, words, .. } = *weights;
    let split = Split::with_depth_block(shape, tile, words.max(1));
    let tasks = Tasks::new(shape, tile, split);
    let layout = QuantizedRows::for_vectors(weights, split.row_block);
    pool.run_with_scratch(tasks.count(), layout.floats(), &|task, scratch| {
        let (rows, panels) = tasks.get(task);
        let (bytes, row_scales) = layout.quantize(left, rows.clone(), scratch);
        let product = ChannelProduct {
            left: bytes.as_ptr().cast(),
            row_stride: layout.stride(),
            last_row: rows.len() - 1,
            row_scales: row_scales.as_ptr(),
            right: weights.data.as_ptr().cast(),
            scales: weights.scales.as_ptr(),
            starts: weights.starts.as_ptr(),
            words,
        };
        let block = OutputBlock { tile, writer, rows, panels, columns: shape.columns };
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
