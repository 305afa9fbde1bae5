//! Splits a product of bytes into tasks and a task into blocks.

use std::ops::Range;

use cutout_parallel::Pool;

use crate::gemm::int8::product::{BlockProduct, ChannelProduct};
use crate::gemm::int8::quantize::{Offset, quantize_row};
use crate::gemm::int8::tile_product::TileTasks;
use crate::gemm::int8::{ByteUnit, PackedInt8, Scales};
use crate::gemm::kernel::{Block, Product};
use crate::gemm::left::{InterleaveRows, LeftSource, PanelBlock};
use crate::gemm::split::{Shape, Split, Tasks};
use crate::gemm::tile::Tile;
use crate::gemm::writer::OutputWriter;
use crate::gemm::{Epilogue, Output};
use crate::simd::{MAX_LANES, dispatch};
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
    let split = Split::with_depth_block(shape, weights.tile, weights.words.max(1));
    let on_tiles = TileTasks { left, weights, writer: &writer, shape, split };
    match weights.unit {
        ByteUnit::Tiles => on_tiles.run::<Amx>(pool),
        ByteUnit::TileTwin => on_tiles.run::<Twin>(pool),
        ByteUnit::Vectors => by_vectors(pool, left, weights, (&writer, shape, split)),
    }
}

/// The product on vector registers.
fn by_vectors(
    pool: &Pool,
    left: &dyn LeftSource,
    weights: &PackedInt8,
    (writer, shape, split): (&OutputWriter<'_>, Shape, Split),
) {
    let PackedInt8 { tile, words, .. } = *weights;
    let tasks = Tasks::new(shape, tile, split);
    let layout = ScratchLayout { rows: split.row_block, words, depth: shape.depth, tile };
    pool.run_with_scratch(tasks.count(), layout.floats(), &|task, scratch| {
        let (rows, panels) = tasks.get(task);
        let (packed, row_scales) = layout.quantize(left, rows.clone(), scratch);
        let product = ChannelProduct {
            left: packed.as_ptr().cast(),
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

/// Layout of a task's scratch memory, in units of 32 bits.
#[derive(Clone, Copy)]
struct ScratchLayout {
    /// Rows of a task.
    rows: usize,
    /// Words of four bytes per packed row.
    words: usize,
    /// Floats per row.
    depth: usize,
    tile: Tile,
}

impl ScratchLayout {
    /// Length of the scratch memory: packed panels, row scales, the quantised rows of one panel, one row of floats.
    fn floats(&self) -> usize {
        let rows = self.rows.next_multiple_of(self.tile.rows);
        rows * self.words + rows + self.tile.rows * self.words + self.depth
    }

    /// Quantises rows of the left operand into panels. Returns the panels and the row scales.
    fn quantize<'s>(
        &self,
        left: &dyn LeftSource,
        rows: Range<usize>,
        scratch: &'s mut [f32],
    ) -> (&'s [f32], &'s [f32]) {
        let height = self.tile.rows;
        let padded = self.rows.next_multiple_of(height);
        let (packed, scratch) = scratch.split_at_mut(padded * self.words);
        let (scales, scratch) = scratch.split_at_mut(padded);
        let (bytes, row) = scratch.split_at_mut(height * self.words);
        let block = PanelBlock {
            isa: self.tile.isa,
            rows: rows.clone(),
            depth: 0..self.words,
            panel_rows: height,
        };
        for (panel_rows, range) in block.panels() {
            let count = panel_rows.len();
            for (index, source) in panel_rows.enumerate() {
                let bytes = &mut bytes[index * self.words..][..self.words];
                let values = left.row(source, row);
                let bytes = bytemuck::cast_slice_mut(bytes);
                scales[source - rows.start] =
                    quantize_row(self.tile.isa, values, bytes, Offset::OfVectors);
            }
            let mut slices: [&[f32]; MAX_LANES] = [&[]; MAX_LANES];
            for (index, slice) in slices.iter_mut().take(count).enumerate() {
                *slice = &bytes[index * self.words..][..self.words];
            }
            let out = &mut packed[range];
            let call = InterleaveRows::new(height, self.words, &slices[..count], out);
            dispatch(self.tile.isa, call);
        }
        (packed, scales)
    }
}
