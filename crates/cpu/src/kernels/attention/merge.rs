//! Merges the partial results of queries whose keys were divided into parts.

use super::softmax::exp2_of_negative;
use crate::simd::{Kernel, Simd};

/// Merges the state of one part of the keys into the total, for one vector of queries.
pub(super) struct MergeVector<'a> {
    /// Channels, and the elements from one to the next in the outputs.
    pub(super) width: usize,
    pub(super) stride: usize,
    pub(super) total: VectorState<&'a mut [f32]>,
    pub(super) part: VectorState<&'a [f32]>,
}

/// The state of one vector of queries, from its first lane on.
pub(super) struct VectorState<M> {
    /// Sums of weighted values, `LANES` elements for each channel.
    pub(super) outputs: M,
    /// `[LANES]`.
    pub(super) largest: M,
    /// `[LANES]`.
    pub(super) sums: M,
}

impl Kernel for MergeVector<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let MergeVector { width, stride, total, part } = self;
        let (before, other) = (simd.load(total.largest), simd.load(part.largest));
        let largest = simd.max(before, other);
        simd.store(largest, total.largest);
        // Weights are relative to the largest score. If all scores are minus infinity, all weights are zero.
        let none = simd.equal(largest, simd.splat(f32::NEG_INFINITY));
        let origin = simd.select(none, simd.splat(0.0), largest);
        let own = exp2_of_negative(simd, simd.sub(before, origin));
        let added = exp2_of_negative(simd, simd.sub(other, origin));
        let sums = simd.mul(simd.load(part.sums), added);
        simd.store(simd.fma(simd.load(total.sums), own, sums), total.sums);
        for offset in (0..width).map(|channel| channel * stride) {
            let output = &mut total.outputs[offset..];
            let sum = simd.mul(simd.load(&part.outputs[offset..]), added);
            simd.store(simd.fma(simd.load(output), own, sum), output);
        }
    }
}
