//! The micro-kernels for bytes.

use crate::gemm::int8::BLOCK;
use crate::gemm::kernel::{Product, advanced};
use crate::simd::Simd;

/// Quantised rows by right panels, with one scale per output.
#[derive(Clone, Copy)]
pub(super) struct ChannelProduct {
    /// The first row, in words of four bytes; panel `p` starts at row `p * PANEL`.
    pub(super) left: *const i32,
    /// Words from one row to the next.
    pub(super) row_stride: usize,
    /// The last row. Panel rows beyond it read it again; their sums are not stored.
    pub(super) last_row: usize,
    /// The scale of each row.
    pub(super) row_scales: *const f32,
    /// Right panels `[panel][words][VECTORS * LANES]` of four bytes each.
    pub(super) right: *const i32,
    /// `[panel][VECTORS * LANES]`
    pub(super) scales: *const f32,
    /// `[panel][VECTORS * LANES]`
    pub(super) starts: *const i32,
    /// Dot products of four per sum.
    pub(super) words: usize,
}

/// The same, with one scale per output and block of depths.
#[derive(Clone, Copy)]
pub(super) struct BlockProduct(pub(super) ChannelProduct);

// SAFETY: the rows, panels, scales and starts are only read.
unsafe impl Send for ChannelProduct {}
// SAFETY: as above.
unsafe impl Sync for ChannelProduct {}

/// Dot products per iteration of the inner loop.
const UNROLL: usize = 4;
/// Dot products by which the right panel is prefetched: it comes from the L2 cache.
const PREFETCH: usize = 16;

impl ChannelProduct {
    /// The number of each row of a left panel.
    #[inline(always)]
    fn row_numbers<const ROWS: usize, const PANEL: usize>(&self, panel: usize) -> [usize; ROWS] {
        let mut numbers = [0; ROWS];
        for (index, number) in numbers.iter_mut().enumerate() {
            *number = (panel * PANEL + index).min(self.last_row);
        }
        numbers
    }

    /// The start of each of these rows.
    #[inline(always)]
    fn rows<const ROWS: usize>(&self, numbers: [usize; ROWS]) -> [*const i32; ROWS] {
        let mut rows = [self.left; ROWS];
        for (row, number) in rows.iter_mut().zip(numbers) {
            *row = self.left.wrapping_add(number * self.row_stride);
        }
        rows
    }
}

impl Product for ChannelProduct {
    const BLOCKED: bool = false;

    #[inline(always)]
    unsafe fn sums<S: Simd, const ROWS: usize, const PANEL: usize, const VECTORS: usize>(
        self,
        simd: S,
        panels: (usize, usize),
    ) -> [[S::F; VECTORS]; ROWS] {
        let width = VECTORS * S::LANES;
        let numbers = self.row_numbers::<ROWS, PANEL>(panels.0);
        let right = self.right.wrapping_add(panels.1 * self.words * width);
        let starts = self.starts.wrapping_add(panels.1 * width);
        let operands = (self.rows(numbers), right);
        // SAFETY: the rows and the panel have `words` dot products, and `starts` one vector for each of the panel's.
        let sums = unsafe { integer_sums::<S, ROWS, VECTORS>(simd, operands, starts, self.words) };
        let mut values = [[simd.splat(0.0); VECTORS]; ROWS];
        for (row, values) in values.iter_mut().enumerate() {
            // SAFETY: every row has a scale.
            let scale = simd.splat(unsafe { self.row_scales.wrapping_add(numbers[row]).read() });
            for (index, value) in values.iter_mut().enumerate() {
                let column = self.scales.wrapping_add(panels.1 * width + index * S::LANES);
                // SAFETY: every column of the right panels has a scale.
                let column = unsafe { simd.load_pointer(column) };
                *value = simd.mul(simd.to_float(sums[row][index]), simd.mul(scale, column));
            }
        }
        values
    }
}

impl Product for BlockProduct {
    const BLOCKED: bool = true;

    #[inline(always)]
    unsafe fn sums<S: Simd, const ROWS: usize, const PANEL: usize, const VECTORS: usize>(
        self,
        simd: S,
        panels: (usize, usize),
    ) -> [[S::F; VECTORS]; ROWS] {
        const WORDS: usize = BLOCK / 4;
        let ChannelProduct { row_scales, right, scales, starts, words, .. } = self.0;
        let numbers = self.0.row_numbers::<ROWS, PANEL>(panels.0);
        let rows = self.0.rows(numbers);
        let width = VECTORS * S::LANES;
        let blocks = words / WORDS;
        let mut totals = [[simd.splat(0.0); VECTORS]; ROWS];
        for block in 0..blocks {
            let rows = advanced(rows, block * WORDS);
            let right = right.wrapping_add((panels.1 * words + block * WORDS) * width);
            let offset = (panels.1 * blocks + block) * width;
            let (scales, starts) = (scales.wrapping_add(offset), starts.wrapping_add(offset));
            // SAFETY: the rows and the panel have `WORDS` more dot products, and `starts` one vector for each of the panel's.
            let sums =
                unsafe { integer_sums::<S, ROWS, VECTORS>(simd, (rows, right), starts, WORDS) };
            for index in 0..VECTORS {
                // SAFETY: every column and block of the right panels has a scale.
                let scale = unsafe { simd.load_pointer(scales.wrapping_add(index * S::LANES)) };
                for (total, sum) in totals.iter_mut().zip(&sums) {
                    total[index] = simd.fma(simd.to_float(sum[index]), scale, total[index]);
                }
            }
        }
        for (row, totals) in totals.iter_mut().enumerate() {
            // SAFETY: every row has a scale.
            let scale = simd.splat(unsafe { row_scales.wrapping_add(numbers[row]).read() });
            for total in totals {
                *total = simd.mul(*total, scale);
            }
        }
        totals
    }
}

/// The sums of a tile over `words` dot products of four bytes, added to the initial values `starts`. The operands are rows and a
/// right panel.
///
/// # Safety
/// The operands have `words` dot products, and `starts` has a vector for each vector of the tile.
#[inline(always)]
unsafe fn integer_sums<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    (mut rows, mut right): ([*const i32; ROWS], *const i32),
    starts: *const i32,
    words: usize,
) -> [[S::I; VECTORS]; ROWS] {
    let mut first = [simd.splat_int(0); VECTORS];
    for (index, start) in first.iter_mut().enumerate() {
        // SAFETY: the caller vouches for the starts.
        *start = unsafe { simd.load_int_pointer(starts.wrapping_add(index * S::LANES)) };
    }
    let mut sums = [first; ROWS];
    for _ in 0..words / UNROLL {
        for step in 0..UNROLL {
            let right = right.wrapping_add(step * VECTORS * S::LANES);
            // SAFETY: the iteration covers `UNROLL` dot products of the rows and of the panel.
            unsafe { dot_add(simd, &mut sums, advanced(rows, step), right) };
        }
        rows = advanced(rows, UNROLL);
        right = right.wrapping_add(UNROLL * VECTORS * S::LANES);
    }
    for _ in 0..words % UNROLL {
        // SAFETY: one of the remaining dot products of the rows and of the panel.
        unsafe { dot_add(simd, &mut sums, rows, right) };
        rows = advanced(rows, 1);
        right = right.wrapping_add(VECTORS * S::LANES);
    }
    sums
}

/// Adds the dot products of the words `left` and `VECTORS` vectors of words of `right`.
///
/// # Safety
/// All of them are readable.
#[inline(always)]
unsafe fn dot_add<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    sums: &mut [[S::I; VECTORS]; ROWS],
    left: [*const i32; ROWS],
    right: *const i32,
) {
    let mut columns = [simd.splat_int(0); VECTORS];
    for (index, column) in columns.iter_mut().enumerate() {
        // SAFETY: the caller vouches for `VECTORS` vectors.
        *column = unsafe { simd.load_int_pointer(right.wrapping_add(index * S::LANES)) };
        simd.prefetch(right.wrapping_add((index + PREFETCH * VECTORS) * S::LANES).cast());
    }
    for (row, word) in sums.iter_mut().zip(left) {
        // SAFETY: the caller vouches for the word.
        let word = simd.splat_int(unsafe { word.read() });
        for (sum, &column) in row.iter_mut().zip(&columns) {
            *sum = simd.dot4(*sum, word, column);
        }
    }
}
