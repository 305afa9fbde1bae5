//! Products of bytes on tile registers, with one scale per output.

use cutout_parallel::Pool;

use crate::gemm::int8::PackedInt8;
use crate::gemm::int8::rows::QuantizedRows;
use crate::gemm::left::LeftSource;
use crate::gemm::split::{Shape, Split, Tasks};
use crate::gemm::tile_block::{FinishSums, TileBlock, TileOperands};
use crate::gemm::writer::OutputWriter;
use crate::simd::{Simd, dispatch};
use crate::tiles::{Bytes, SUM_COLUMNS, TileUnit};

/// A product whose tasks run on tile registers.
#[derive(Clone, Copy)]
pub(super) struct TileTasks<'a> {
    pub(super) left: &'a dyn LeftSource,
    pub(super) weights: &'a PackedInt8,
    pub(super) writer: &'a OutputWriter<'a>,
    pub(super) shape: Shape,
}

impl TileTasks<'_> {
    /// Quantises rows, one after the other, and multiplies them.
    pub(super) fn run<U: TileUnit>(self, pool: &Pool) {
        let TileTasks { left, weights, writer, shape } = self;
        let PackedInt8 { tile, words, .. } = *weights;
        let split = Split::on_tiles(shape, words);
        let tasks = Tasks::new(shape, tile, split);
        let layout = QuantizedRows::for_tiles(weights, split.row_block);
        pool.run_with_scratch(tasks.count(), layout.floats(), &|task, scratch| {
            let (rows, panels) = tasks.get(task);
            let (bytes, row_scales) = layout.quantize(left, rows.clone(), scratch);
            let sums = ByteSums { row_scales: &row_scales[..rows.len()], scales: &weights.scales };
            let operands = TileOperands {
                left: bytes,
                right: bytemuck::cast_slice(&weights.data),
                panel_words: words,
                words: 0..words,
            };
            let (place, target) = ((rows, panels), (writer, shape.columns));
            // SAFETY: a weight is packed for tile registers only where the machine has them; the block of the output is the task's.
            let block = unsafe { TileBlock::<U, _>::new(operands, sums, place, target) };
            dispatch(tile.isa, block);
        });
    }
}

/// Sums of products of bytes, and the scales that make them floats.
#[derive(Clone, Copy)]
struct ByteSums<'a> {
    /// The scale of each row of the block.
    row_scales: &'a [f32],
    /// `[panel][SUM_COLUMNS]`
    scales: &'a [f32],
}

impl FinishSums for ByteSums<'_> {
    type Numbers = Bytes;

    #[inline(always)]
    fn finish<S: Simd>(self, simd: S, (row, panel): (usize, usize), sums: &mut [f32]) {
        let columns = &self.scales[panel * SUM_COLUMNS..][..SUM_COLUMNS];
        for (&scale, sums) in self.row_scales[row..].iter().zip(sums.chunks_exact_mut(SUM_COLUMNS))
        {
            let scale = simd.splat(scale);
            for (sums, columns) in
                sums.chunks_exact_mut(S::LANES).zip(columns.chunks_exact(S::LANES))
            {
                let sum = simd.to_float(simd.bits(simd.load(sums)));
                simd.store(simd.mul(sum, simd.mul(scale, simd.load(columns))), sums);
            }
        }
    }
}
