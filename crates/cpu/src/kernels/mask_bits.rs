//! Masks at the size of a picture, as bits, from low-resolution logits.
//!
//! A task makes some columns of one mask. Each column is resampled horizontally as a whole, then vertically, pixel by pixel.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use cutout_graph::ops::{self, BilinearStage, BilinearTap};
use cutout_graph::{CompileError, RunError};
use cutout_parallel::SharedSlice;

use crate::execute::{Execute, Io};
use crate::lower::Site;

/// Columns of a task.
const COLUMNS: usize = 64;

/// Rows in a word of bits.
const WORD: usize = 32;

/// A compiled [`ops::MaskBits`].
pub(crate) struct MaskBits {
    op: ops::MaskBits,
    /// Height and width of the logits.
    low: [usize; 2],
    /// The resampling to the model's square, if there is one.
    first: Option<BilinearStage>,
    last: BilinearStage,
}

impl MaskBits {
    pub(crate) fn new(op: &ops::MaskBits, site: &Site<'_>) -> Result<Self, CompileError> {
        let shape = &site.inputs[0].ty.shape;
        let low = [shape[1], shape[2]];
        let mut stages = op.stages(low);
        let (Some(last), first) = (stages.pop(), stages.pop()) else {
            let reason = "no resampling".to_owned();
            return Err(CompileError::Unsupported { op: format!("{op:?}"), reason });
        };
        Ok(MaskBits { op: *op, low, first, last })
    }

    /// Rows of the image that the last resampling reads.
    fn rows(&self) -> usize {
        self.first.as_ref().map_or(self.low[0], |stage| stage.rows.len())
    }

    /// Elements of scratch memory: a column of the logits, and two of the image that the last resampling reads.
    fn scratch(&self) -> usize {
        self.low[0] + 2 * self.rows()
    }

    /// Writes the bits of some columns, `bits: [columns, words]`. Returns how many pixels are above the outer two thresholds.
    fn columns(
        &self,
        logits: &[f32],
        columns: Range<usize>,
        bits: &mut [i32],
        scratch: &mut [f32],
    ) -> [u32; 2] {
        let (low, scratch) = scratch.split_at_mut(self.low[0]);
        let (column, other) = scratch.split_at_mut(self.rows());
        let [sure, possible, threshold] = self.op.thresholds();
        let mut counts = [0; 2];
        let taps = &self.last.columns[columns];
        for (tap, words) in taps.iter().zip(bits.chunks_exact_mut(self.op.words())) {
            match &self.first {
                None => across(logits, self.low[1], tap, column),
                Some(stage) => {
                    across(logits, self.low[1], &stage.columns[tap.first], low);
                    down(low, &stage.rows, column);
                    across(logits, self.low[1], &stage.columns[tap.second], low);
                    down(low, &stage.rows, other);
                    for (first, &second) in column.iter_mut().zip(&*other) {
                        *first = mixed(*first, second, tap.weight);
                    }
                }
            }
            for (word, rows) in words.iter_mut().zip(self.last.rows.chunks(WORD)) {
                let mut set = 0;
                for (bit, tap) in rows.iter().enumerate() {
                    let value = mixed(column[tap.first], column[tap.second], tap.weight);
                    counts[0] += u32::from(value > sure);
                    counts[1] += u32::from(value > possible);
                    set |= u32::from(value > threshold) << bit;
                }
                *word = set.cast_signed();
            }
        }
        counts
    }
}

/// Not fused, so that masks are the same bits as those made from rows.
fn mixed(first: f32, second: f32, weight: f32) -> f32 {
    (1.0 - weight) * first + weight * second
}

/// One column of the horizontally resampled `image: [column.len(), width]`.
fn across(image: &[f32], width: usize, tap: &BilinearTap, column: &mut [f32]) {
    for (value, row) in column.iter_mut().zip(image.chunks_exact(width)) {
        *value = mixed(row[tap.first], row[tap.second], tap.weight);
    }
}

/// A vertically resampled column.
fn down(column: &[f32], rows: &[BilinearTap], result: &mut [f32]) {
    for (value, tap) in result.iter_mut().zip(rows) {
        *value = mixed(column[tap.first], column[tap.second], tap.weight);
    }
}

impl Execute for MaskBits {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let (x, output) = (io.inputs.f32(0), io.output.slice::<i32>());
        let (width, words) = (self.op.size[1], self.op.words());
        let (pixels, length) = (self.low[0] * self.low[1], 2 + width * words);
        let blocks = width.div_ceil(COLUMNS);
        let masks = output.len() / length;
        let counts: Vec<[AtomicU32; 2]> = (0..masks).map(|_| Default::default()).collect();
        let shared = SharedSlice::new(output);
        io.pool.run_with_scratch(masks * blocks, self.scratch(), &|task, scratch| {
            let (mask, first) = (task / blocks, task % blocks * COLUMNS);
            let columns = first..width.min(first + COLUMNS);
            let start = mask * length + 2 + first * words;
            // SAFETY: tasks make different columns of bits.
            let bits = unsafe { shared.part(start, columns.len() * words) };
            let logits = &x[mask * pixels..][..pixels];
            let found = self.columns(logits, columns, bits, scratch);
            for (count, found) in counts[mask].iter().zip(found) {
                count.fetch_add(found, Ordering::Relaxed);
            }
        });
        for (row, counts) in output.chunks_exact_mut(length).zip(counts) {
            let [sure, possible] = counts.map(|count| count.into_inner().cast_signed());
            row[..2].copy_from_slice(&[sure, possible]);
        }
        Ok(())
    }
}
