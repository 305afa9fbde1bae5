//! A block of keys.

use std::ops::Range;

use super::operands::{HeadIndex, Operands};
use super::plan::{Job, MOST_KEYS, Plan};
use crate::simd::Simd;

/// Most keys whose mean stands for that of all.
const MOST_SAMPLES: usize = 64;

/// A range of positions of a window of keys, row-major.
#[derive(Clone, Debug)]
pub(super) struct Span {
    /// Their indices in the window.
    pub(super) indices: Range<usize>,
    /// Bias rows that are packed for them.
    pub(super) rows: Range<usize>,
    /// Bias columns that are packed for them.
    pub(super) columns: Range<usize>,
}

impl Span {
    const EMPTY: Span = Span { indices: 0..0, rows: 0..0, columns: 0..0 };

    /// The block of a job's keys that starts at `index`.
    fn new(plan: &Plan, job: &Job, index: usize) -> Span {
        let end = job.key_range.end.min(index + plan.key_block);
        let Some(bias) = plan.bias else {
            return Span { indices: index..end, ..Span::EMPTY };
        };
        let [height, width] = bias.grid;
        let [y, x] = job.keys.position_at(index);
        // Unless all columns are packed, a block stays in one row.
        let all_columns = bias.lengths[1] == width;
        let end = if all_columns { end } else { end.min(index + width - x) };
        let all_rows = bias.lengths[0] == height;
        Span {
            indices: index..end,
            rows: if all_rows { 0..height } else { y..(end - 1) / width + 1 },
            columns: if all_columns { 0..width } else { x..x + (end - index) },
        }
    }
}

/// The unmasked keys of a block, in the order of their positions.
pub(super) struct KeyBlock {
    /// The positions that the block was gathered from.
    pub(super) span: Span,
    /// Number of keys.
    pub(super) count: usize,
    /// Number of keys at the start that are rotated.
    pub(super) rotated: usize,
    keys: [*const f32; MOST_KEYS],
    values: [*const f32; MOST_KEYS],
    /// The first queries of the job, if they are to be prefetched with the keys.
    queries: [*const f32; MOST_KEYS],
    query_count: usize,
    /// Index in the window.
    pub(super) indices: [u32; MOST_KEYS],
    /// Row and column in the packed biases.
    pub(super) bias: [[u32; 2]; MOST_KEYS],
}

impl KeyBlock {
    /// A block without keys.
    pub(super) fn new() -> KeyBlock {
        KeyBlock {
            span: Span::EMPTY,
            count: 0,
            rotated: 0,
            keys: [std::ptr::null(); MOST_KEYS],
            values: [std::ptr::null(); MOST_KEYS],
            queries: [std::ptr::null(); MOST_KEYS],
            query_count: 0,
            indices: [0; MOST_KEYS],
            bias: [[0; 2]; MOST_KEYS],
        }
    }

    /// Address of each key in the task's first head; readable for the width of all heads of the task.
    pub(super) fn keys(&self) -> &[*const f32] {
        &self.keys[..self.count]
    }

    /// Address of each value in the task's first head; readable for the width of all heads of the task.
    pub(super) fn values(&self) -> &[*const f32] {
        &self.values[..self.count]
    }

    /// Redirects the keys to copies, `stride` elements apart.
    pub(super) fn move_keys(&mut self, copies: &[f32], stride: usize) {
        for (key, copy) in self.keys[..self.count].iter_mut().zip(copies.chunks_exact(stride)) {
            *key = copy.as_ptr();
        }
    }

    /// Redirects the values to copies, `stride` elements apart.
    pub(super) fn move_values(&mut self, copies: &[f32], stride: usize) {
        for (value, copy) in self.values[..self.count].iter_mut().zip(copies.chunks_exact(stride)) {
            *value = copy.as_ptr();
        }
    }

    /// Collects the keys of the block that starts at `index`; none at or beyond the end of the job's keys.
    pub(super) fn gather(&mut self, plan: &Plan, job: &Job, operands: &Operands<'_>, index: usize) {
        (self.count, self.rotated) = (0, 0);
        if index >= job.key_range.end {
            self.span = Span::EMPTY;
            return;
        }
        let span = Span::new(plan, job, index);
        let last_head = HeadIndex { head: job.head.head + plan.task_heads - 1, ..job.head };
        let mut index = span.indices.start;
        while index < span.indices.end {
            let [y, x] = job.keys.position_at(index);
            let [inside, beyond] = job.keys.rest_of_row([y, x]);
            let inside = inside.min(span.indices.end - index);
            let beyond = beyond.min(span.indices.end - index - inside);
            let run =
                Run { index, length: inside, bias: [y - span.rows.start, x - span.columns.start] };
            if inside > 0 {
                self.add_tokens([job.head, last_head], operands, job.keys.token([y, x]), &run);
            }
            if beyond > 0 {
                let bias = [run.bias[0], run.bias[1] + inside];
                let run = Run { index: index + inside, length: beyond, bias };
                self.add_padding(job.head, operands, &run);
            }
            index += inside + beyond;
        }
        self.count_rotated(plan, job);
        self.span = span;
    }

    /// Collects unmasked keys that are spread evenly over the window of a job. They do not depend on the job's part of the keys.
    pub(super) fn sample(&mut self, plan: &Plan, job: &Job, operands: &Operands<'_>) {
        self.count = 0;
        let positions = job.keys.positions();
        let step = positions.div_ceil(plan.key_block.min(MOST_SAMPLES)).max(1);
        for index in (0..positions).step_by(step) {
            let position = job.keys.position_at(index);
            if job.keys.rest_of_row(position)[0] > 0 {
                let run = Run { index, length: 1, bias: [0; 2] };
                self.add_tokens([job.head; 2], operands, job.keys.token(position), &run);
            }
        }
        self.count_rotated(plan, job);
        self.span = Span::EMPTY;
    }

    /// Counts the keys that are rotated.
    fn count_rotated(&mut self, plan: &Plan, job: &Job) {
        let rotated = job.keys.positions() - plan.key_tail;
        self.rotated =
            self.indices[..self.count].partition_point(|&index| (index as usize) < rotated);
    }

    /// Collects the first queries of a job, to be prefetched with the keys.
    pub(super) fn gather_queries(&mut self, job: &Job, operands: &Operands<'_>) {
        self.query_count = job.count.min(MOST_KEYS);
        let mut positions = job.queries.walk(job.first);
        for query in &mut self.queries[..self.query_count] {
            let token = job.queries.token(positions.step());
            *query = operands.query.row(job.head, token).as_ptr();
        }
    }

    /// Adds consecutive tokens from `token` on, except masked ones. `heads` are the task's first and last head.
    fn add_tokens(
        &mut self,
        heads: [HeadIndex; 2],
        operands: &Operands<'_>,
        token: usize,
        run: &Run,
    ) {
        let [head, last_head] = heads;
        let (key, value) = (operands.key.row(head, token), operands.value.row(head, token));
        let last = token + run.length - 1;
        // The last head lies inside the inputs, and so do those in between.
        let _ = (operands.key.row(last_head, last), operands.value.row(last_head, last));
        let [key_stride, value_stride] = [operands.key.stride(), operands.value.stride()];
        let first = self.count;
        if !operands.has_mask() {
            for i in 0..run.length {
                self.keys[first + i] = key.as_ptr().wrapping_add(i * key_stride);
                self.values[first + i] = value.as_ptr().wrapping_add(i * value_stride);
                self.describe(first + i, run, i);
            }
            self.count += run.length;
            return;
        }
        for i in (0..run.length).filter(|i| operands.takes_part(head.image, token + i)) {
            let slot = self.count;
            self.keys[slot] = key.as_ptr().wrapping_add(i * key_stride);
            self.values[slot] = value.as_ptr().wrapping_add(i * value_stride);
            self.describe(slot, run, i);
            self.count += 1;
        }
    }

    /// Adds positions beyond the grid.
    fn add_padding(&mut self, head: HeadIndex, operands: &Operands<'_>, run: &Run) {
        let padding = operands.padding.expect("only a window with padding reaches beyond the grid");
        let [key, value] = padding.map(|channels| channels.head(head.head).as_ptr());
        for i in 0..run.length {
            let slot = self.count + i;
            (self.keys[slot], self.values[slot]) = (key, value);
            self.describe(slot, run, i);
        }
        self.count += run.length;
    }

    #[inline(always)]
    fn describe(&mut self, slot: usize, run: &Run, number: usize) {
        self.indices[slot] = (run.index + number) as u32;
        self.bias[slot] = [run.bias[0] as u32, (run.bias[1] + number) as u32];
    }

    /// Prefetches a range of the keys and values, and of the collected queries.
    #[inline(always)]
    pub(super) fn fetch<S: Simd>(&self, simd: S, plan: &Plan, range: Range<usize>) {
        const LINE: usize = 16;
        for query in
            &self.queries[range.start.min(self.query_count)..range.end.min(self.query_count)]
        {
            for line in 0..(plan.task_heads * plan.width).div_ceil(LINE) {
                simd.prefetch_second_level(query.wrapping_add(line * LINE));
            }
        }
        for slot in range.start..range.end.min(self.count) {
            for line in 0..(plan.task_heads * plan.width).div_ceil(LINE) {
                simd.prefetch_second_level(self.keys[slot].wrapping_add(line * LINE));
            }
            for line in 0..(plan.task_heads * plan.value_width).div_ceil(LINE) {
                simd.prefetch_second_level(self.values[slot].wrapping_add(line * LINE));
            }
        }
    }
}

/// Consecutive positions of one row.
struct Run {
    /// Index of the first in the window.
    index: usize,
    length: usize,
    /// Row and column of the first in the packed biases.
    bias: [usize; 2],
}
