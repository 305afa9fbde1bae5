//! The scratch memory of one task.

use super::on_tiles::{pair_stride, tile_keys};
use super::plan::{MOST_ROWS, MOST_VECTORS, Plan, Products};
use crate::simd::MAX_LANES;

/// Lengths of its arrays, in elements. Queries are the lanes of vectors, the innermost axis. A unit is a panel of one head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    /// Packed queries: `[units][width][vectors of a panel]`.
    pub(super) queries: usize,
    /// Sums of values: `[units][value width][vectors of a panel]`.
    pub(super) outputs: usize,
    /// Largest scores, or sums of weights: `[units][vectors of a panel]`.
    pub(super) statistics: usize,
    /// Rotated keys: `[keys][width]`.
    pub(super) keys: usize,
    /// Padded or rounded values: `[keys][value width]`, or `[pairs of keys][value width]`.
    pub(super) values: usize,
    /// Rounded keys: `[keys][steps of a score]`.
    pub(super) half_keys: usize,
    /// Scores, then weights: `[keys][vectors of a panel]`.
    pub(super) scores: usize,
    /// Bias rows and columns: `[units][rows, then columns][vectors of a panel]`.
    pub(super) bias: usize,
    /// Rotated queries of one vector: `[lanes][width]`.
    pub(super) rotated: usize,
}

impl Lengths {
    /// The lengths for a plan. Widths are rounded up to whole vectors, and vectors to whole panels.
    pub(super) fn new(plan: &Plan) -> Lengths {
        let lanes = plan.isa.lanes();
        let vectors = plan.task_heads * plan.task_vectors.next_multiple_of(plan.panel_vectors);
        let padded = |length: usize| length.next_multiple_of(lanes);
        let bias = plan.bias.map_or(0, |bias| bias.lengths.map(padded).iter().sum());
        let padded_values = plan.value_width.next_multiple_of(MOST_ROWS);
        Lengths {
            queries: vectors * padded(plan.width) * lanes,
            outputs: vectors * padded(plan.value_width) * lanes,
            statistics: vectors * lanes,
            keys: if plan.rotates { plan.key_block * plan.width } else { 0 },
            values: match plan.products {
                Products::Single if !plan.pads_values() => 0,
                Products::Single | Products::Rounded => plan.key_block * padded_values,
                Products::Pairs => plan.key_block.div_ceil(2) * padded_values,
                Products::Tiles | Products::TileTwin => {
                    2 * pair_stride(plan) * padded(plan.value_width)
                }
            },
            half_keys: match plan.products {
                Products::Single => 0,
                Products::Rounded | Products::Pairs => plan.key_block * plan.score_steps(),
                Products::Tiles | Products::TileTwin => tile_keys(plan) * plan.score_steps(),
            },
            scores: MOST_VECTORS * tile_keys(plan) * lanes,
            bias: vectors * bias * lanes,
            rotated: if plan.rotates { MAX_LANES * plan.width } else { 0 },
        }
    }

    /// Elements of a [`State`].
    pub(super) fn state(&self) -> usize {
        self.outputs + 2 * self.statistics
    }

    /// Elements of a [`Scratch`].
    pub(super) fn work(&self) -> usize {
        let Lengths { queries, keys, values, half_keys, scores, bias, rotated, .. } = *self;
        queries + keys + values + half_keys + scores + bias + rotated
    }

    /// Elements of both.
    pub(super) fn total(&self) -> usize {
        self.state() + self.work()
    }
}

/// The result of the keys processed so far; see [`Lengths`].
pub(super) struct State<'a> {
    pub(super) outputs: &'a mut [f32],
    pub(super) largest: &'a mut [f32],
    pub(super) sums: &'a mut [f32],
}

impl<'a> State<'a> {
    /// Splits memory of `lengths.state()` elements.
    pub(super) fn new(lengths: &Lengths, memory: &'a mut [f32]) -> State<'a> {
        let (outputs, rest) = memory.split_at_mut(lengths.outputs);
        let (largest, sums) = rest.split_at_mut(lengths.statistics);
        State { outputs, largest, sums }
    }
}

/// The working memory of a task; see [`Lengths`].
#[derive(Default)]
pub(super) struct Scratch<'a> {
    pub(super) queries: &'a mut [f32],
    pub(super) keys: &'a mut [f32],
    pub(super) values: &'a mut [f32],
    pub(super) half_keys: &'a mut [f32],
    pub(super) scores: &'a mut [f32],
    pub(super) bias: &'a mut [f32],
    pub(super) rotated: &'a mut [f32],
}

impl<'a> Scratch<'a> {
    /// Splits memory of `lengths.work()` elements.
    pub(super) fn new(lengths: &Lengths, mut memory: &'a mut [f32]) -> Scratch<'a> {
        let mut take = |length: usize| {
            let (part, rest) = std::mem::take(&mut memory).split_at_mut(length);
            memory = rest;
            part
        };
        Scratch {
            queries: take(lengths.queries),
            keys: take(lengths.keys),
            values: take(lengths.values),
            half_keys: take(lengths.half_keys),
            scores: take(lengths.scores),
            bias: take(lengths.bias),
            rotated: take(lengths.rotated),
        }
    }
}
