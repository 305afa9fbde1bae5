//! A block of a product on tile registers.
//!
//! Six tiles hold the sums of 48 rows by 32 columns, one holds rows and one holds columns: five loads from the caches for six
//! products, where 2 by 2 tiles of sums need four for four.

use std::marker::PhantomData;
use std::ops::Range;

use super::tiles::{ROW_BYTES, ROWS, TileUnit};
use super::{PackedHalf, TILE_COLUMNS, TILE_PAIRS};
use crate::gemm::writer::{OutputWriter, TileBounds};
use crate::simd::{Kernel, Simd};

/// Tiles of rows of a panel.
const TILES: usize = 3;
/// Rows of a panel.
const HEIGHT: usize = TILES * ROWS;
/// Rows of sums that are stored at a time: their vectors fit the registers.
const STORED_ROWS: usize = 8;

/// Rounded rows by panels of a weight, over a block of depths.
pub(super) struct TileBlock<'a, U> {
    weights: &'a PackedHalf,
    left: &'a [f32],
    row_stride: usize,
    rows: Range<usize>,
    panels: Range<usize>,
    pairs: Range<usize>,
    writer: &'a OutputWriter<'a>,
    unit: PhantomData<U>,
}

impl<'a, U: TileUnit> TileBlock<'a, U> {
    /// `left` are the rounded rows and their distance in pairs.
    ///
    /// # Safety
    /// The machine has the unit. The weight is packed for tiles and has the panels and pairs, which are whole tiles; the part of the
    /// output at `rows` and `panels` belongs to this block alone.
    pub(super) unsafe fn new(
        weights: &'a PackedHalf,
        (left, row_stride): (&'a [f32], usize),
        (rows, panels): (Range<usize>, Range<usize>),
        pairs: Range<usize>,
        writer: &'a OutputWriter<'a>,
    ) -> Self {
        let padded = rows.len().next_multiple_of(ROWS);
        assert!(left.len() >= padded * row_stride && row_stride >= pairs.len());
        assert!(pairs.len().is_multiple_of(TILE_PAIRS) && pairs.end <= weights.pairs);
        let unit = PhantomData;
        TileBlock { weights, left, row_stride, rows, panels, pairs, writer, unit }
    }
}

/// Sums of a panel of rows and a panel of columns.
#[repr(align(64))]
struct Stage([f32; HEIGHT * TILE_COLUMNS]);

impl<U: TileUnit> Kernel for TileBlock<'_, U> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // SAFETY: `new` requires a machine with the unit, and a thread runs one kernel at a time.
        let mut unit = unsafe { U::configure() };
        let mut stage = Stage([0.0; HEIGHT * TILE_COLUMNS]);
        for panel in self.panels.clone() {
            for first in (0..self.rows.len()).step_by(HEIGHT) {
                match (self.rows.len() - first).div_ceil(ROWS) {
                    1 => self.sums::<1>(&mut unit, (first, panel), &mut stage),
                    2 => self.sums::<2>(&mut unit, (first, panel), &mut stage),
                    _ => self.sums::<3>(&mut unit, (first, panel), &mut stage),
                }
                self.store(simd, (first, panel), &stage);
            }
        }
        if self.writer.streaming {
            simd.fence();
        }
    }
}

impl<U: TileUnit> TileBlock<'_, U> {
    /// Computes the sums of `COUNT` tiles of rows from `first` on.
    #[inline(always)]
    fn sums<const COUNT: usize>(
        &self,
        unit: &mut U,
        (first, panel): (usize, usize),
        stage: &mut Stage,
    ) {
        let row_bytes = self.row_stride * 4;
        let left = self.left[first * self.row_stride..].as_ptr().cast::<u8>();
        let right = self.weights.at(panel, self.pairs.start).cast::<u8>();
        // SAFETY: `new` requires the unit.
        unsafe { zero_all(unit) };
        for step in 0..self.pairs.len() / TILE_PAIRS {
            let left = left.wrapping_add(step * ROW_BYTES);
            let right = right.wrapping_add(step * TILE_PAIRS * TILE_COLUMNS * 4);
            // SAFETY: `new` requires the unit and checked that whole tiles of rows and of pairs are in memory.
            unsafe { accumulate::<U, COUNT>(unit, (left, row_bytes), right) };
        }
        // SAFETY: `new` requires the unit; the stage holds six tiles.
        unsafe { store_all(unit, stage.0.as_mut_ptr().cast()) };
    }

    /// Applies the epilogue to a stage of sums and stores them in the output.
    #[inline(always)]
    fn store<S: Simd>(&self, simd: S, (first, panel): (usize, usize), stage: &Stage) {
        let column = panel * TILE_COLUMNS;
        let columns = TILE_COLUMNS.min(self.weights.outputs - column);
        let end = self.rows.len().min(first + HEIGHT);
        let groups = stage.0.chunks_exact(STORED_ROWS * TILE_COLUMNS);
        for (row, sums) in (first..end).step_by(STORED_ROWS).zip(groups) {
            let rows = STORED_ROWS.min(end - row);
            let bounds = TileBounds { row: self.rows.start + row, column, rows, columns };
            // The lanes are known at compile time, so only one of these is compiled.
            if S::LANES == 16 {
                // SAFETY: this part of the output belongs to the block.
                unsafe { self.writer.store_tile::<S, STORED_ROWS, 2>(simd, sums, &bounds) };
            } else {
                // SAFETY: as above.
                unsafe { self.writer.store_tile::<S, STORED_ROWS, 4>(simd, sums, &bounds) };
            }
        }
    }
}

/// Sets the six tiles of sums to zero.
///
/// # Safety
/// As for [`TileUnit::zero`].
#[inline(always)]
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "six times the same with the same argument"
)]
unsafe fn zero_all<U: TileUnit>(unit: &mut U) {
    // SAFETY: the caller vouches for the unit.
    unsafe {
        unit.zero::<0>();
        unit.zero::<1>();
        unit.zero::<2>();
        unit.zero::<3>();
        unit.zero::<4>();
        unit.zero::<5>();
    }
}

/// Stores the six tiles of sums, `[48][32]`.
///
/// # Safety
/// As for [`TileUnit::zero`]; the target holds that many numbers.
#[inline(always)]
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "six times the same with the same argument"
)]
unsafe fn store_all<U: TileUnit>(unit: &mut U, target: *mut u8) {
    const STRIDE: usize = TILE_COLUMNS * 4;
    const DOWN: usize = ROWS * STRIDE;
    // SAFETY: the caller vouches for the unit and the target.
    unsafe {
        unit.store::<0>(target, STRIDE);
        unit.store::<1>(target.wrapping_add(DOWN), STRIDE);
        unit.store::<2>(target.wrapping_add(2 * DOWN), STRIDE);
        unit.store::<3>(target.wrapping_add(ROW_BYTES), STRIDE);
        unit.store::<4>(target.wrapping_add(DOWN + ROW_BYTES), STRIDE);
        unit.store::<5>(target.wrapping_add(2 * DOWN + ROW_BYTES), STRIDE);
    }
}

/// Adds one tile of depths: tiles 0 to 2 are the left columns, 3 to 5 the right ones, of which the first `COUNT` are used.
///
/// # Safety
/// As for [`TileUnit::zero`]; `COUNT` tiles of rows and two tiles of columns are readable.
#[inline(always)]
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "the order of tile instructions is the point"
)]
unsafe fn accumulate<U: TileUnit, const COUNT: usize>(
    unit: &mut U,
    (left, stride): (*const u8, usize),
    right: *const u8,
) {
    const RIGHT_STRIDE: usize = TILE_COLUMNS * 4;
    let down = ROWS * stride;
    // SAFETY: the caller vouches for the unit and the tiles.
    unsafe {
        unit.load::<7>(right, RIGHT_STRIDE);
        unit.load::<6>(left, stride);
        unit.dot::<0, 6, 7>();
        if COUNT > 1 {
            unit.load::<6>(left.wrapping_add(down), stride);
            unit.dot::<1, 6, 7>();
        }
        if COUNT > 2 {
            unit.load::<6>(left.wrapping_add(2 * down), stride);
            unit.dot::<2, 6, 7>();
        }
        // The rows again, last first, from the first-level cache.
        unit.load::<7>(right.wrapping_add(ROW_BYTES), RIGHT_STRIDE);
        if COUNT > 2 {
            unit.dot::<5, 6, 7>();
            unit.load::<6>(left.wrapping_add(down), stride);
        }
        if COUNT > 1 {
            unit.dot::<4, 6, 7>();
            unit.load::<6>(left, stride);
        }
        unit.dot::<3, 6, 7>();
    }
}
