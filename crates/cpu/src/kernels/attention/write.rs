//! The end of a task: sums of weighted values become outputs.

use super::pack::MOST_LANES;
use crate::execute::SharedSlice;
use crate::simd::{Interleave, Kernel, Simd};

/// Writes the outputs of one vector of queries.
pub(super) struct WriteVector<'a> {
    /// Sums of weighted values, `LANES` elements for each channel (rounded up to whole vectors), `stride` elements apart; none
    /// where no key was met.
    pub(super) outputs: Option<&'a [f32]>,
    pub(super) stride: usize,
    /// Sums of the weights, `[LANES]`.
    pub(super) sums: &'a [f32],
    /// Channels.
    pub(super) width: usize,
    /// Where each query's channels start in the target.
    pub(super) starts: &'a [usize],
    /// No other thread writes these queries' channels.
    pub(super) target: &'a SharedSlice<f32>,
}

impl Kernel for WriteVector<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let inverse = simd.div(simd.splat(1.0), simd.load(self.sums));
        let mut scaled = [f32::NAN; MOST_LANES * MOST_LANES];
        let mut turned = [0.0; MOST_LANES * MOST_LANES];
        for channel in (0..self.width).step_by(S::LANES) {
            if let Some(outputs) = self.outputs {
                for (index, target) in scaled.chunks_exact_mut(S::LANES).enumerate().take(S::LANES)
                {
                    let output = simd.load(&outputs[(channel + index) * self.stride..]);
                    simd.store(simd.mul(output, inverse), target);
                }
            }
            let mut rows = [std::ptr::null(); MOST_LANES];
            for (row, scaled) in rows.iter_mut().zip(scaled.chunks_exact(S::LANES)) {
                *row = scaled.as_ptr();
            }
            let (rows, out) = (&rows[..S::LANES], turned.as_mut_ptr());
            let block = Interleave { rows, column: 0, panel_rows: S::LANES, out };
            // SAFETY: `scaled` has `LANES` rows of `LANES` elements, and `turned` as many.
            unsafe { simd.interleave(block) };
            let count = S::LANES.min(self.width - channel);
            for (&start, row) in self.starts.iter().zip(turned.chunks_exact(S::LANES)) {
                // SAFETY: each query of each head belongs to one task, which writes it here only.
                let target = unsafe { self.target.part(start + channel, count) };
                simd.store_partial(simd.load(row), target);
            }
        }
    }
}
