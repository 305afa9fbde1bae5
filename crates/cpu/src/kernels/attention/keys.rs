//! The keys of one block.

use std::ops::Range;

use super::operands::{Operands, Place};
use super::plan::{Job, MOST_KEYS, Plan};
use crate::simd::Simd;

/// Some positions of a window of keys, row-major.
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
        // Where not all columns are packed, a block stays in one row.
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

/// The keys of a block that take part, in the order of their positions.
pub(super) struct KeyBlock {
    /// The positions that the block was gathered from.
    pub(super) span: Span,
    /// How many keys there are.
    pub(super) count: usize,
    /// How many of them, the first ones, are rotated.
    pub(super) rotated: usize,
    keys: [*const f32; MOST_KEYS],
    values: [*const f32; MOST_KEYS],
    /// The first queries that will meet the keys, where those are fetched too.
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

    /// Where each key starts in the task's first head: as many readable elements as its heads of keys are wide.
    pub(super) fn keys(&self) -> &[*const f32] {
        &self.keys[..self.count]
    }

    /// Where each value starts in the task's first head: as many readable elements as its heads of values are wide.
    pub(super) fn values(&self) -> &[*const f32] {
        &self.values[..self.count]
    }

    /// Takes the keys from copies instead, `stride` elements apart.
    pub(super) fn move_keys(&mut self, copies: &[f32], stride: usize) {
        for (key, copy) in self.keys[..self.count].iter_mut().zip(copies.chunks_exact(stride)) {
            *key = copy.as_ptr();
        }
    }

    /// Takes the values from copies instead, `stride` elements apart.
    pub(super) fn move_values(&mut self, copies: &[f32], stride: usize) {
        for (value, copy) in self.values[..self.count].iter_mut().zip(copies.chunks_exact(stride)) {
            *value = copy.as_ptr();
        }
    }

    /// Collects the keys of the block that starts at `index`; none from the end of the job's keys on.
    pub(super) fn gather(&mut self, plan: &Plan, job: &Job, operands: &Operands<'_>, index: usize) {
        (self.count, self.rotated) = (0, 0);
        if index >= job.key_range.end {
            self.span = Span::EMPTY;
            return;
        }
        let span = Span::new(plan, job, index);
        let last_head = Place { head: job.place.head + plan.task_heads - 1, ..job.place };
        let mut index = span.indices.start;
        while index < span.indices.end {
            let [y, x] = job.keys.position_at(index);
            let [inside, beyond] = job.keys.rest_of_row([y, x]);
            let inside = inside.min(span.indices.end - index);
            let beyond = beyond.min(span.indices.end - index - inside);
            let run =
                Run { index, length: inside, bias: [y - span.rows.start, x - span.columns.start] };
            if inside > 0 {
                self.add_tokens([job.place, last_head], operands, job.keys.token([y, x]), &run);
            }
            if beyond > 0 {
                let bias = [run.bias[0], run.bias[1] + inside];
                let run = Run { index: index + inside, length: beyond, bias };
                self.add_padding(job.place, operands, &run);
            }
            index += inside + beyond;
        }
        let rotated = job.keys.positions() - plan.key_tail;
        self.rotated =
            self.indices[..self.count].partition_point(|&index| (index as usize) < rotated);
        self.span = span;
    }

    /// Notes the first queries of a job, to be fetched with the keys.
    pub(super) fn gather_queries(&mut self, job: &Job, operands: &Operands<'_>) {
        self.query_count = job.count.min(MOST_KEYS);
        for (number, query) in self.queries[..self.query_count].iter_mut().enumerate() {
            let token = job.queries.token(job.queries.position(job.first + number));
            *query = operands.query.row(job.place, token).as_ptr();
        }
    }

    /// Adds neighbouring tokens, from `token` on, except masked ones. `places` are the task's first and last head.
    fn add_tokens(&mut self, places: [Place; 2], operands: &Operands<'_>, token: usize, run: &Run) {
        let [place, last_head] = places;
        let (key, value) = (operands.key.row(place, token), operands.value.row(place, token));
        let last = token + run.length - 1;
        // The last one lies inside the inputs, and so do those in between.
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
        for i in (0..run.length).filter(|i| operands.takes_part(place.image, token + i)) {
            let slot = self.count;
            self.keys[slot] = key.as_ptr().wrapping_add(i * key_stride);
            self.values[slot] = value.as_ptr().wrapping_add(i * value_stride);
            self.describe(slot, run, i);
            self.count += 1;
        }
    }

    /// Adds positions beyond the grid.
    fn add_padding(&mut self, place: Place, operands: &Operands<'_>, run: &Run) {
        let padding = operands.padding.expect("only a window with padding reaches beyond the grid");
        let [key, value] = padding.map(|channels| channels.head(place.head).as_ptr());
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

    /// Asks for some of the keys and values, and of the queries that were noted, because they are needed soon.
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

/// Neighbouring positions of one row.
struct Run {
    /// Index of the first in the window.
    index: usize,
    length: usize,
    /// Row and column of the first in the packed biases.
    bias: [usize; 2],
}
