//! Weights from scores, one block of keys at a time.

use std::marker::PhantomData;

use super::numbers::{Bytes, Pair, Single, Word};
use super::plan::MOST_VECTORS;
use crate::simd::{Kernel, MAX_LANES, Simd};
use crate::vecmath::{COARSE_EXP2, EXP2, power_parts};

/// One number per query of a panel.
#[repr(align(64))]
#[derive(Clone, Copy)]
pub(super) struct PerQuery(pub(super) [f32; MOST_VECTORS * MAX_LANES]);

impl PerQuery {
    /// The same number for all queries.
    pub(super) const fn all(number: f32) -> PerQuery {
        PerQuery([number; MOST_VECTORS * MAX_LANES])
    }
}

/// Factors that make sums of blocks relative to one score.
pub(super) struct Factors {
    /// Of the weights of earlier blocks and of everything summed with them.
    pub(super) earlier: PerQuery,
    /// Of the weights of the current block; 1 unless they are bytes.
    pub(super) current: PerQuery,
}

/// `2^x` for `x <= 0`, relative error 1e-7; zero below -126.5, also for minus infinity. NaN gives NaN.
#[inline(always)]
pub(super) fn exp2_of_negative<S: Simd>(simd: S, x: S::F) -> S::F {
    scaled_power(simd, x, EXP2)
}

/// `2^x` for `x <= 0`, given a polynomial for the fraction.
#[inline(always)]
fn scaled_power<S: Simd, const TERMS: usize>(simd: S, x: S::F, coefficients: [f32; TERMS]) -> S::F {
    let [value, power] = power_parts(simd, x, coefficients);
    simd.mul(value, power)
}

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

/// Replaces a block of scores (base-2 logarithms) by weights: words of the weights of neighbouring keys,
/// `[keys / W::ELEMENTS][VECTORS * LANES]`. They are relative to the largest score so far; bytes are relative to the largest of the
/// block, so that a block of small weights loses no more than others.
pub(super) struct Weights<'a, W, const VECTORS: usize> {
    /// What holds the weights.
    pub(super) words: PhantomData<W>,
    /// `[keys][VECTORS * LANES]`.
    pub(super) scores: &'a mut [f32],
    /// The largest scores of the block.
    pub(super) block_largest: &'a PerQuery,
    /// The largest scores so far, `[VECTORS * LANES]`; minus infinity before the first block.
    pub(super) largest: &'a mut [f32],
    /// The sums of the weights so far.
    pub(super) sums: &'a mut [f32],
}

impl<W: Word, const VECTORS: usize> Kernel for Weights<'_, W, VECTORS> {
    type Output = Factors;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Factors {
        let mut factors = Factors { earlier: PerQuery::all(0.0), current: PerQuery::all(1.0) };
        let mut origins = [simd.splat(0.0); VECTORS];
        for (index, origin) in origins.iter_mut().enumerate() {
            let offset = index * S::LANES;
            let before = simd.load(&self.largest[offset..]);
            let of_block = simd.load(&self.block_largest.0[offset..]);
            let largest = simd.max(before, of_block);
            simd.store(largest, &mut self.largest[offset..]);
            *origin = above_nothing(simd, largest);
            let earlier = exp2_of_negative(simd, simd.sub(before, *origin));
            simd.store(earlier, &mut factors.earlier.0[offset..]);
            if W::ELEMENTS == Bytes::ELEMENTS {
                let current = exp2_of_negative(simd, simd.sub(of_block, *origin));
                simd.store(current, &mut factors.current.0[offset..]);
                *origin = above_nothing(simd, of_block);
            }
        }
        let sums = match W::ELEMENTS {
            Single::ELEMENTS => weights(simd, self.scores, &origins),
            Pair::ELEMENTS => pair_weights(simd, self.scores, &origins),
            _ => byte_weights(simd, self.scores, &origins),
        };
        for (index, mut sum) in sums.into_iter().enumerate() {
            let total = &mut self.sums[index * S::LANES..];
            let earlier = simd.load(&factors.earlier.0[index * S::LANES..]);
            if W::ELEMENTS == Bytes::ELEMENTS {
                sum = simd.mul(sum, simd.load(&factors.current.0[index * S::LANES..]));
            }
            simd.store(simd.fma(simd.load(total), earlier, sum), total);
        }
        factors
    }
}

/// A largest score, or zero where it is minus infinity: if all scores are minus infinity, all weights are zero.
#[inline(always)]
fn above_nothing<S: Simd>(simd: S, largest: S::F) -> S::F {
    let none = simd.equal(largest, simd.splat(f32::NEG_INFINITY));
    simd.select(none, simd.splat(0.0), largest)
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

/// Replaces scores by groups of four weights of neighbouring keys as bytes, in the first quarter of their memory; a last group is
/// filled up with zeros. Returns the sums of the bytes, NaN where a score is. The origins are the largest scores.
#[inline(always)]
fn byte_weights<S: Simd, const VECTORS: usize>(
    simd: S,
    scores: &mut [f32],
    origins: &[S::F; VECTORS],
) -> [S::F; VECTORS] {
    let mut sums =
        ByteSums { sums: [simd.splat_int(0); VECTORS], marks: [simd.splat(0.0); VECTORS] };
    let stride = VECTORS * S::LANES;
    let keys = scores.len() / stride;
    for group in 0..keys / 4 {
        sums.convert::<S, 4>(simd, scores, group, origins);
    }
    let whole = keys / 4;
    match keys % 4 {
        0 => {}
        1 => sums.convert::<S, 1>(simd, scores, whole, origins),
        2 => sums.convert::<S, 2>(simd, scores, whole, origins),
        _ => sums.convert::<S, 3>(simd, scores, whole, origins),
    }
    let mut found = [simd.splat(0.0); VECTORS];
    for (index, found) in found.iter_mut().enumerate() {
        let mark = sums.marks[index];
        *found = simd.select(simd.equal(mark, mark), simd.to_float(sums.sums[index]), mark);
    }
    found
}

/// Sums of weights as bytes, for each query of a panel.
struct ByteSums<I, F, const VECTORS: usize> {
    sums: [I; VECTORS],
    /// NaN where a score was.
    marks: [F; VECTORS],
}

impl<I: Copy, F: Copy, const VECTORS: usize> ByteSums<I, F, VECTORS> {
    /// Replaces a group of `KEYS` keys by a word.
    #[inline(always)]
    fn convert<S: Simd<I = I, F = F>, const KEYS: usize>(
        &mut self,
        simd: S,
        scores: &mut [f32],
        group: usize,
        origins: &[F; VECTORS],
    ) {
        let width = VECTORS * S::LANES;
        let words = &mut scores[group * width..];
        for (index, &origin) in origins.iter().enumerate() {
            let mut group_scores = [simd.splat(f32::NEG_INFINITY); 4];
            for (key, score) in group_scores[..KEYS].iter_mut().enumerate() {
                *score = simd.load(&words[3 * group * width + key * width + index * S::LANES..]);
            }
            let (word, marks) = simd.byte_powers(group_scores, origin);
            self.sums[index] = simd.add_bytes(self.sums[index], word);
            self.marks[index] = simd.add(self.marks[index], marks);
            simd.store(simd.from_bits(word), &mut words[index * S::LANES..]);
        }
    }
}
