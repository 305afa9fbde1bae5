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
    scaled_power(simd, x, EXP2)
}

/// `2^x` for `x <= 0`, given a polynomial for the fraction.
#[inline(always)]
fn scaled_power<S: Simd, const TERMS: usize>(simd: S, x: S::F, coefficients: [f32; TERMS]) -> S::F {
    // A float of this size has no fraction bits: adding it rounds `x` and leaves the biased exponent of the result in the low
    // bits.
    let shift = simd.splat(12_582_912.0 + 127.0);
    let x = simd.max(simd.splat(-127.0), x);
    let shifted = simd.add(x, shift);
    let rest = simd.sub(x, simd.sub(shifted, shift));
    let value = polynomial(simd, rest, coefficients);
    // Multiplies instead of adding exponents: NaN stays NaN, and a biased exponent of 0 gives 0.
    simd.mul(value, simd.from_bits(simd.shift_left(simd.bits(shifted), 23)))
}

/// `2^x` for `|x| <= 1 / 2`, relative error 7.5e-5: a 26th of the rounding to bf16 that follows.
const COARSE_EXP2: [f32; 4] = [0.999_928_1, 0.693_261, 0.242_611_13, 0.055_171_67];

/// The weight of a score relative to `origin`; coarser where it is rounded afterwards.
#[inline(always)]
fn weight<S: Simd, const COARSE: bool>(simd: S, score: S::F, origin: S::F) -> S::F {
    let exponent = simd.sub(score, origin);
    if COARSE {
        scaled_power(simd, exponent, COARSE_EXP2)
    } else {
        exp2_of_negative(simd, exponent)
    }
}

/// Replaces a block of scores (base-2 logarithms) by weights relative to the largest score so far; with `PAIRS` by pairs of
/// weights of neighbouring keys, `[pairs of keys][VECTORS * LANES]`.
pub(super) struct Weights<'a, const VECTORS: usize, const PAIRS: bool> {
    /// `[keys][VECTORS * LANES]`.
    pub(super) scores: &'a mut [f32],
    /// The largest scores of the block.
    pub(super) block_largest: &'a PerQuery,
    /// The largest scores so far, `[VECTORS * LANES]`; minus infinity before the first block.
    pub(super) largest: &'a mut [f32],
    /// The sums of the weights so far.
    pub(super) sums: &'a mut [f32],
}

impl<const VECTORS: usize, const PAIRS: bool> Kernel for Weights<'_, VECTORS, PAIRS> {
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
        let sums = if PAIRS {
            pair_weights(simd, self.scores, &origins)
        } else {
            weights(simd, self.scores, &origins)
        };
        for (index, sum) in sums.into_iter().enumerate() {
            let total = &mut self.sums[index * S::LANES..];
            let factor = simd.load(&factors.0[index * S::LANES..]);
            simd.store(simd.fma(simd.load(total), factor, sum), total);
        }
        factors
    }
}

/// Replaces scores by weights. Returns the sums of the weights.
#[inline(always)]
fn weights<S: Simd, const VECTORS: usize>(
    simd: S,
    scores: &mut [f32],
    origins: &[S::F; VECTORS],
) -> [S::F; VECTORS] {
    let mut sums = [simd.splat(0.0); VECTORS];
    for scores in scores.chunks_exact_mut(VECTORS * S::LANES) {
        for (index, sum) in sums.iter_mut().enumerate() {
            let score = &mut scores[index * S::LANES..];
            let weight = weight::<S, false>(simd, simd.load(score), origins[index]);
            *sum = simd.add(*sum, weight);
            simd.store(weight, score);
        }
    }
    sums
}

/// Replaces scores by pairs of weights of neighbouring keys, in the first half of their memory; a last key without a neighbour is
/// paired with zero. Returns the sums of the weights.
#[inline(always)]
fn pair_weights<S: Simd, const VECTORS: usize>(
    simd: S,
    scores: &mut [f32],
    origins: &[S::F; VECTORS],
) -> [S::F; VECTORS] {
    let mut sums = [simd.splat(0.0); VECTORS];
    let stride = VECTORS * S::LANES;
    let keys = scores.len() / stride;
    for pair in 0..keys.div_ceil(2) {
        let neighbour = 2 * pair + 1 < keys;
        for (index, sum) in sums.iter_mut().enumerate() {
            let first = 2 * pair * stride + index * S::LANES;
            let low = weight::<S, true>(simd, simd.load(&scores[first..]), origins[index]);
            let mut high = simd.splat(0.0);
            if neighbour {
                let score = simd.load(&scores[first + stride..]);
                high = weight::<S, true>(simd, score, origins[index]);
            }
            *sum = simd.add(*sum, simd.add(low, high));
            let words = simd.from_bits(simd.pair_bf16(low, high));
            simd.store(words, &mut scores[pair * stride + index * S::LANES..]);
        }
    }
    sums
}
