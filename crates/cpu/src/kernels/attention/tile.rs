//! The microkernel: sums of products in registers, for a few keys or channels by some vectors of queries.
//!
//! Both products of attention have the queries in the lanes: `scores[key][query] = Σ keys[key][i] · queries[i][query]` and
//! `outputs[channel][query] = Σ values[key][channel] · weights[key][query]`. So the weights that softmax leaves behind are
//! already what the second product reads, sums and maxima over keys need no shuffles, and keys and values are broadcast from
//! where they are. (The packed GEMM's microkernel wants both sides in panels; copying them costs more here than it gains.)

use super::plan::MOST_ROWS;
use crate::simd::Simd;

/// The side of a product whose elements are broadcast.
pub(super) trait Left: Copy {
    /// Where the element of `row` at `step` of the sum lies.
    ///
    /// # Safety
    /// The step is one of those that the left side has.
    unsafe fn element<S: Simd>(&self, row: usize, step: usize) -> *const f32;

    /// Asks for what a later step reads.
    ///
    /// # Safety
    /// As for [`Left::element`].
    #[inline(always)]
    unsafe fn fetch<S: Simd>(&self, _simd: S, _step: usize) {}
}

/// Keys: each row of the tile starts somewhere, and steps are neighbours.
#[derive(Clone, Copy)]
pub(super) struct Keys(pub(super) [*const f32; MOST_ROWS]);

impl Left for Keys {
    #[inline(always)]
    unsafe fn element<S: Simd>(&self, row: usize, step: usize) -> *const f32 {
        self.0[row].wrapping_add(step)
    }
}

/// Values: each step starts somewhere, and the rows of the tile are neighbours.
#[derive(Clone, Copy)]
pub(super) struct Values {
    /// Where the value of each step starts.
    pub(super) starts: *const *const f32,
    /// Where the channel of the tile's first row is, counted from there.
    pub(super) channel: usize,
}

impl Left for Values {
    #[inline(always)]
    unsafe fn element<S: Simd>(&self, row: usize, step: usize) -> *const f32 {
        // SAFETY: the caller vouches for the step.
        let start = unsafe { self.starts.wrapping_add(step).read() };
        start.wrapping_add(self.channel + row)
    }
}

/// The same, asked for some steps before they are read: where each value is long, the processor does not see them coming.
#[derive(Clone, Copy)]
pub(super) struct LongValues(pub(super) Values);

impl Left for LongValues {
    #[inline(always)]
    unsafe fn element<S: Simd>(&self, row: usize, step: usize) -> *const f32 {
        // SAFETY: the caller vouches for the step.
        unsafe { self.0.element::<S>(row, step) }
    }

    #[inline(always)]
    unsafe fn fetch<S: Simd>(&self, simd: S, step: usize) {
        // SAFETY: the caller vouches for the step.
        simd.prefetch(unsafe { self.element::<S>(0, step) });
    }
}

/// How many steps before it is read something is asked for.
const EARLY: usize = 12;

/// `Σ left[row][step] · right[step][query]` over `steps` steps, in order; `right: [steps][VECTORS * LANES]`.
///
/// # Safety
/// The elements of `left` for `ROWS` rows and of `right` for `VECTORS` vectors are readable for so many steps.
#[inline(always)]
pub(super) unsafe fn sums<S: Simd, L: Left, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    left: L,
    right: *const f32,
    steps: usize,
) -> [[S::F; VECTORS]; ROWS] {
    let mut sums = [[simd.splat(0.0); VECTORS]; ROWS];
    for step in 0..steps {
        // SAFETY: one of the steps.
        unsafe { left.fetch(simd, (step + EARLY).min(steps - 1)) };
        let mut columns = [simd.splat(0.0); VECTORS];
        for (index, column) in columns.iter_mut().enumerate() {
            let source = right.wrapping_add((step * VECTORS + index) * S::LANES);
            // SAFETY: the caller vouches for this step of the right side.
            *column = unsafe { simd.load_pointer(source) };
        }
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller vouches for this step of the left side.
            let element = unsafe { left.element::<S>(row, step) };
            // SAFETY: the caller vouches for this row of it.
            let element = simd.splat(unsafe { element.read() });
            for (sum, &column) in sums.iter_mut().zip(&columns) {
                *sum = simd.fma(element, column, *sum);
            }
        }
    }
    sums
}
