//! Index of the largest element along an axis.

use cutout_graph::RunError;
use cutout_parallel::SharedSlice;

use super::fold::{Largest, fold};
use crate::execute::{Execute, Io};
use crate::simd::{Kernel, Simd, dispatch};

/// Elements a task reads.
const TASK: usize = 1 << 14;

/// Columns of a task.
const TILE: usize = 512;

/// Searches an axis of a contiguous input `[outer, length, inner]`. Of equal elements the first counts; NaN is larger than any
/// number.
pub(crate) struct ArgMax {
    length: usize,
    inner: usize,
}

impl ArgMax {
    /// Searches axis `axis`, which is not empty.
    pub(crate) fn new(shape: &[usize], axis: usize) -> Self {
        ArgMax { length: shape[axis], inner: shape[axis + 1..].iter().product() }
    }
}

impl Execute for ArgMax {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let (isa, x) = (io.isa, io.inputs.f32(0));
        let output = io.output.slice::<i64>();
        if output.is_empty() {
            return Ok(());
        }
        let length = self.length;
        if self.inner == 1 {
            let rows = (TASK / length).max(1);
            io.pool.for_chunks(output, rows, &|task, output| {
                let first = task * rows * length;
                let x = &x[first..first + output.len() * length];
                dispatch(isa, RowsTask { x, length, output });
            });
            return Ok(());
        }
        let tiles = self.inner.div_ceil(TILE);
        let blocks = output.len() / self.inner;
        let shared = SharedSlice::new(output);
        io.pool.run(blocks * tiles, &|task| {
            let (block, column) = (task / tiles, task % tiles * TILE);
            let width = TILE.min(self.inner - column);
            // SAFETY: each task has its own block and columns of the output.
            let output = unsafe { shared.part(block * self.inner + column, width) };
            let x = &x[block * length * self.inner + column..];
            dispatch(isa, ColumnsTask { x, stride: self.inner, length, output });
        });
        Ok(())
    }
}

/// Searches contiguous rows.
struct RowsTask<'a> {
    x: &'a [f32],
    length: usize,
    output: &'a mut [i64],
}

impl Kernel for RowsTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (row, found) in self.x.chunks_exact(self.length).zip(self.output) {
            let largest = fold(simd, Largest, row) as f32;
            let at = if largest.is_nan() {
                row.iter().position(|x| x.is_nan())
            } else {
                row.iter().position(|&x| x == largest)
            };
            *found = at.expect("the largest element is one of them") as i64;
        }
    }
}

/// Searches adjacent columns.
struct ColumnsTask<'a> {
    x: &'a [f32],
    stride: usize,
    length: usize,
    output: &'a mut [i64],
}

impl Kernel for ColumnsTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let width = self.output.len();
        let mut largest = [0f32; TILE];
        let largest = &mut largest[..width];
        largest.copy_from_slice(&self.x[..width]);
        self.output.fill(0);
        for index in 1..self.length {
            let row = &self.x[index * self.stride..index * self.stride + width];
            let best = largest.iter_mut().zip(&mut *self.output);
            for (&x, (largest, found)) in row.iter().zip(best) {
                // Nothing is larger than NaN, and only the first NaN counts.
                let better = (x > *largest) | (x.is_nan() & !largest.is_nan());
                *largest = if better { x } else { *largest };
                *found = if better { index as i64 } else { *found };
            }
        }
    }
}
