//! The micro-kernel of dot products of pairs.

use crate::gemm::kernel::{Product, advanced};
use crate::simd::Simd;

/// Rounded rows by right panels.
#[derive(Clone, Copy)]
pub(super) struct DotProduct {
    /// The first row, in pairs; panel `p` starts at row `p * PANEL`.
    pub(super) left: *const i32,
    /// Pairs from one row to the next.
    pub(super) row_stride: usize,
    /// The last row. Panel rows beyond it read it again; their sums are not stored.
    pub(super) last_row: usize,
    /// Right panels, `[panel][pairs][VECTORS * LANES]`.
    pub(super) right: *const i32,
    /// Pairs from one right panel to the next.
    pub(super) right_stride: usize,
    /// Pairs of a sum.
    pub(super) pairs: usize,
}

// SAFETY: rows and panels are only read.
unsafe impl Send for DotProduct {}
// SAFETY: rows and panels are only read.
unsafe impl Sync for DotProduct {}

/// Pairs per iteration of the inner loop.
const UNROLL: usize = 4;
/// Pairs by which the right panel is prefetched: it comes from the L2 cache.
const PREFETCH: usize = 16;

impl Product for DotProduct {
    const BLOCKED: bool = false;

    #[inline(always)]
    unsafe fn sums<S: Simd, const ROWS: usize, const PANEL: usize, const VECTORS: usize>(
        self,
        simd: S,
        panels: (usize, usize),
    ) -> [[S::F; VECTORS]; ROWS] {
        let mut rows = [self.left; ROWS];
        for (index, row) in rows.iter_mut().enumerate() {
            let number = (panels.0 * PANEL + index).min(self.last_row);
            *row = self.left.wrapping_add(number * self.row_stride);
        }
        let mut right = self.right.wrapping_add(panels.1 * self.right_stride);
        let mut sums = [[simd.splat(0.0); VECTORS]; ROWS];
        for _ in 0..self.pairs / UNROLL {
            for step in 0..UNROLL {
                let right = right.wrapping_add(step * VECTORS * S::LANES);
                // SAFETY: the iteration covers `UNROLL` pairs of the rows and of the panel.
                unsafe { dot_add(simd, &mut sums, advanced(rows, step), right) };
            }
            rows = advanced(rows, UNROLL);
            right = right.wrapping_add(UNROLL * VECTORS * S::LANES);
        }
        for _ in 0..self.pairs % UNROLL {
            // SAFETY: one of the remaining pairs of the rows and of the panel.
            unsafe { dot_add(simd, &mut sums, rows, right) };
            rows = advanced(rows, 1);
            right = right.wrapping_add(VECTORS * S::LANES);
        }
        sums
    }
}

/// Adds the dot products of the pairs `left` and of `VECTORS` vectors of pairs of `right`.
///
/// # Safety
/// All of them are readable.
#[inline(always)]
unsafe fn dot_add<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    sums: &mut [[S::F; VECTORS]; ROWS],
    left: [*const i32; ROWS],
    right: *const i32,
) {
    let mut columns = [simd.splat_int(0); VECTORS];
    for (index, column) in columns.iter_mut().enumerate() {
        // SAFETY: the caller vouches for `VECTORS` vectors.
        *column = unsafe { simd.load_int_pointer(right.wrapping_add(index * S::LANES)) };
        simd.prefetch(right.wrapping_add((index + PREFETCH * VECTORS) * S::LANES).cast());
    }
    for (row, pair) in sums.iter_mut().zip(left) {
        // SAFETY: the caller vouches for the pair.
        let pair = simd.splat_int(unsafe { pair.read() });
        for (sum, &column) in row.iter_mut().zip(&columns) {
            *sum = simd.dot2(*sum, pair, column);
        }
    }
}
