//! Products of 8-bit integers: quantised weights, activations quantised row by row while they are packed.
//!
//! The exact arithmetic. For each row of the left operand, with `m = max |x|` over the whole row:
//!
//! - `scale = m / 127` and `q = round(x * (127 / m))`, ties to even, so that `-127 <= q <= 127`.
//! - A row with `m` below `2^-120` is treated as zero: `scale = 0` and `q = 0`.
//! - A row with a NaN or an infinity has `scale = NaN` and `q = 0`: its whole output is NaN.
//!
//! The sums `q · w` are exact integers. With one scale per output the sum over the whole depth becomes
//! `sum as f32 * (scale * weight_scale)`; with one scale per output and 32 depths the sums over the blocks are added up in
//! order, `total = fma(sum as f32, weight_scale, total)`, and become `total * scale`. The [`Epilogue`] follows as
//! for `f32`.
//!
//! Integer sums are exact, so vectors (`product`) and tile registers (`tile_product`) give the same bits.
//!
//! [`Epilogue`]: crate::gemm::Epilogue

mod driver;
mod product;
mod quantize;
mod tile_product;
mod unit;

pub use driver::gemm_int8;
pub use unit::ByteUnit;

pub use cutout_tensor::{BLOCK_LENGTH as BLOCK, Scales};

use cutout_graph::Packed;
use cutout_parallel::{AlignedBuffer, Pool};
use cutout_tensor::TensorError;

use crate::gemm::tile::Tile;
use crate::memory::zeroed;
use crate::simd::{Isa, Kernel, Simd, dispatch};
use crate::tiles::ROW_BYTES;

/// Largest depth: a longer sum could overflow 32 bits.
pub const MAX_DEPTH: usize = cutout_graph::ops::LONGEST_GROUP;

/// A quantised weight: `data[n, k] * scales[n, k / block]`.
#[derive(Clone, Copy, Debug)]
pub struct Int8View<'a> {
    /// `[outputs, depth]`
    pub data: &'a [i8],
    /// `[outputs, granularity.per_row(depth)]`
    pub scales: &'a [f32],
    /// Columns of the product.
    pub outputs: usize,
    /// Length of the sums.
    pub depth: usize,
    /// How many weights share a scale.
    pub granularity: Scales,
}

impl Int8View<'_> {
    /// Writes the weights of panel `number`, `[depth / 4][width][4]`. What lies beyond the weight is left as it is.
    fn pack_panel(&self, number: usize, width: usize, out: &mut [i8]) {
        let outputs = (number * width..self.outputs).take(width);
        for (column, output) in outputs.enumerate() {
            let weights = &self.data[output * self.depth..][..self.depth];
            for (word, out) in weights.chunks(4).zip(out.chunks_exact_mut(4 * width)) {
                out[4 * column..][..word.len()].copy_from_slice(word);
            }
        }
    }
}

/// A quantised weight in panels `[panel][words][tile.columns()][4]`, padded with zeros.
#[derive(Debug)]
pub struct PackedInt8 {
    unit: ByteUnit,
    tile: Tile,
    outputs: usize,
    depth: usize,
    /// Groups of four depths, padded to whole blocks or tiles.
    words: usize,
    granularity: Scales,
    data: AlignedBuffer<i8>,
    /// `[panel][scale][tile.columns()]`
    scales: AlignedBuffer<f32>,
    /// Initial values of the integer accumulators, laid out like `scales`: they cancel the contribution of
    /// [`Simd::DOT_OFFSET`].
    starts: AlignedBuffer<i32>,
}

impl PackedInt8 {
    /// Packs a weight for products on `unit` with the instructions of `isa`; an error if the memory cannot be allocated.
    ///
    /// Panics unless the data and the scales have the lengths that the view states and the depth is at most [`MAX_DEPTH`].
    pub fn pack(
        pool: &Pool,
        (isa, unit): (Isa, ByteUnit),
        view: &Int8View<'_>,
    ) -> Result<PackedInt8, TensorError> {
        let Int8View { outputs, depth, granularity, .. } = *view;
        assert!(depth <= MAX_DEPTH, "depth {depth} is beyond {MAX_DEPTH}");
        assert_eq!(view.data.len(), outputs * depth, "elements of the weight");
        assert_eq!(view.scales.len(), outputs * granularity.per_row(depth), "scales of the weight");
        let by_vectors = Tile::choose_int8(isa, outputs, granularity);
        let (unit, tile, padded) = match (granularity, unit) {
            (Scales::PerRow, ByteUnit::Tiles | ByteUnit::TileTwin) => {
                (unit, Tile::of_tiles(isa), depth.next_multiple_of(ROW_BYTES))
            }
            (Scales::PerRow, ByteUnit::Vectors) => (unit, by_vectors, depth.next_multiple_of(4)),
            (Scales::PerBlock, _) => (ByteUnit::Vectors, by_vectors, depth.next_multiple_of(BLOCK)),
        };
        let columns = outputs.next_multiple_of(tile.columns());
        let scales = granularity.per_row(depth);
        let panel = tile.columns() * padded;
        let mut packed = PackedInt8 {
            unit,
            tile,
            outputs,
            depth,
            words: padded / 4,
            granularity,
            data: zeroed(columns * padded)?,
            scales: zeroed(columns * scales)?,
            starts: zeroed(columns * scales)?,
        };
        pool.for_chunks(&mut packed.data, panel.max(1), &|number, out: &mut [i8]| {
            view.pack_panel(number, tile.columns(), out);
        });
        let offset = dispatch(tile.isa, LeftOffset);
        for output in 0..outputs {
            packed.pack_scales(view, output, offset);
        }
        Ok(packed)
    }

    /// Packs the scales and initial accumulators of one output.
    fn pack_scales(&mut self, view: &Int8View<'_>, output: usize, offset: i32) {
        let width = self.tile.columns();
        let (panel, column) = (output / width, output % width);
        let weights = &view.data[output * self.depth..][..self.depth];
        let scales = self.granularity.per_row(self.depth);
        let block = match self.granularity {
            Scales::PerRow => self.depth.max(1),
            Scales::PerBlock => BLOCK,
        };
        for index in 0..scales {
            let position = (panel * scales + index) * width + column;
            self.scales[position] = view.scales[output * scales + index];
            let weights = &weights[index * block..self.depth.min((index + 1) * block)];
            self.starts[position] = -offset * weights.iter().map(|&w| i32::from(w)).sum::<i32>();
        }
    }

    /// Columns of the product.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Length of the sums.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The register tile of the panels.
    pub fn tile(&self) -> Tile {
        self.tile
    }
}

impl Packed for PackedInt8 {
    fn bytes(&self) -> usize {
        size_of_val(&*self.data) + size_of_val(&*self.scales) + size_of_val(&*self.starts)
    }
}

/// Returns [`Simd::DOT_OFFSET`].
struct LeftOffset;

impl Kernel for LeftOffset {
    type Output = i32;
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> i32 {
        S::DOT_OFFSET
    }
}

#[cfg(test)]
mod tests;
