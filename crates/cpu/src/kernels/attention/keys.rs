//! The keys of one block.

use std::ops::Range;

use super::operands::Operands;
use super::plan::{Job, MOST_KEYS, Plan};

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

    /// The block of a window that starts at `index`.
    fn new(plan: &Plan, job: &Job, index: usize) -> Span {
        let end = job.keys.positions().min(index + plan.key_block);
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
            indices: [0; MOST_KEYS],
            bias: [[0; 2]; MOST_KEYS],
        }
    }

    /// Where each key starts: as many readable elements as a head of keys is wide.
    pub(super) fn keys(&self) -> &[*const f32] {
        &self.keys[..self.count]
    }

    /// Where each value starts: as many readable elements as a head of values is wide.
    pub(super) fn values(&self) -> &[*const f32] {
        &self.values[..self.count]
    }

    /// Collects the keys of the block that starts at `index`; none from the end of the window on.
    pub(super) fn gather(&mut self, plan: &Plan, job: &Job, operands: &Operands<'_>, index: usize) {
        (self.count, self.rotated) = (0, 0);
        if index >= job.keys.positions() {
            self.span = Span::EMPTY;
            return;
        }
        let span = Span::new(plan, job, index);
        let rotated = job.keys.positions() - plan.key_tail;
        let mut position = job.keys.position_at(index);
        for index in span.indices.clone() {
            if let Some([key, value]) = source(job, operands, position) {
                let slot = self.count;
                self.keys[slot] = key.as_ptr();
                self.values[slot] = value.as_ptr();
                self.indices[slot] = index as u32;
                let [y, x] = position;
                self.bias[slot] = [(y - span.rows.start) as u32, (x - span.columns.start) as u32];
                self.count += 1;
                self.rotated += usize::from(index < rotated);
            }
            position = job.keys.after(position);
        }
        self.span = span;
    }
}

/// Key and value at a position of the window; none where the key is masked.
#[inline(always)]
fn source<'a>(job: &Job, operands: &Operands<'a>, position: [usize; 2]) -> Option<[&'a [f32]; 2]> {
    let place = job.place;
    match (job.keys.token(position), operands.padding) {
        (Some(token), _) => operands
            .takes_part(place.image, token)
            .then(|| [operands.key.row(place, token), operands.value.row(place, token)]),
        (None, Some(padding)) => Some(padding.map(|channels| channels.head(place.head))),
        (None, None) => panic!("only a window with padding reaches beyond the grid"),
    }
}
