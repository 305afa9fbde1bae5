//! Exponentials that sum to one, over the last axis.

use cutout_graph::{Layout, RunError};

use super::rows::{RowIn, RowKernel, RowOut, Rows, fill_scratch, padded};
use crate::execute::{Execute, Io};
use crate::simd::Simd;
use crate::vecmath;

/// Softmax over rows. The input may be overwritten.
pub(crate) struct Softmax {
    rows: Rows,
}

impl Softmax {
    /// The last axis of `input` is dense.
    pub(crate) fn new(input: &Layout) -> Self {
        Softmax { rows: Rows::new(input) }
    }
}

impl Execute for Softmax {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        self.rows.run(self, io);
        Ok(())
    }
}

impl RowKernel for Softmax {
    /// One over the sum of the exponentials in scratch memory.
    type State = f32;

    fn scratch(&self) -> usize {
        padded(self.rows.width)
    }

    #[inline(always)]
    fn read<S: Simd>(&self, simd: S, source: RowIn<'_>, scratch: &mut [f32]) -> f32 {
        // What fills up the last vector weighs nothing.
        fill_scratch(source.values, f32::NEG_INFINITY, scratch);
        let largest = simd.splat(largest(simd, scratch));
        let mut sums = [simd.splat(0.0); 4];
        for (number, group) in scratch.chunks_exact_mut(4 * S::LANES).enumerate() {
            for (i, sum) in sums.iter_mut().enumerate() {
                source.prefetch_next(simd, (4 * number + i) * S::LANES);
                let part = &mut group[i * S::LANES..(i + 1) * S::LANES];
                let weight = vecmath::exp(simd, simd.sub(simd.load(part), largest));
                *sum = simd.add(*sum, weight);
                simd.store(weight, part);
            }
        }
        let halves = [simd.add(sums[0], sums[1]), simd.add(sums[2], sums[3])];
        1.0 / simd.reduce_sum(simd.add(halves[0], halves[1]))
    }

    #[inline(always)]
    fn write<S: Simd>(&self, simd: S, scale: f32, scratch: &mut [f32], mut out: RowOut<'_>) {
        let scale = simd.splat(scale);
        let weights = scratch.chunks_exact(S::LANES).take(self.rows.width.div_ceil(S::LANES));
        for (number, weight) in weights.enumerate() {
            out.put(simd, simd.mul(simd.load(weight), scale), number * S::LANES);
        }
    }
}

/// The largest of the elements, a multiple of 64, without regard to NaN: a NaN makes the sum NaN, whatever is largest.
#[inline(always)]
fn largest<S: Simd>(simd: S, values: &[f32]) -> f32 {
    let mut largest = [simd.splat(f32::NEG_INFINITY); 4];
    for group in values.chunks_exact(4 * S::LANES) {
        for (i, largest) in largest.iter_mut().enumerate() {
            *largest = simd.max(simd.load(&group[i * S::LANES..]), *largest);
        }
    }
    let halves = [simd.max(largest[0], largest[1]), simd.max(largest[2], largest[3])];
    simd.reduce_max(simd.max(halves[0], halves[1]))
}
