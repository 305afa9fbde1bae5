//! The memory of one task.

use super::plan::{MOST_VECTORS, Packing, Plan};

/// Lengths of the parts, in elements. `LANES` is the innermost axis of all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    /// Packed queries: `[panels][width][vectors of a panel]`.
    pub(super) queries: usize,
    /// Sums of values: `[panels][value width][vectors of a panel]`.
    pub(super) outputs: usize,
    /// Largest scores, or sums of weights: `[panels][vectors of a panel]`.
    pub(super) statistics: usize,
    /// Packed keys: `[groups of keys][width]`.
    pub(super) keys: usize,
    /// Packed values: `[groups of channels][keys]`.
    pub(super) values: usize,
    /// Scores, then weights: `[keys][vectors of a panel]`.
    pub(super) scores: usize,
    /// Bias rows and columns: `[panels][rows, then columns][vectors of a panel]`.
    pub(super) bias: usize,
    /// Cosines, or sines: `[width / 2]`.
    pub(super) rotations: usize,
}

impl Lengths {
    /// The lengths for a plan. Widths are rounded up to whole vectors, and vectors to whole panels.
    pub(super) fn new(plan: &Plan) -> Lengths {
        let lanes = plan.isa.lanes();
        let vectors = plan.task_vectors.next_multiple_of(plan.panel_vectors);
        let padded = |length: usize| length.next_multiple_of(lanes);
        let copied = |packing| match packing {
            Packing::Packed => plan.key_block,
            Packing::Direct => 0,
        };
        let bias = plan.bias.map_or(0, |bias| bias.lengths.map(padded).iter().sum());
        Lengths {
            queries: vectors * padded(plan.width) * lanes,
            outputs: vectors * padded(plan.value_width) * lanes,
            statistics: vectors * lanes,
            keys: copied(plan.key_packing) * padded(plan.width),
            values: copied(plan.value_packing) * padded(plan.value_width),
            scores: MOST_VECTORS * plan.key_block * lanes,
            bias: vectors * bias * lanes,
            rotations: padded(plan.width.div_ceil(2)) * lanes,
        }
    }

    /// Elements of all parts.
    pub(super) fn total(&self) -> usize {
        let Lengths { queries, outputs, statistics, keys, values, scores, bias, rotations } = *self;
        queries + outputs + 2 * statistics + keys + values + scores + bias + 2 * rotations
    }
}

/// The parts; see [`Lengths`].
pub(super) struct Scratch<'a> {
    pub(super) queries: &'a mut [f32],
    pub(super) outputs: &'a mut [f32],
    pub(super) largest: &'a mut [f32],
    pub(super) sums: &'a mut [f32],
    pub(super) keys: &'a mut [f32],
    pub(super) values: &'a mut [f32],
    pub(super) scores: &'a mut [f32],
    pub(super) bias: &'a mut [f32],
    /// Cosines and sines.
    pub(super) rotations: [&'a mut [f32]; 2],
}

impl<'a> Scratch<'a> {
    /// Cuts memory of `lengths.total()` elements.
    pub(super) fn new(lengths: &Lengths, mut memory: &'a mut [f32]) -> Scratch<'a> {
        let mut take = |length: usize| {
            let (part, rest) = std::mem::take(&mut memory).split_at_mut(length);
            memory = rest;
            part
        };
        Scratch {
            queries: take(lengths.queries),
            outputs: take(lengths.outputs),
            largest: take(lengths.statistics),
            sums: take(lengths.statistics),
            keys: take(lengths.keys),
            values: take(lengths.values),
            scores: take(lengths.scores),
            bias: take(lengths.bias),
            rotations: [take(lengths.rotations), take(lengths.rotations)],
        }
    }
}
