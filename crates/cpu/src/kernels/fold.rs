//! Reductions of many elements: sum, maximum and minimum, each with its identity and its binary operation.

use cutout_graph::Real;

use crate::simd::Simd;

/// An associative reduction.
pub(crate) trait Fold: Copy + Send + Sync {
    /// Result for no elements.
    const START: f32;
    /// Combines two vectors, lane by lane. Implementations are `#[inline(always)]`.
    fn vectors<S: Simd>(self, simd: S, a: S::F, b: S::F) -> S::F;
    /// Combines two numbers.
    fn numbers(self, a: f64, b: f64) -> f64;
}

/// The sum.
#[derive(Clone, Copy)]
pub(crate) struct Sum;

/// The largest; NaN if one is.
#[derive(Clone, Copy)]
pub(crate) struct Largest;

/// The smallest; NaN if one is.
#[derive(Clone, Copy)]
pub(crate) struct Smallest;

impl Fold for Sum {
    const START: f32 = 0.0;
    #[inline(always)]
    fn vectors<S: Simd>(self, simd: S, a: S::F, b: S::F) -> S::F {
        simd.add(a, b)
    }
    #[inline(always)]
    fn numbers(self, a: f64, b: f64) -> f64 {
        a + b
    }
}

impl Fold for Largest {
    const START: f32 = f32::NEG_INFINITY;
    #[inline(always)]
    fn vectors<S: Simd>(self, simd: S, a: S::F, b: S::F) -> S::F {
        // `max` returns its second operand if either is NaN, which keeps a NaN of `b`.
        simd.select(simd.equal(a, a), simd.max(a, b), a)
    }
    #[inline(always)]
    fn numbers(self, a: f64, b: f64) -> f64 {
        Real::maximum(a, b)
    }
}

impl Fold for Smallest {
    const START: f32 = f32::INFINITY;
    #[inline(always)]
    fn vectors<S: Simd>(self, simd: S, a: S::F, b: S::F) -> S::F {
        simd.select(simd.equal(a, a), simd.min(a, b), a)
    }
    #[inline(always)]
    fn numbers(self, a: f64, b: f64) -> f64 {
        Real::minimum(a, b)
    }
}

/// Reduces a slice, in an order that depends only on its length and the instruction set. Sums are accurate for some thousands
/// of elements.
#[inline(always)]
pub(crate) fn fold<S: Simd, F: Fold>(simd: S, fold: F, values: &[f32]) -> f64 {
    let mut total = f64::from(F::START);
    let mut groups = values.chunks_exact(4 * S::LANES);
    if groups.len() > 0 {
        let mut parts = [simd.splat(F::START); 4];
        for group in groups.by_ref() {
            for (i, part) in parts.iter_mut().enumerate() {
                *part = fold.vectors(simd, *part, simd.load(&group[i * S::LANES..]));
            }
        }
        let halves =
            [fold.vectors(simd, parts[0], parts[1]), fold.vectors(simd, parts[2], parts[3])];
        // Enough for the lanes of any instruction set.
        let mut lanes = [F::START; 64];
        simd.store(fold.vectors(simd, halves[0], halves[1]), &mut lanes);
        for &lane in &lanes[..S::LANES] {
            total = fold.numbers(total, f64::from(lane));
        }
    }
    for &value in groups.remainder() {
        total = fold.numbers(total, f64::from(value));
    }
    total
}

/// Combines `values[i]` into `totals[i]`, for each `i`.
#[inline(always)]
pub(crate) fn fold_each<S: Simd, F: Fold>(simd: S, fold: F, totals: &mut [f32], values: &[f32]) {
    let mut targets = totals.chunks_exact_mut(S::LANES);
    let mut sources = values.chunks_exact(S::LANES);
    for (total, value) in targets.by_ref().zip(sources.by_ref()) {
        simd.store(fold.vectors(simd, simd.load(total), simd.load(value)), total);
    }
    let total = targets.into_remainder();
    let value = simd.load_partial(sources.remainder());
    simd.store_partial(fold.vectors(simd, simd.load_partial(total), value), total);
}
