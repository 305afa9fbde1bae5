//! Weights from scores, one block of keys at a time.

use super::plan::MOST_VECTORS;
use crate::simd::{Kernel, MAX_LANES, Simd};
use crate::vecmath::{EXP2, polynomial};

/// One number per query of a panel.
#[repr(align(64))]
#[derive(Clone, Copy)]
pub(super) struct PerQuery(pub(super) [f32; MOST_VECTORS * MAX_LANES]);

/// `2^x` for `x <= 0`, relative error 1e-7; zero below -126.5, also for minus infinity. NaN gives NaN.
#[inline(always)]
pub(super) fn exp2_of_negative<S: Simd>(simd: S, x: S::F) -> S::F {
    // A float of this size has no fraction bits: adding it rounds `x` and leaves the biased exponent of the result in the low
    // bits.
    let shift = simd.splat(12_582_912.0 + 127.0);
    let x = simd.max(simd.splat(-127.0), x);
    let shifted = simd.add(x, shift);
    let rest = simd.sub(x, simd.sub(shifted, shift));
    let value = polynomial(simd, rest, EXP2);
    // Multiplies instead of adding exponents: NaN stays NaN, and a biased exponent of 0 gives 0.
    simd.mul(value, simd.from_bits(simd.shift_left(simd.bits(shifted), 23)))
}

/// Replaces a block of scores (base-2 logarithms) by weights relative to the largest score so far.
pub(super) struct Weights<'a, const VECTORS: usize> {
    /// `[keys][VECTORS * LANES]`.
    pub(super) scores: &'a mut [f32],
    /// The largest scores of the block.
    pub(super) block_largest: &'a PerQuery,
    /// The largest scores so far, `[VECTORS * LANES]`; minus infinity before the first block.
    pub(super) largest: &'a mut [f32],
    /// The sums of the weights so far.
    pub(super) sums: &'a mut [f32],
}

impl<const VECTORS: usize> Kernel for Weights<'_, VECTORS> {
    /// Factors of the earlier weights and of everything summed with them.
    type Output = PerQuery;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> PerQuery {
        let mut factors = PerQuery([0.0; MOST_VECTORS * MAX_LANES]);
        let mut origins = [simd.splat(0.0); VECTORS];
        let lowest = simd.splat(f32::NEG_INFINITY);
        for (index, origin) in origins.iter_mut().enumerate() {
            let offset = index * S::LANES;
            let before = simd.load(&self.largest[offset..]);
            let largest = simd.max(before, simd.load(&self.block_largest.0[offset..]));
            simd.store(largest, &mut self.largest[offset..]);
            // If all scores are minus infinity, all weights are zero.
            *origin = simd.select(simd.equal(largest, lowest), simd.splat(0.0), largest);
            let factor = exp2_of_negative(simd, simd.sub(before, *origin));
            simd.store(factor, &mut factors.0[offset..]);
        }
        let mut sums = [simd.splat(0.0); VECTORS];
        for scores in self.scores.chunks_exact_mut(VECTORS * S::LANES) {
            for (index, sum) in sums.iter_mut().enumerate() {
                let score = &mut scores[index * S::LANES..];
                let weight = exp2_of_negative(simd, simd.sub(simd.load(score), origins[index]));
                *sum = simd.add(*sum, weight);
                simd.store(weight, score);
            }
        }
        for (index, sum) in sums.into_iter().enumerate() {
            let total = &mut self.sums[index * S::LANES..];
            let factor = simd.load(&factors.0[index * S::LANES..]);
            simd.store(simd.fma(simd.load(total), factor, sum), total);
        }
        factors
    }
}
