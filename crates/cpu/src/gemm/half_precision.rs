//! Products in bf16 with sums in `f32`: weights are rounded when they are packed, rows when a task reads them.
//!
//! Every sum is over products of two bf16 numbers, which are exact in `f32`; only the additions round. Three units compute them
//! from one packed layout, pairs of depths side by side:
//!
//! - [`HalfUnit::Tiles`]: the tile registers of AMX, or a twin of them in plain Rust that gives the same bits (`crate::tiles`).
//! - [`HalfUnit::Dots`]: dot products of pairs in vector registers (`dots`).
//! - [`HalfUnit::Widened`]: rounded weights and rows in `f32`, by the kernels of `f32`; weights take half the memory.

mod dots;
mod driver;
mod rows;

pub use driver::gemm_half;
pub(crate) use rows::RoundInPlace;
pub use rows::Rounded;

use cutout_graph::Packed;
use cutout_parallel::{AlignedBuffer, Pool};
use cutout_tensor::TensorError;
use half::bf16;

use crate::core_kind::CoreKind;
use crate::gemm::driver::blocks;
use crate::gemm::tile::Tile;
use crate::memory::zeroed;
use crate::simd::{Isa, has_bf16_dots};
use crate::tiles::{Halves, ROWS, TileNumbers};

/// What multiplies bf16 numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HalfUnit {
    /// Tile registers: AMX.
    Tiles,
    /// The tile registers in plain Rust: for tests on machines without them.
    TileTwin,
    /// Vector instructions that add products of pairs; emulated where the machine has none.
    Dots,
    /// Multiply-adds of `f32`.
    Widened,
}

impl HalfUnit {
    /// Every unit, fastest first.
    pub const ALL: [HalfUnit; 4] =
        [HalfUnit::Tiles, HalfUnit::Dots, HalfUnit::Widened, HalfUnit::TileTwin];

    /// The unit that is fastest on this machine, for kernels compiled for `isa`.
    pub fn detect(isa: Isa) -> HalfUnit {
        if isa == Isa::Avx512 && HalfUnit::Tiles.is_available() {
            HalfUnit::Tiles
        } else if has_bf16_dots(isa) && dots_are_fast() {
            HalfUnit::Dots
        } else {
            HalfUnit::Widened
        }
    }

    /// Whether this machine can use the unit. Only the tile registers need a machine that has them.
    pub fn is_available(self) -> bool {
        match self {
            HalfUnit::Tiles => Halves::is_permitted(),
            HalfUnit::TileTwin | HalfUnit::Dots | HalfUnit::Widened => true,
        }
    }

    /// Name for people and for packed forms of weights.
    pub const fn name(self) -> &'static str {
        match self {
            HalfUnit::Tiles => "tiles",
            HalfUnit::TileTwin => "tile twin",
            HalfUnit::Dots => "dots",
            HalfUnit::Widened => "widened",
        }
    }
}

impl HalfUnit {
    /// Whether products in bf16 take less time than in `f32`.
    pub const fn is_faster_than_single(self) -> bool {
        match self {
            HalfUnit::Tiles | HalfUnit::Dots => true,
            HalfUnit::TileTwin | HalfUnit::Widened => false,
        }
    }

    /// What is used and why, for people.
    pub const fn description(self) -> &'static str {
        match self {
            HalfUnit::Tiles => "tile registers (AMX)",
            HalfUnit::TileTwin => "tile registers in plain code: slow, for tests",
            HalfUnit::Dots => "dot products of pairs, at twice the rate of f32 on this core",
            HalfUnit::Widened => {
                "rounded numbers multiplied in f32: no faster than f32 on this core, half the memory for weights"
            }
        }
    }
}

/// Whether dot products of bf16 pairs run at twice the rate of `f32` multiply-adds: on AMD's cores (Zen 4 and 5 were measured). Intel's
/// run at half the rate of multiply-adds (Emerald Rapids: 171 against 349 GFLOP/s on two threads).
fn dots_are_fast() -> bool {
    matches!(CoreKind::detect(), CoreKind::Zen4 | CoreKind::Zen5 | CoreKind::Amd)
}

/// A weight `[outputs, depth]` in panels `[panel][pairs][tile.columns()][2]`, padded with zeros.
#[derive(Debug)]
pub struct PackedHalf {
    unit: HalfUnit,
    tile: Tile,
    outputs: usize,
    depth: usize,
    /// Pairs of depths, padded to whole tiles for units with tiles.
    pairs: usize,
    data: AlignedBuffer<bf16>,
}

/// Pairs of depths that are packed at a time, so that the written panel stays in the cache.
const PACKED_PAIRS: usize = 16;

impl PackedHalf {
    /// Packs a weight `[outputs, depth]` for products on `unit` with the instructions of `isa`.
    ///
    /// Fails where there is no memory for the panels. Panics unless the data has that many elements.
    pub fn pack(
        pool: &Pool,
        (isa, unit): (Isa, HalfUnit),
        data: &[bf16],
        [outputs, depth]: [usize; 2],
    ) -> Result<PackedHalf, TensorError> {
        assert_eq!(data.len(), outputs * depth, "elements of the weight");
        let (tile, pairs) = match unit {
            HalfUnit::Tiles | HalfUnit::TileTwin => {
                (Tile::of_tiles(isa), depth.div_ceil(2).next_multiple_of(ROWS))
            }
            HalfUnit::Dots | HalfUnit::Widened => (Tile::choose(isa, outputs), depth.div_ceil(2)),
        };
        let width = tile.columns();
        let mut panels = zeroed(outputs.next_multiple_of(width) * pairs * 2)?;
        pool.for_chunks(&mut panels, (width * pairs * 2).max(1), &|panel, out: &mut [bf16]| {
            let columns = panel * width..outputs.min((panel + 1) * width);
            let steps = out.chunks_mut(PACKED_PAIRS * width * 2);
            for (out, pairs) in steps.zip(blocks(pairs, PACKED_PAIRS)) {
                let depths = 2 * pairs.start..depth.min(2 * pairs.end);
                for (column, n) in columns.clone().enumerate() {
                    let row = &data[n * depth..][depths.clone()];
                    pack_column(row, &mut out[2 * column..], 2 * width);
                }
            }
        });
        Ok(PackedHalf { unit, tile, outputs, depth, pairs, data: panels })
    }

    /// Columns of the product.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Length of the sums.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Address of a panel from one of its pairs of depths on, in pairs.
    fn at(&self, panel: usize, pair: usize) -> *const i32 {
        let width = self.tile.columns();
        self.data[(panel * self.pairs + pair) * width * 2..].as_ptr().cast()
    }
}

/// Writes the elements of a row in pairs, `stride` elements from one pair to the next.
fn pack_column(row: &[bf16], out: &mut [bf16], stride: usize) {
    for (pair, out) in row.chunks(2).zip(out.chunks_mut(stride)) {
        out[..pair.len()].copy_from_slice(pair);
    }
}

impl Packed for PackedHalf {
    fn bytes(&self) -> usize {
        size_of_val(&*self.data)
    }
}

#[cfg(test)]
mod tests;
