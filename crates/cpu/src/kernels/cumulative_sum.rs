//! Cumulative sums along an axis.

use cutout_graph::RunError;
use cutout_parallel::SharedSlice;

use crate::execute::{Execute, Io};
use crate::simd::{Kernel, Simd, dispatch};

/// Elements of a task, at least a whole row.
const TASK: usize = 1 << 14;

/// Columns of a task.
const TILE: usize = 512;

/// Sums along an axis of a contiguous input `[outer, length, inner]`, in double precision.
pub(crate) struct CumulativeSum {
    length: usize,
    inner: usize,
}

impl CumulativeSum {
    /// Sums along axis `axis`.
    pub(crate) fn new(shape: &[usize], axis: usize) -> Self {
        CumulativeSum { length: shape[axis], inner: shape[axis + 1..].iter().product() }
    }
}

impl Execute for CumulativeSum {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let (isa, x) = (io.isa, io.inputs.f32(0));
        let output = io.output.f32();
        if output.is_empty() {
            return Ok(());
        }
        if self.inner == 1 {
            let rows = (TASK / self.length).max(1) * self.length;
            io.pool.for_chunks(output, rows, &|task, output| {
                let x = &x[task * rows..task * rows + output.len()];
                let pairs = x.chunks_exact(self.length).zip(output.chunks_exact_mut(self.length));
                pairs.for_each(|(x, output)| add_up(x, output));
            });
            return Ok(());
        }
        let tiles = self.inner.div_ceil(TILE);
        let block = self.length * self.inner;
        let blocks = output.len() / block;
        let output = SharedSlice::new(output);
        io.pool.run(blocks * tiles, &|task| {
            let column = task % tiles * TILE;
            let (first, stride) = (task / tiles * block + column, self.inner);
            let width = TILE.min(self.inner - column);
            let shape = Tile { first, stride, width, length: self.length };
            dispatch(isa, ColumnsTask { x, output: &output, shape });
        });
        Ok(())
    }
}

fn add_up(x: &[f32], output: &mut [f32]) {
    let mut sum = 0f64;
    for (&x, output) in x.iter().zip(output) {
        sum += f64::from(x);
        *output = sum as f32;
    }
}

/// Columns of one block: `length` rows of `width` elements, `stride` apart.
struct Tile {
    first: usize,
    stride: usize,
    width: usize,
    length: usize,
}

/// Sums adjacent columns, which only this task writes.
struct ColumnsTask<'a> {
    x: &'a [f32],
    output: &'a SharedSlice<f32>,
    shape: Tile,
}

impl Kernel for ColumnsTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Tile { first, stride, width, length } = self.shape;
        let mut sums = [0f64; TILE];
        for index in 0..length {
            let start = first + index * stride;
            // SAFETY: rows of a tile do not overlap, and neither do the tiles of different tasks.
            let output = unsafe { self.output.part(start, width) };
            let x = &self.x[start..start + width];
            for ((sum, &x), output) in sums.iter_mut().zip(x).zip(output) {
                *sum += f64::from(x);
                *output = *sum as f32;
            }
        }
    }
}
