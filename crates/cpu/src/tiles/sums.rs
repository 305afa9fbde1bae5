//! A block of 48 by 32 sums: six tiles hold them, one holds rows and one holds columns. That takes five loads for six products, where
//! 2 by 2 tiles of sums take four for four.

use std::marker::PhantomData;

use super::{ROW_BYTES, ROWS, TileNumbers, TileUnit};

/// Rows of a block of sums.
pub(crate) const SUM_ROWS: usize = 3 * ROWS;
/// Columns of a block of sums.
pub(crate) const SUM_COLUMNS: usize = 2 * ROWS;

/// Rows of 64 bytes or more in memory.
#[derive(Clone, Copy)]
pub(crate) struct Strided<P> {
    pub(crate) start: P,
    /// Bytes from one row to the next.
    pub(crate) stride: usize,
}

impl<T> Strided<*const T> {
    #[inline(always)]
    pub(crate) fn new(start: *const T, stride: usize) -> Strided<*const u8> {
        Strided { start: start.cast(), stride }
    }

    /// The same rows from a later byte on.
    #[inline(always)]
    pub(crate) fn offset(self, bytes: usize) -> Strided<*const u8> {
        Strided { start: self.start.cast::<u8>().wrapping_add(bytes), stride: self.stride }
    }
}

/// The sums of `TILES` tiles of rows, at most three, by two tiles of columns: of products of the numbers `N` on the unit `U`.
///
/// Tiles 0 to 2 are the left columns, 3 to 5 the right ones; 6 holds rows and 7 holds columns.
pub(crate) struct TileSums<'a, U, N, const TILES: usize> {
    unit: &'a mut U,
    numbers: PhantomData<N>,
}

#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "the order of tile instructions is the point, and their argument is the same"
)]
impl<'a, U: TileUnit, N: TileNumbers, const TILES: usize> TileSums<'a, U, N, TILES> {
    /// Sums that are zero.
    ///
    /// # Safety
    /// The machine has the unit, which multiplies the numbers.
    #[inline(always)]
    pub(crate) unsafe fn zero(unit: &'a mut U) -> Self {
        const { assert!(0 < TILES && TILES <= 3) };
        // SAFETY: the caller vouches for the unit.
        unsafe {
            unit.zero::<0>();
            unit.zero::<3>();
            if TILES > 1 {
                unit.zero::<1>();
                unit.zero::<4>();
            }
            if TILES > 2 {
                unit.zero::<2>();
                unit.zero::<5>();
            }
        }
        TileSums { unit, numbers: PhantomData }
    }

    /// Adds the products of 16 words of each row with 16 words of each column.
    ///
    /// # Safety
    /// As for [`TileSums::zero`]; `16 * TILES` rows of 64 bytes of `left` and 16 rows of 128 bytes of `right` are readable.
    #[inline(always)]
    pub(crate) unsafe fn add(&mut self, left: Strided<*const u8>, right: Strided<*const u8>) {
        let Strided { start: rows, stride } = left;
        let (unit, down) = (&mut *self.unit, ROWS * stride);
        // SAFETY: the caller vouches for the unit, the rows and the columns.
        unsafe {
            unit.load::<7>(right.start, right.stride);
            unit.load::<6>(rows, stride);
            N::dot::<U, 0, 6, 7>(unit);
            if TILES > 1 {
                unit.load::<6>(rows.wrapping_add(down), stride);
                N::dot::<U, 1, 6, 7>(unit);
            }
            if TILES > 2 {
                unit.load::<6>(rows.wrapping_add(2 * down), stride);
                N::dot::<U, 2, 6, 7>(unit);
            }
            // The rows again, last first, from the first-level cache.
            unit.load::<7>(right.start.wrapping_add(ROW_BYTES), right.stride);
            if TILES > 2 {
                N::dot::<U, 5, 6, 7>(unit);
                unit.load::<6>(rows.wrapping_add(down), stride);
            }
            if TILES > 1 {
                N::dot::<U, 4, 6, 7>(unit);
                unit.load::<6>(rows, stride);
            }
            N::dot::<U, 3, 6, 7>(unit);
        }
    }

    /// Stores the sums.
    ///
    /// # Safety
    /// As for [`TileSums::zero`]; `16 * TILES` rows of 128 bytes are writable.
    #[inline(always)]
    pub(crate) unsafe fn store(self, target: Strided<*mut f32>) {
        let (start, stride) = (target.start.cast::<u8>(), target.stride);
        let (unit, down) = (self.unit, ROWS * stride);
        // SAFETY: the caller vouches for the unit and the rows.
        unsafe {
            unit.store::<0>(start, stride);
            unit.store::<3>(start.wrapping_add(ROW_BYTES), stride);
            if TILES > 1 {
                unit.store::<1>(start.wrapping_add(down), stride);
                unit.store::<4>(start.wrapping_add(down + ROW_BYTES), stride);
            }
            if TILES > 2 {
                unit.store::<2>(start.wrapping_add(2 * down), stride);
                unit.store::<5>(start.wrapping_add(2 * down + ROW_BYTES), stride);
            }
        }
    }
}
