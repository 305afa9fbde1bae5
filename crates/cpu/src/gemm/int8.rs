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
mod pack;
mod product;
mod quantize;
mod rows;
mod tile_product;
mod unit;

pub use driver::gemm_int8;
pub(crate) use quantize::{lane_scales, magnitude_bits};
pub use unit::ByteUnit;

pub use cutout_tensor::{BLOCK_LENGTH as BLOCK, Scales};

use cutout_graph::Packed;
use cutout_parallel::AlignedBuffer;

use crate::gemm::tile::Tile;

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
    /// [`Simd::DOT_OFFSET`](crate::simd::Simd::DOT_OFFSET).
    starts: AlignedBuffer<i32>,
}

impl PackedInt8 {
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

#[cfg(test)]
mod tests;
