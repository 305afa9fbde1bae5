//! A block of a product on tile registers.

use std::marker::PhantomData;
use std::ops::Range;

use crate::gemm::writer::{OutputWriter, TileBounds};
use crate::simd::{Kernel, Simd};
use crate::tiles::{
    Halves, ROW_BYTES, ROWS, SUM_COLUMNS, SUM_ROWS, Strided, TileNumbers, TileSums, TileUnit,
};

/// Rows of sums that are stored at a time: their vectors fit the registers.
const STORED_ROWS: usize = 8;

/// Words of four bytes of both operands.
pub(super) struct TileOperands<'a> {
    /// Rows of the left operand, padded to whole tiles.
    pub(super) left: &'a [f32],
    /// Words from one of them to the next.
    pub(super) row_stride: usize,
    /// Panels of the right operand, `[panel][panel_words][SUM_COLUMNS]` words.
    pub(super) right: &'a [u8],
    pub(super) panel_words: usize,
    /// The words of the panels that are multiplied: whole tiles. The rows of the left operand start with them.
    pub(super) words: Range<usize>,
}

/// What is multiplied, and what turns the sums into `f32`.
pub(super) trait FinishSums: Copy {
    type Numbers: TileNumbers;
    /// Replaces the sums of a stage in place. Its place is its first row, counted from the block's first, and its panel.
    fn finish<S: Simd>(self, simd: S, place: (usize, usize), stage: &mut Stage);
}

impl FinishSums for Halves {
    type Numbers = Halves;

    /// They are `f32` already.
    #[inline(always)]
    fn finish<S: Simd>(self, _: S, _: (usize, usize), _: &mut Stage) {}
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
        let TileOperands { left, row_stride, right, panel_words, words } = &operands;
        assert!(left.len() >= rows.len().next_multiple_of(ROWS) * row_stride);
        assert!(*row_stride >= words.len() && words.len().is_multiple_of(ROWS));
        assert!(words.end <= *panel_words);
        assert!(right.len() >= panels.end * panel_words * SUM_COLUMNS * 4);
        let unit = PhantomData;
        TileBlock { operands, finish, rows, panels, columns, writer, unit }
    }
}

/// Sums of a block of rows and a panel of columns.
#[repr(align(64))]
pub(super) struct Stage(pub(super) [f32; SUM_ROWS * SUM_COLUMNS]);

impl<U: TileUnit, F: FinishSums> Kernel for TileBlock<'_, U, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // SAFETY: `new` requires a machine with the unit, and a thread runs one kernel at a time.
        let mut unit = unsafe { U::configure() };
        let mut stage = Stage([0.0; SUM_ROWS * SUM_COLUMNS]);
        for panel in self.panels.clone() {
            for first in (0..self.rows.len()).step_by(SUM_ROWS) {
                match (self.rows.len() - first).div_ceil(ROWS) {
                    1 => self.sums::<1>(&mut unit, (first, panel), &mut stage),
                    2 => self.sums::<2>(&mut unit, (first, panel), &mut stage),
                    _ => self.sums::<3>(&mut unit, (first, panel), &mut stage),
                }
                self.finish.finish(simd, (first, panel), &mut stage);
                self.store(simd, (first, panel), &stage);
            }
        }
        if self.writer.streaming {
            simd.fence();
        }
    }
}

impl<U: TileUnit, F: FinishSums> TileBlock<'_, U, F> {
    /// Computes the sums of `TILES` tiles of rows from `first` on.
    #[inline(always)]
    fn sums<const TILES: usize>(
        &self,
        unit: &mut U,
        (first, panel): (usize, usize),
        stage: &mut Stage,
    ) {
        const WIDTH: usize = SUM_COLUMNS * 4;
        let TileOperands { left, row_stride, right, panel_words, ref words } = self.operands;
        let left = Strided::new(left[first * row_stride..].as_ptr(), row_stride * 4);
        let right = &right[(panel * panel_words + words.start) * WIDTH..];
        let right = Strided::new(right.as_ptr(), WIDTH);
        // SAFETY: `new` requires the unit.
        let mut sums = unsafe { TileSums::<U, F::Numbers, TILES>::zero(unit) };
        for step in 0..words.len() / ROWS {
            let (left, right) = (left.offset(step * ROW_BYTES), right.offset(step * ROWS * WIDTH));
            // SAFETY: `new` requires the unit and checked that whole tiles of rows and of words are in memory.
            unsafe { sums.add(left, right) };
        }
        // SAFETY: `new` requires the unit; the stage holds the rows of three tiles.
        unsafe { sums.store(Strided { start: stage.0.as_mut_ptr(), stride: WIDTH }) };
    }

    /// Applies the epilogue to a stage of sums and stores them in the output.
    #[inline(always)]
    fn store<S: Simd>(&self, simd: S, (first, panel): (usize, usize), stage: &Stage) {
        let column = panel * SUM_COLUMNS;
        let columns = SUM_COLUMNS.min(self.columns - column);
        let end = self.rows.len().min(first + SUM_ROWS);
        let groups = stage.0.chunks_exact(STORED_ROWS * SUM_COLUMNS);
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
