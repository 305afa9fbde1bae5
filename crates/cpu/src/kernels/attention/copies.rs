//! Keys and values of a block that cannot be read in place: rotated, padded, in bf16, or bytes.

use super::bytes::{ByteKeys, ByteValues, KeyShift, KeyTerms, MeanRow};
use super::half::{PairElements, PairValues, RoundRows, RowCopies};
use super::keys::KeyBlock;
use super::on_tiles::TurnValues;
use super::operands::Operands;
use super::pack::{PadRows, RotateRows};
use super::plan::{Job, MOST_ROWS, Plan, Products};
use super::scratch::Scratch;
use crate::simd::Simd;

/// Copies what cannot be read in place, and redirects the block to the copies.
#[inline(always)]
pub(super) fn copy_block<S: Simd>(
    simd: S,
    (plan, operands): (&Plan, &Operands<'_>),
    scratch: &mut Scratch<'_>,
    block: &mut KeyBlock,
) {
    rotate_keys(simd, (plan, operands), scratch, block);
    let widths = [plan.value_width, plan.value_width.next_multiple_of(MOST_ROWS)];
    if plan.products == Products::Bytes {
        copy_bytes(simd, plan, scratch, block);
    } else if plan.products != Products::Single {
        copy_half(simd, plan, scratch, (block, widths));
    } else if plan.pads_values() {
        // SAFETY: the block's values have `value_width` elements, in the inputs.
        simd.vectorize(unsafe { PadRows::new(block.values(), widths, scratch.values) });
        block.move_values(scratch.values, widths[1]);
    }
}

/// Copies the keys and values of a block in bf16. `widths` are the channels of a value and of its copy.
#[inline(always)]
fn copy_half<S: Simd>(
    simd: S,
    plan: &Plan,
    scratch: &mut Scratch<'_>,
    (block, widths): (&mut KeyBlock, [usize; 2]),
) {
    let steps = plan.score_steps();
    // SAFETY: the block's keys have `width` elements, in the inputs or among the rotated keys.
    let keys = unsafe { RowCopies::new(block.keys(), [plan.width, steps], scratch.half_keys) };
    if plan.products.on_tiles() {
        simd.vectorize(PairElements(keys));
        block.move_keys(scratch.half_keys, steps);
        simd.vectorize(TurnValues { plan, block, memory: scratch.values });
        return;
    }
    let stride = if plan.products == Products::Pairs { plan.value_panel() } else { widths[1] };
    // SAFETY: the block's values have these channels, in the inputs.
    let values =
        unsafe { RowCopies::new(block.values(), [plan.value_width, stride], scratch.values) };
    if plan.products == Products::Pairs {
        simd.vectorize(PairElements(keys));
        simd.vectorize(PairValues(values));
    } else {
        simd.vectorize(RoundRows(keys));
        simd.vectorize(RoundRows(values));
    }
    block.move_keys(scratch.half_keys, steps);
    block.move_values(scratch.values, stride);
}

/// Rotates the keys of a block, if the op does.
#[inline(always)]
fn rotate_keys<S: Simd>(
    simd: S,
    (plan, operands): (&Plan, &Operands<'_>),
    scratch: &mut Scratch<'_>,
    block: &mut KeyBlock,
) {
    if let Some([_, table]) = &operands.rope {
        let (indices, out) = (&block.indices[..block.rotated], &mut *scratch.keys);
        // SAFETY: the block's keys have a pair of elements for each pair of the table, in the inputs.
        simd.vectorize(unsafe { RotateRows::new(block.keys(), table, indices, out) });
        block.move_keys(scratch.keys, plan.width);
    }
}

/// Sets what is subtracted from all keys of a job: the mean of some of them, the same for all parts of the keys.
#[inline(always)]
pub(super) fn set_shift<S: Simd>(
    simd: S,
    (plan, operands): (&Plan, &Operands<'_>),
    scratch: &mut Scratch<'_>,
    (job, block): (&Job, &mut KeyBlock),
) {
    block.sample(plan, job, operands);
    rotate_keys(simd, (plan, operands), scratch, block);
    let (shift, padding) = scratch.shift.split_at_mut(plan.width);
    padding.fill(0.0);
    // SAFETY: the block's keys have `width` elements, in the inputs or among the rotated keys.
    simd.vectorize(unsafe { MeanRow::new(block.keys(), shift) });
}

/// Copies the keys and values of a block as bytes.
#[inline(always)]
fn copy_bytes<S: Simd>(simd: S, plan: &Plan, scratch: &mut Scratch<'_>, block: &mut KeyBlock) {
    let steps = plan.score_steps();
    // SAFETY: the block's keys have `width` elements, in the inputs or among the rotated keys.
    let copies = unsafe { RowCopies::new(block.keys(), [plan.width, steps], scratch.half_keys) };
    let (scales, starts) = scratch.key_terms.split_at_mut(plan.key_block);
    let (row, shifted) = scratch.shift.split_at_mut(plan.width.next_multiple_of(S::LANES));
    simd.vectorize(ByteKeys {
        copies,
        terms: KeyTerms { scales, starts },
        shift: KeyShift { row, shifted },
    });
    block.move_keys(scratch.half_keys, steps);
    let widths = [plan.value_width, plan.value_panel()];
    // SAFETY: the block's values have these channels, in the inputs.
    let copies = unsafe { RowCopies::new(block.values(), widths, scratch.values) };
    simd.vectorize(ByteValues { copies, scales: scratch.value_scales });
    block.move_values(scratch.values, plan.value_panel());
}
