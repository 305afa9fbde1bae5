//! A block of a product on tile registers.
//!
//! The tile unit works for about a hundred cycles on the products of one step of depths, which are a dozen instructions. So the sums of
//! one block of rows and columns go through the epilogue while the unit computes those of the next: [`Finish`] handles a few rows after
//! every step.

use std::marker::PhantomData;
use std::ops::Range;

use crate::gemm::writer::{OutputWriter, TileBounds};
use crate::simd::{Kernel, Simd};
use crate::tiles::{
    Halves, ROW_BYTES, ROWS, SUM_COLUMNS, SUM_ROWS, Strided, TileNumbers, TileSums, TileUnit,
};

/// Rows of sums that are stored at a time.
const STORED_ROWS: usize = 2;

/// Words of four bytes of both operands.
pub(super) struct TileOperands<'a> {
    /// Rows of the left operand in the order of [`WordRows::in_tiles`].
    ///
    /// [`WordRows::in_tiles`]: crate::gemm::word_rows::WordRows::in_tiles
    pub(super) left: &'a [f32],
    /// Panels of the right operand, `[panel][panel_words][SUM_COLUMNS]` words.
    pub(super) right: &'a [u8],
    pub(super) panel_words: usize,
    /// The words of the panels that are multiplied: whole tiles. The rows of the left operand have just these.
    pub(super) words: Range<usize>,
}

/// What is multiplied, and what turns the sums into `f32`.
pub(super) trait FinishSums: Copy {
    type Numbers: TileNumbers;
    /// Replaces rows of sums, `[rows][SUM_COLUMNS]`, in place. Their place is the first row, counted from the block's first, and the
    /// panel.
    fn finish<S: Simd>(self, simd: S, place: (usize, usize), sums: &mut [f32]);
}

impl FinishSums for Halves {
    type Numbers = Halves;

    /// They are `f32` already.
    #[inline(always)]
    fn finish<S: Simd>(self, _: S, _: (usize, usize), _: &mut [f32]) {}
}

/// Rows by panels of a weight, over a block of depths.
pub(super) struct TileBlock<'a, U, F> {
    operands: TileOperands<'a>,
    finish: F,
    rows: Range<usize>,
    panels: Range<usize>,
    columns: usize,
    writer: &'a OutputWriter<'a>,
    unit: PhantomData<U>,
}

impl<'a, U: TileUnit, F: FinishSums> TileBlock<'a, U, F> {
    /// The block of a product with `columns` columns.
    ///
    /// # Safety
    /// The machine has the unit, which multiplies the numbers. The part of the output at `rows` and `panels` belongs to this block
    /// alone.
    pub(super) unsafe fn new(
        operands: TileOperands<'a>,
        finish: F,
        (rows, panels): (Range<usize>, Range<usize>),
        (writer, columns): (&'a OutputWriter<'a>, usize),
    ) -> Self {
        let TileOperands { left, right, panel_words, words } = &operands;
        assert!(left.len() >= rows.len().next_multiple_of(SUM_ROWS) * words.len());
        assert!(words.len().is_multiple_of(ROWS) && words.end <= *panel_words);
        assert!(right.len() >= panels.end * panel_words * SUM_COLUMNS * 4);
        let unit = PhantomData;
        TileBlock { operands, finish, rows, panels, columns, writer, unit }
    }
}

/// Sums of a block of rows and a panel of columns.
#[repr(align(64))]
struct Stage([f32; SUM_ROWS * SUM_COLUMNS]);

/// Sums that wait for the epilogue, and memory for the next.
struct Stages<'s> {
    free: &'s mut Stage,
    waiting: &'s mut Stage,
    /// The first row of the waiting sums, counted from the block's first, and their panel.
    place: (usize, usize),
    /// The waiting rows that are left.
    rows: Range<usize>,
}

impl Stages<'_> {
    /// Makes the sums that were stored in the free stage wait.
    #[inline(always)]
    fn turn(&mut self, place: (usize, usize), rows: usize) {
        std::mem::swap(&mut self.free, &mut self.waiting);
        (self.place, self.rows) = (place, 0..rows);
    }
}

impl<U: TileUnit, F: FinishSums> Kernel for TileBlock<'_, U, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // SAFETY: `new` requires a machine with the unit, and a thread runs one kernel at a time.
        let mut unit = unsafe { U::configure() };
        let [free, waiting] = &mut [const { Stage([0.0; SUM_ROWS * SUM_COLUMNS]) }; 2];
        let mut stages = Stages { free, waiting, place: (0, 0), rows: 0..0 };
        for panel in self.panels.clone() {
            for first in (0..self.rows.len()).step_by(SUM_ROWS) {
                let (place, rows) = ((first, panel), SUM_ROWS.min(self.rows.len() - first));
                match rows.div_ceil(ROWS) {
                    1 => self.sums::<S, 1>(simd, &mut unit, place, &mut stages),
                    2 => self.sums::<S, 2>(simd, &mut unit, place, &mut stages),
                    _ => self.sums::<S, 3>(simd, &mut unit, place, &mut stages),
                }
                stages.turn(place, rows);
            }
        }
        self.advance(simd, &mut stages, SUM_ROWS);
        if self.writer.streaming {
            simd.fence();
        }
    }
}

impl<U: TileUnit, F: FinishSums> TileBlock<'_, U, F> {
    /// Computes the sums of `TILES` tiles of rows, while waiting sums go through the epilogue.
    #[inline(always)]
    fn sums<S: Simd, const TILES: usize>(
        &self,
        simd: S,
        unit: &mut U,
        (first, panel): (usize, usize),
        stages: &mut Stages<'_>,
    ) {
        /// Bytes of 16 words of a row of the right operand, and of the rows of a block of the left one.
        const RIGHT: usize = SUM_COLUMNS * 4;
        const LEFT: usize = SUM_ROWS * ROW_BYTES;
        let TileOperands { left, right, panel_words, ref words } = self.operands;
        let left = Strided::new(left[first * words.len()..].as_ptr(), ROW_BYTES);
        let right = &right[(panel * panel_words + words.start) * RIGHT..];
        let right = Strided::new(right.as_ptr(), RIGHT);
        let steps = words.len() / ROWS;
        let rows = SUM_ROWS.div_ceil(steps.max(1)).next_multiple_of(STORED_ROWS);
        // The next panel of the weight comes from the third-level cache or from memory: each block of rows fetches a share of it.
        let lines = (ROWS * RIGHT / 64).div_ceil(self.rows.len().div_ceil(SUM_ROWS));
        let share = right.offset((panel_words + first / SUM_ROWS * steps * lines / 2) * RIGHT);
        // SAFETY: `new` requires the unit.
        let mut sums = unsafe { TileSums::<U, F::Numbers, TILES>::zero(unit) };
        for step in 0..steps {
            let (left, right) = (left.offset(step * LEFT), right.offset(step * ROWS * RIGHT));
            // SAFETY: `new` requires the unit and checked that whole tiles of rows and of words are in memory.
            unsafe { sums.add(left, right) };
            for line in step * lines..(step + 1) * lines {
                simd.prefetch_second_level(share.offset(line * 64).start.cast());
            }
            self.advance(simd, stages, rows);
        }
        self.advance(simd, stages, SUM_ROWS);
        let start = stages.free.0.as_mut_ptr();
        // SAFETY: `new` requires the unit; a stage holds the rows of three tiles.
        unsafe { sums.store(Strided { start, stride: RIGHT }) };
    }

    /// Applies the epilogue to some of the waiting rows, and stores them in the output.
    #[inline(always)]
    fn advance<S: Simd>(&self, simd: S, stages: &mut Stages<'_>, rows: usize) {
        let end = stages.rows.end.min(stages.rows.start + rows);
        while stages.rows.start < end {
            let first = stages.rows.start;
            let rows = STORED_ROWS.min(stages.rows.end - first);
            let sums = &mut stages.waiting.0[first * SUM_COLUMNS..][..STORED_ROWS * SUM_COLUMNS];
            self.store(simd, (stages.place.0 + first, stages.place.1), rows, sums);
            stages.rows.start += rows;
        }
    }

    /// Applies the epilogue to rows of sums and stores them in the output. Their place is as for [`FinishSums::finish`].
    #[inline(always)]
    fn store<S: Simd>(&self, simd: S, place: (usize, usize), rows: usize, sums: &mut [f32]) {
        self.finish.finish(simd, place, &mut sums[..rows * SUM_COLUMNS]);
        let column = place.1 * SUM_COLUMNS;
        let columns = SUM_COLUMNS.min(self.columns - column);
        let bounds = TileBounds { row: self.rows.start + place.0, column, rows, columns };
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
