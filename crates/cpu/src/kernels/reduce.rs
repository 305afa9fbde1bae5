//! Sums, means, maxima and minima over any axes.
//!
//! Axes are merged until kept and reduced ones alternate. If the innermost axis is reduced, contiguous runs of memory are reduced
//! to one number each; if it is kept, rows are added to rows. Both are split by shape into parts whose results are combined in
//! order, in double precision.

use std::ops::Range;

use cutout_graph::RunError;
use cutout_graph::ops::ReduceKind;
use cutout_parallel::{Pool, SharedSlice};
use cutout_tensor::contiguous_strides;

use super::fold::{Fold, Largest, Smallest, Sum, fold, fold_each};
use crate::execute::{Execute, Io};
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// Elements a task reads.
const TASK: usize = 1 << 14;
/// Elements of a run that are summed in single precision.
const PIECE: usize = 8192;
/// Columns of a task.
const TILE: usize = 4096;
/// Rows that are summed in single precision.
const ROWS: usize = 32;
/// Least number of rows of a part, so that there are few parts.
const PART_ROWS: usize = 4 * ROWS;

/// Reduces some axes of a contiguous input.
pub(crate) struct Reduce {
    kind: ReduceKind,
    /// `(length, stride)` of the kept and of the reduced axes, without the innermost.
    kept: Vec<(usize, usize)>,
    reduced: Vec<(usize, usize)>,
    /// Length of the innermost axis, and whether it is reduced.
    inner: usize,
    inner_is_reduced: bool,
}

impl Reduce {
    /// Reduces `axes` of a contiguous input of this shape.
    pub(crate) fn new(kind: ReduceKind, axes: &[usize], shape: &[usize]) -> Self {
        let mut merged: Vec<(usize, usize, bool)> = Vec::new();
        for (axis, stride) in contiguous_strides(shape).into_iter().enumerate() {
            let is_reduced = axes.contains(&axis);
            match merged.last_mut() {
                _ if shape[axis] == 1 => {}
                Some(outer) if outer.2 == is_reduced => {
                    *outer = (outer.0 * shape[axis], stride, is_reduced);
                }
                Some(_) | None => merged.push((shape[axis], stride, is_reduced)),
            }
        }
        let (inner, _, inner_is_reduced) = merged.pop().unwrap_or((1, 1, false));
        let select = |reduced: bool| {
            let axes = merged.iter().filter(|axis| axis.2 == reduced);
            axes.map(|&(length, stride, _)| (length, stride)).collect()
        };
        Reduce { kind, kept: select(false), reduced: select(true), inner, inner_is_reduced }
    }

    /// Elements that are reduced to one.
    fn count(&self) -> usize {
        product(&self.reduced) * if self.inner_is_reduced { self.inner } else { 1 }
    }

    fn run_as<F: Fold>(&self, fold: F, x: &[f32], output: &mut [f32], machine: (&Pool, Isa)) {
        let (pool, isa) = machine;
        let parts = if self.inner_is_reduced { self.runs().parts } else { self.row_parts().1 };
        let mut results = vec![f64::from(F::START); output.len() * parts];
        if self.inner_is_reduced {
            let runs = self.runs();
            let per_task = (TASK / (runs.piece * runs.per_part)).max(1);
            pool.for_chunks(&mut results, per_task, &|task, results| {
                let first = task * per_task;
                dispatch(isa, RunsTask { reduce: self, runs: &runs, fold, x, first, results });
            });
        } else {
            self.rows(fold, x, &mut results, machine);
        }
        // Stride of the parts of one result; results are adjacent.
        let step = if self.inner_is_reduced { 1 } else { self.inner };
        pool.for_chunks(output, TASK, &|task, output| {
            for (i, element) in output.iter_mut().enumerate() {
                let number = task * TASK + i;
                let first = number / step * step * parts + number % step;
                let own = (0..parts).map(|part| results[first + part * step]);
                let total = own.fold(f64::from(F::START), |a, b| fold.numbers(a, b));
                *element = self.finished(total);
            }
        });
    }

    /// How runs are split.
    fn runs(&self) -> Runs {
        let piece = self.inner.min(PIECE);
        let per_run = self.inner.div_ceil(piece);
        let pieces = product(&self.reduced) * per_run;
        let per_part = (PIECE / piece).min(pieces);
        Runs { piece, per_run, pieces, per_part, parts: pieces.div_ceil(per_part) }
    }

    /// Rows of a part, and the number of parts.
    fn row_parts(&self) -> (usize, usize) {
        let rows = product(&self.reduced);
        let per_part = (TASK / self.inner.min(TILE)).max(PART_ROWS).min(rows);
        (per_part, rows.div_ceil(per_part))
    }

    /// The innermost axis is kept: rows are added to rows.
    fn rows<F: Fold>(&self, fold: F, x: &[f32], results: &mut [f64], machine: (&Pool, Isa)) {
        let (pool, isa) = machine;
        let (per_part, parts) = self.row_parts();
        let (tiles, all) = (self.inner.div_ceil(TILE), product(&self.reduced));
        let blocks = results.len() / self.inner;
        let shared = SharedSlice::new(results);
        pool.run(blocks * tiles, &|task| {
            let (block, column) = (task / tiles, task % tiles * TILE);
            let length = TILE.min(self.inner - column);
            let first = block % parts * per_part;
            let rows = first..(first + per_part).min(all);
            let x = &x[offset(&self.kept, block / parts) + column..];
            // SAFETY: each task has its own block and columns of the results.
            let totals = unsafe { shared.part(block * self.inner + column, length) };
            let reduced = &self.reduced;
            dispatch(isa, RowsTask { fold, x, rows, reduced, totals });
        });
    }

    fn finished(&self, total: f64) -> f32 {
        match self.kind {
            ReduceKind::Mean => (total / self.count() as f64) as f32,
            ReduceKind::Sum | ReduceKind::Maximum | ReduceKind::Minimum => total as f32,
        }
    }
}

impl Execute for Reduce {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let (x, machine) = (io.inputs.f32(0), (io.pool, io.isa));
        let output = io.output.f32();
        if x.is_empty() {
            // Inference allows empty reductions for sums only.
            output.fill(0.0);
            return Ok(());
        }
        match self.kind {
            ReduceKind::Sum | ReduceKind::Mean => self.run_as(Sum, x, output, machine),
            ReduceKind::Maximum => self.run_as(Largest, x, output, machine),
            ReduceKind::Minimum => self.run_as(Smallest, x, output, machine),
        }
        Ok(())
    }
}

/// How the runs of a reduction are split: a run into pieces, the pieces of one result into parts.
struct Runs {
    /// Elements of a piece.
    piece: usize,
    /// Pieces of a run.
    per_run: usize,
    /// Pieces of one result.
    pieces: usize,
    /// Pieces of a part.
    per_part: usize,
    /// Parts of one result.
    parts: usize,
}

/// Reduces the parts of runs from number `first` on.
struct RunsTask<'a, F> {
    reduce: &'a Reduce,
    runs: &'a Runs,
    fold: F,
    x: &'a [f32],
    first: usize,
    results: &'a mut [f64],
}

impl<F: Fold> Kernel for RunsTask<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Runs { piece, per_run, pieces, per_part, parts } = *self.runs;
        for (i, result) in self.results.iter_mut().enumerate() {
            let number = self.first + i;
            let x = &self.x[offset(&self.reduce.kept, number / parts)..];
            let first = number % parts * per_part;
            for number in first..(first + per_part).min(pieces) {
                let from = number % per_run * piece;
                let run = &x[offset(&self.reduce.reduced, number / per_run)..];
                let values = &run[from..(from + piece).min(self.reduce.inner)];
                *result = self.fold.numbers(*result, fold(simd, self.fold, values));
            }
        }
    }
}

/// Reduces some rows, column by column.
struct RowsTask<'a, F> {
    fold: F,
    x: &'a [f32],
    rows: Range<usize>,
    reduced: &'a [(usize, usize)],
    totals: &'a mut [f64],
}

impl<F: Fold> Kernel for RowsTask<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let width = self.totals.len();
        let mut sums = [0f32; TILE];
        let sums = &mut sums[..width];
        for first in self.rows.clone().step_by(ROWS) {
            sums.fill(F::START);
            for row in first..(first + ROWS).min(self.rows.end) {
                let start = offset(self.reduced, row);
                fold_each(simd, self.fold, sums, &self.x[start..start + width]);
            }
            for (total, &sum) in self.totals.iter_mut().zip(&*sums) {
                *total = self.fold.numbers(*total, f64::from(sum));
            }
        }
    }
}

/// Product of the lengths of some axes.
fn product(axes: &[(usize, usize)]) -> usize {
    axes.iter().map(|axis| axis.0).product()
}

/// Offset of element `number` of some axes.
#[inline(always)]
fn offset(axes: &[(usize, usize)], mut number: usize) -> usize {
    let mut offset = 0;
    for &(length, stride) in axes.iter().rev() {
        offset += number % length * stride;
        number /= length;
    }
    offset
}
