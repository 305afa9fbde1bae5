//! Writes the outputs: sums of weighted values divided by the sums of the weights.

use crate::simd::{Interleave, Kernel, MAX_LANES, Simd};

/// The output, `[batch, queries, heads * width]`, of which each task writes some queries of one head.
#[derive(Clone, Copy)]
pub(super) struct Target {
    start: *mut f32,
    length: usize,
}

// SAFETY: tasks write disjoint parts.
unsafe impl Sync for Target {}
// SAFETY: as above.
unsafe impl Send for Target {}

impl Target {
    /// # Safety
    /// The slice stays borrowed while the target is in use, and no two threads write the same elements.
    pub(super) unsafe fn new(output: &mut [f32]) -> Target {
        Target { start: output.as_mut_ptr(), length: output.len() }
    }

    /// `length` elements from `start` on.
    #[inline(always)]
    fn part(&self, start: usize, length: usize) -> *mut f32 {
        assert!(start <= self.length && length <= self.length - start);
        self.start.wrapping_add(start)
    }
}

/// Writes the outputs of one vector of queries.
pub(super) struct WriteVector<'a> {
    /// Sums of weighted values, `LANES` elements for each channel (rounded up to whole vectors), `stride` elements apart.
    pub(super) outputs: &'a mut [f32],
    pub(super) stride: usize,
    /// Sums of the weights, `[LANES]`.
    pub(super) sums: &'a [f32],
    /// Channels.
    pub(super) width: usize,
    /// Offset of each query's channels in the target.
    pub(super) starts: &'a [usize],
    pub(super) target: Target,
}

impl Kernel for WriteVector<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let inverse = simd.div(simd.splat(1.0), simd.load(self.sums));
        for channel in 0..self.width {
            let output = &mut self.outputs[channel * self.stride..];
            simd.store(simd.mul(simd.load(output), inverse), output);
        }
        let extent = (S::LANES - 1) * self.stride + S::LANES;
        let step = self.even_step::<S>();
        for channel in (0..self.width).step_by(S::LANES) {
            let channels = self.outputs[channel * self.stride..][..extent].as_ptr();
            let mut rows = [channels; MAX_LANES];
            for (index, row) in rows.iter_mut().enumerate() {
                *row = channels.wrapping_add(index * self.stride);
            }
            let (rows, count) = (&rows[..S::LANES], S::LANES.min(self.width - channel));
            if let Some(step) = step
                && count == S::LANES
            {
                let length = (S::LANES - 1) * step + S::LANES;
                let out = self.target.part(self.starts[0] + channel, length);
                let block = Interleave { rows, column: 0, panel_rows: step, out };
                // SAFETY: the rows were sliced, and these elements of the target are this task's.
                unsafe { simd.interleave(block) };
                continue;
            }
            let mut turned = [0.0; MAX_LANES * MAX_LANES];
            let out = turned.as_mut_ptr();
            let block = Interleave { rows, column: 0, panel_rows: S::LANES, out };
            // SAFETY: the rows were sliced, and `turned` holds `LANES` rows of `LANES` elements.
            unsafe { simd.interleave(block) };
            for (&start, row) in self.starts.iter().zip(turned.chunks_exact(S::LANES)) {
                let target = self.target.part(start + channel, count);
                if count == S::LANES {
                    // SAFETY: these elements of the target are this task's.
                    unsafe { simd.store_pointer(simd.load(row), target) };
                } else {
                    // SAFETY: as above.
                    unsafe { simd.store_partial_pointer(simd.load(row), target, count) };
                }
            }
        }
    }
}

impl WriteVector<'_> {
    /// The stride between the queries in the target, if there are `LANES` queries, evenly spaced by at least a vector.
    #[inline(always)]
    fn even_step<S: Simd>(&self) -> Option<usize> {
        let &[first, second, ..] = self.starts else { return None };
        let step = second.checked_sub(first).filter(|&step| step >= S::LANES)?;
        let even = self.starts.windows(2).all(|pair| pair[1] == pair[0] + step);
        (even && self.starts.len() == S::LANES).then_some(step)
    }
}
