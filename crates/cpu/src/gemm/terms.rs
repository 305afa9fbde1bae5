//! Products that contribute to several outputs: their sums are accumulated in tiles in memory before the epilogue.

use crate::gemm::kernel::Product;
use crate::gemm::writer::{OutputWriter, TileBounds};
use crate::simd::{Kernel, Simd};

/// How a product contributes to the output with the given number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Overwrites the output: its first term.
    Overwrite(usize),
    /// Is added.
    Add(usize),
    /// Is subtracted.
    Subtract(usize),
}

/// Multiplies a left panel by a right panel and accumulates the sums in the tiles of the outputs that use them.
pub(super) struct MultiplyInto<'a, P, const ROWS: usize, const VECTORS: usize> {
    pub(super) product: P,
    /// The right panel.
    pub(super) right: usize,
    pub(super) uses: &'a [Use],
    /// The left panel.
    pub(super) panel: usize,
    /// Number of left panels of an output.
    pub(super) panels: usize,
    /// Tiles of sums, `[output][panel]`.
    pub(super) tiles: &'a mut [f32],
}

impl<P: Product, const ROWS: usize, const VECTORS: usize> Kernel
    for MultiplyInto<'_, P, ROWS, VECTORS>
{
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let panels = (self.panel, self.right);
        // SAFETY: the driver made the panels for this tile.
        let sums = unsafe { self.product.sums::<S, ROWS, ROWS, VECTORS>(simd, panels) };
        let size = ROWS * VECTORS * S::LANES;
        for &wanted in self.uses {
            let (output, sign) = match wanted {
                Use::Overwrite(output) => (output, None),
                Use::Add(output) => (output, Some(1.0)),
                Use::Subtract(output) => (output, Some(-1.0)),
            };
            let index = output * self.panels + self.panel;
            let tile = &mut self.tiles[index * size..][..size];
            match sign {
                None => write_tile(simd, &sums, tile),
                Some(sign) => add_to_tile(simd, &sums, sign, tile),
            }
        }
    }
}

#[inline(always)]
fn write_tile<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    sums: &[[S::F; VECTORS]; ROWS],
    tile: &mut [f32],
) {
    for (&sum, target) in sums.as_flattened().iter().zip(tile.chunks_exact_mut(S::LANES)) {
        simd.store(sum, target);
    }
}

#[inline(always)]
fn add_to_tile<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    sums: &[[S::F; VECTORS]; ROWS],
    sign: f32,
    tile: &mut [f32],
) {
    let sign = simd.splat(sign);
    for (&sum, target) in sums.as_flattened().iter().zip(tile.chunks_exact_mut(S::LANES)) {
        simd.store(simd.fma(sign, sum, simd.load(target)), target);
    }
}

/// Applies the epilogue to a tile of sums and stores it.
pub(super) struct StoreTile<'a, const ROWS: usize, const VECTORS: usize> {
    pub(super) tile: &'a [f32],
    pub(super) writer: &'a OutputWriter<'a>,
    pub(super) bounds: &'a TileBounds,
}

impl<const ROWS: usize, const VECTORS: usize> Kernel for StoreTile<'_, ROWS, VECTORS> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // SAFETY: the driver gives each task its own rows of the output.
        unsafe { self.writer.store_tile::<S, ROWS, VECTORS>(simd, self.tile, self.bounds) };
    }
}
