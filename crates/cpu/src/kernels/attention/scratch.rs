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
    /// Padded or rounded values: `[keys][value width]`, or words of neighbouring keys in panels of channels, `[panels][words][lanes]`.
    pub(super) values: usize,
    /// Rounded keys: `[keys][steps of a score]`.
    pub(super) half_keys: usize,
    /// Scales of queries as bytes: `[units][vectors of a panel]`.
    pub(super) query_scales: usize,
    /// Scales of keys as bytes, then what their sums begin with: `[2][keys]`.
    pub(super) key_terms: usize,
    /// Scales of channels of values as bytes.
    pub(super) value_scales: usize,
    /// What is subtracted from keys, then a vector of keys: `[1 + lanes][padded width]`.
    pub(super) shift: usize,
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
        let of_bytes = usize::from(plan.products == Products::Bytes);
        let padded_values = plan.value_width.next_multiple_of(MOST_ROWS);
        Lengths {
            queries: vectors * padded(plan.width) * lanes,
            outputs: vectors * padded(plan.value_width) * lanes,
            statistics: vectors * lanes,
            keys: if plan.rotates { plan.key_block * plan.width } else { 0 },
            values: match plan.products {
                Products::Single if !plan.pads_values() => 0,
                Products::Single | Products::Rounded => plan.key_block * padded_values,
                Products::Tiles | Products::TileTwin => {
                    2 * pair_stride(plan) * padded(plan.value_width)
                }
                Products::Pairs | Products::Bytes => {
                    plan.value_panel() * plan.value_width.div_ceil(lanes)
                }
            },
            half_keys: match plan.products {
                Products::Single => 0,
                Products::Tiles | Products::TileTwin => tile_keys(plan) * plan.score_steps(),
                Products::Rounded | Products::Pairs => plan.key_block * plan.score_steps(),
                // A vector of bytes may reach beyond the last key.
                Products::Bytes => plan.key_block * plan.score_steps() + MAX_LANES / 4,
            },
            query_scales: of_bytes * vectors * lanes,
            key_terms: of_bytes * 2 * plan.key_block,
            value_scales: of_bytes * padded(plan.value_width),
            shift: of_bytes * (1 + lanes) * padded(plan.width),
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
        let Lengths { query_scales, key_terms, value_scales, shift, .. } = *self;
        let bytes = query_scales + key_terms + value_scales + shift;
        queries + keys + values + half_keys + bytes + scores + bias + rotated
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
    pub(super) query_scales: &'a mut [f32],
    pub(super) key_terms: &'a mut [f32],
    pub(super) value_scales: &'a mut [f32],
    pub(super) shift: &'a mut [f32],
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
            query_scales: take(lengths.query_scales),
            key_terms: take(lengths.key_terms),
            value_scales: take(lengths.value_scales),
            shift: take(lengths.shift),
            scores: take(lengths.scores),
            bias: take(lengths.bias),
            rotated: take(lengths.rotated),
        }
    }
}

/// What makes numbers of sums of products of bytes; see [`Lengths`]. Empty for other numbers.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    /// The scales of a panel's queries.
    pub(super) queries: &'a [f32],
    /// The scales of a block's keys.
    pub(super) keys: &'a [f32],
    /// What the sums of each key begin with.
    pub(super) starts: &'a [f32],
    /// The scales of a block's channels.
    pub(super) values: &'a [f32],
}
