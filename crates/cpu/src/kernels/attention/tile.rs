//! The micro-kernel: sums of products in registers, for a few keys or channels by some vectors of queries.
//!
//! Both products of attention have the queries in the lanes: `scores[key][query] = Σ keys[key][i] · queries[i][query]` and
//! `outputs[channel][query] = Σ values[key][channel] · weights[key][query]`. So the second
//! product reads the weights as softmax writes them, sums and maxima over keys need no shuffles, and keys and values are
//! broadcast without packing. (The micro-kernel of `gemm` reads packed panels; packing costs more here than it saves.)

use super::numbers::Word;
use super::plan::MOST_ROWS;
use crate::simd::Simd;

/// The operand of a product whose elements are broadcast.
pub(super) trait Left: Copy {
    /// Address of the element of `row` at `step` of the sum.
    ///
    /// # Safety
    /// The operand has this step.
    unsafe fn element<S: Simd>(&self, row: usize, step: usize) -> *const f32;

    /// Prefetches what a later step reads.
    ///
    /// # Safety
    /// As for [`Left::element`].
    #[inline(always)]
    unsafe fn fetch<S: Simd>(&self, _simd: S, _step: usize) {}
}

/// Keys: each row of the tile has its own address, and its steps are consecutive.
#[derive(Clone, Copy)]
pub(super) struct Keys(pub(super) [*const f32; MOST_ROWS]);

impl Left for Keys {
    #[inline(always)]
    unsafe fn element<S: Simd>(&self, row: usize, step: usize) -> *const f32 {
        self.0[row].wrapping_add(step)
    }
}

/// Values: each step has its own address, and the rows of the tile are consecutive.
#[derive(Clone, Copy)]
pub(super) struct Values {
    /// Address of the value of each step.
    pub(super) starts: *const *const f32,
    /// Channel of the tile's first row.
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

/// Long values, with software prefetch: the hardware prefetcher does not follow one address per step.
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

/// Values that were copied in panels of `LANES` channels: each step has a vector of words.
#[derive(Clone, Copy)]
pub(super) struct ValuePanel {
    /// Address of the tile's first channel.
    pub(super) start: *const f32,
}

impl Left for ValuePanel {
    #[inline(always)]
    unsafe fn element<S: Simd>(&self, row: usize, step: usize) -> *const f32 {
        self.start.wrapping_add(step * S::LANES + row)
    }
}

/// Steps by which values are prefetched.
const PREFETCH: usize = 12;

/// `starts[row] + Σ left[row][step] · right[step][query]` over `steps` steps, in order; `right: [steps][VECTORS * LANES]`. Elements are
/// words `W`.
///
/// # Safety
/// The elements of `left` for `ROWS` rows and of `right` for `VECTORS` vectors are readable for `steps` steps.
#[inline(always)]
pub(super) unsafe fn sums<S: Simd, L: Left, W: Word, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    (left, right): (L, *const f32),
    steps: usize,
    starts: [f32; ROWS],
) -> [[S::F; VECTORS]; ROWS] {
    let mut sums = [[simd.splat(0.0); VECTORS]; ROWS];
    for (sums, start) in sums.iter_mut().zip(starts) {
        *sums = [simd.splat(start); VECTORS];
    }
    for step in 0..steps {
        // SAFETY: one of the steps.
        unsafe { left.fetch(simd, (step + PREFETCH).min(steps - 1)) };
        let mut columns = [simd.splat(0.0); VECTORS];
        for (index, column) in columns.iter_mut().enumerate() {
            let source = right.wrapping_add((step * VECTORS + index) * S::LANES);
            // SAFETY: the caller vouches for this step of the right operand.
            *column = unsafe { simd.load_pointer(source) };
        }
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller vouches for this step of the left operand.
            let element = unsafe { left.element::<S>(row, step) };
            // SAFETY: the caller vouches for this row of it.
            let element = simd.splat(unsafe { element.read() });
            for (sum, &column) in sums.iter_mut().zip(&columns) {
                *sum = W::add_product(simd, *sum, element, column);
            }
        }
    }
    sums
}
