//! Softmax over the last axis.

use cutout_graph::{Layout, RunError};

use super::rows::{RowIn, RowKernel, RowOut, Rows, fill_scratch, padded};
use crate::execute::{Execute, Io};
use crate::simd::{Kernel, LANE_NUMBERS, MAX_LANES, Simd, dispatch};
use crate::vecmath;

/// Softmax over rows. The input may be overwritten.
pub(crate) struct Softmax {
    rows: Rows,
    /// Whether the rows are contiguous.
    contiguous: bool,
}

impl Softmax {
    /// The last axis of `input` is contiguous.
    pub(crate) fn new(input: &Layout) -> Self {
        Softmax { rows: Rows::new(input), contiguous: input.is_contiguous() }
    }
}

impl Execute for Softmax {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        if self.contiguous && (1..=io.isa.lanes()).contains(&self.rows.width) {
            self.run_narrow(io);
        } else {
            self.rows.run(self, io);
        }
        Ok(())
    }
}

impl Softmax {
    /// Contiguous rows that fit a vector.
    fn run_narrow(&self, io: Io<'_>) {
        let (isa, width) = (io.isa, self.rows.width);
        let source = (!io.inputs.is_in_place(0)).then(|| io.inputs.f32(0));
        let chunk = NARROW_TASK / width * width;
        io.pool.for_chunks(io.output.f32(), chunk, &|task, target| {
            let source = source.map(|source| &source[task * chunk..][..target.len()]);
            dispatch(isa, Narrow { width, source, target });
        });
    }
}

impl RowKernel for Softmax {
    /// Reciprocal of the sum of the exponentials in scratch memory.
    type State = f32;

    fn scratch(&self) -> usize {
        padded(self.rows.width)
    }

    #[inline(always)]
    fn read<S: Simd>(&self, simd: S, source: RowIn<'_>, scratch: &mut [f32]) -> f32 {
        // The padding of the last vector has weight zero.
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

/// Contiguous rows of at most one vector each: attention of many pixels to a few keys.
struct Narrow<'a> {
    width: usize,
    /// The rows, unless they are in the target.
    source: Option<&'a [f32]>,
    target: &'a mut [f32],
}

/// Elements of a task.
const NARROW_TASK: usize = 1 << 14;
/// Elements of the buffer in which rows are computed, where whole vectors may be read and written.
const NARROW_BLOCK: usize = 512;

impl Kernel for Narrow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Narrow { width, source, target } = self;
        let mut rows = [0.0; NARROW_BLOCK + MAX_LANES];
        let mut results = [0.0; NARROW_BLOCK + MAX_LANES];
        let inside = simd.less(simd.load(&LANE_NUMBERS), simd.splat(width as f32));
        let block = NARROW_BLOCK / width * width;
        for (number, target) in target.chunks_mut(block).enumerate() {
            let length = target.len();
            let block = source.map_or(&*target, |source| &source[number * block..][..length]);
            rows[..length].copy_from_slice(block);
            for start in (0..length).step_by(width) {
                let values = simd.load(&rows[start..]);
                let values = simd.select(inside, values, simd.splat(f32::NEG_INFINITY));
                let largest = simd.splat(simd.reduce_max(values));
                let weights = vecmath::exp(simd, simd.sub(values, largest));
                let sum = simd.splat(simd.reduce_sum(weights));
                // Lanes beyond the row are overwritten by the next row.
                simd.store(simd.div(weights, sum), &mut results[start..]);
            }
            target.copy_from_slice(&results[..length]);
        }
    }
}

/// The largest of the elements, a multiple of 64, ignoring NaN: a NaN makes the sum NaN in any case.
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
