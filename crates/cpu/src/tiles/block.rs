//! Sums of at most two tiles of rows by three of columns, of products of bf16 numbers.

use super::{ROW_BYTES, ROWS, Strided, TileUnit};

/// Tiles 0 to 2 are the upper rows, 3 to 5 the lower ones; 6 holds rows and 7 holds columns.
pub(crate) struct BlockSums<'a, U, const DOWN: usize, const ACROSS: usize> {
    unit: &'a mut U,
}

/// Calls a method of a unit for each tile of the sums.
macro_rules! for_sums {
    ($unit:ident.$method:ident($start:expr, $stride:expr)) => {{
        let (start, stride) = ($start, $stride);
        let lower = start.wrapping_add(ROWS * stride);
        $unit.$method::<0>(start, stride);
        if ACROSS > 1 {
            $unit.$method::<1>(start.wrapping_add(ROW_BYTES), stride);
        }
        if ACROSS > 2 {
            $unit.$method::<2>(start.wrapping_add(2 * ROW_BYTES), stride);
        }
        if DOWN > 1 {
            $unit.$method::<3>(lower, stride);
        }
        if DOWN > 1 && ACROSS > 1 {
            $unit.$method::<4>(lower.wrapping_add(ROW_BYTES), stride);
        }
        if DOWN > 1 && ACROSS > 2 {
            $unit.$method::<5>(lower.wrapping_add(2 * ROW_BYTES), stride);
        }
    }};
}

#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "the order of tile instructions is the point, and their argument is the same"
)]
impl<'a, U: TileUnit, const DOWN: usize, const ACROSS: usize> BlockSums<'a, U, DOWN, ACROSS> {
    /// Sums that are zero.
    ///
    /// # Safety
    /// The machine has the unit, which multiplies bf16 numbers.
    #[inline(always)]
    pub(crate) unsafe fn zero(unit: &'a mut U) -> Self {
        const { assert!(0 < DOWN && DOWN <= 2 && 0 < ACROSS && ACROSS <= 3) };
        // SAFETY: the caller vouches for the unit.
        unsafe {
            unit.zero::<0>();
            unit.zero::<1>();
            unit.zero::<2>();
            unit.zero::<3>();
            unit.zero::<4>();
            unit.zero::<5>();
        }
        BlockSums { unit }
    }

    /// Sums from memory.
    ///
    /// # Safety
    /// As for [`BlockSums::zero`]; the rows are readable.
    #[inline(always)]
    pub(crate) unsafe fn load(unit: &'a mut U, source: Strided<*mut f32>) -> Self {
        // SAFETY: the caller vouches for the unit and the rows.
        unsafe { for_sums!(unit.load(source.start.cast_const().cast::<u8>(), source.stride)) };
        BlockSums { unit }
    }

    /// Adds the products of 16 pairs of each row with 16 pairs of each column.
    ///
    /// # Safety
    /// As for [`BlockSums::zero`]; `16 * DOWN` rows of 64 bytes of `left` and 16 rows of `64 * ACROSS` bytes of `right` are readable.
    #[inline(always)]
    pub(crate) unsafe fn add(&mut self, left: Strided<*const u8>, right: Strided<*const u8>) {
        let (unit, columns) = (&mut *self.unit, right.start);
        let column = |number: usize| columns.wrapping_add(number * ROW_BYTES);
        // SAFETY: the caller vouches for the unit, the rows and the columns.
        unsafe {
            unit.load::<6>(left.start, left.stride);
            unit.load::<7>(column(0), right.stride);
            unit.dot_halves::<0, 6, 7>();
            if ACROSS > 1 {
                unit.load::<7>(column(1), right.stride);
                unit.dot_halves::<1, 6, 7>();
            }
            if ACROSS > 2 {
                unit.load::<7>(column(2), right.stride);
                unit.dot_halves::<2, 6, 7>();
            }
            if DOWN == 1 {
                return;
            }
            // The columns again, last first, from the first-level cache.
            unit.load::<6>(left.start.wrapping_add(ROWS * left.stride), left.stride);
            if ACROSS > 2 {
                unit.dot_halves::<5, 6, 7>();
                unit.load::<7>(column(1), right.stride);
            }
            if ACROSS > 1 {
                unit.dot_halves::<4, 6, 7>();
                unit.load::<7>(column(0), right.stride);
            }
            unit.dot_halves::<3, 6, 7>();
        }
    }

    /// Stores the sums.
    ///
    /// # Safety
    /// As for [`BlockSums::zero`]; `16 * DOWN` rows of `64 * ACROSS` bytes are writable.
    #[inline(always)]
    pub(crate) unsafe fn store(self, target: Strided<*mut f32>) {
        let unit = self.unit;
        // SAFETY: the caller vouches for the unit and the rows.
        unsafe { for_sums!(unit.store(target.start.cast::<u8>(), target.stride)) };
    }
}
