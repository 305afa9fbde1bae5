//! Moves reshapes and permutes behind elementwise ops, which can then be fused with the product before them.

use super::{Context, Draft, rewrite};
use crate::CompileError;
use crate::Op;
use crate::graph::{Graph, Kind, NodeId};
use crate::ops::{Binary, Reshape};

/// An elementwise op on a reshaped or permuted value becomes a reshape or permute of the op's result.
///
/// ```text
/// %2 = Linear { .. } %0 %1 : f32[9, 8]                %2 = Linear { .. } %0 %1 : f32[9, 8]
/// %3 = Reshape { shape: [3, 3, 8] } %2 : f32[3, 3, 8] %3 = Unary { kind: Gelu } %2 : f32[9, 8]
/// %4 = Unary { kind: Gelu } %3 : f32[3, 3, 8]    →    %4 = Reshape { shape: [3, 3, 8] } %3 : f32[3, 3, 8]
/// ```
#[expect(clippy::wildcard_enum_match_arm, reason = "only elementwise ops commute with moves")]
pub(super) fn run(graph: &Graph, _: &Context<'_>) -> Result<Graph, CompileError> {
    Ok(rewrite(graph, |draft, id| {
        let Kind::Op(op) = &draft.old().node(id).kind else { return None };
        match op {
            Op::Unary(_) => unary(draft, id, op.clone()),
            Op::Binary(op) => binary(draft, id, *op),
            _ => None,
        }
    }))
}

/// A reshape or permute that only one op reads, and its input.
#[expect(clippy::wildcard_enum_match_arm, reason = "these two move without changing the count")]
fn movement(draft: &Draft<'_>, id: NodeId) -> Option<(Op, NodeId)> {
    let moved = match draft.op(id)? {
        op @ (Op::Reshape(_) | Op::Permute(_)) => op.clone(),
        _ => return None,
    };
    draft.read_once(id).then(|| (moved, draft.node(id).inputs[0]))
}

fn unary(draft: &mut Draft<'_>, id: NodeId, op: Op) -> Option<NodeId> {
    let (moved, source) = movement(draft, draft.new_inputs(id)[0])?;
    let origin = draft.old().node(id).origin.clone();
    let result = draft.add(op, &[source], &origin)?;
    draft.add(moved, &[result], &origin)
}

fn binary(draft: &mut Draft<'_>, id: NodeId, op: Binary) -> Option<NodeId> {
    let inputs = draft.new_inputs(id);
    let origin = draft.old().node(id).origin.clone();
    // The later value is the product that the op may be fused into.
    let first = usize::from(inputs[1] > inputs[0]);
    let (side, moved, source) = [first, 1 - first].into_iter().find_map(|side| {
        movement(draft, inputs[side]).map(|(moved, source)| (side, moved, source))
    })?;
    if draft.node(inputs[side]).ty != draft.old().node(id).ty {
        return None;
    }
    let other = before_move(draft, &moved, source, inputs[1 - side])?;
    let operands = if side == 0 { [source, other] } else { [other, source] };
    let result = draft.add(op, &operands, &origin)?;
    draft.add(moved, &[result], &origin)
}

/// The other operand of a binary op before the reshape or permute `moved`: scalars and per-channel rows are unchanged, a
/// value of the new shape is reshaped back, which costs nothing.
fn before_move(draft: &mut Draft<'_>, moved: &Op, source: NodeId, other: NodeId) -> Option<NodeId> {
    let ty = draft.node(other).ty.clone();
    if ty.rank() == 0 {
        return Some(other);
    }
    let Op::Reshape(reshape) = moved else { return None };
    let before = draft.node(source).ty.shape.clone();
    let row = ty.rank() == 1
        && ty.shape.last_axis() == before.last_axis()
        && reshape.shape.last() == before.last();
    if row {
        return Some(other);
    }
    // Useful only if the result can be fused into a product.
    let product = draft.op(source).and_then(Op::epilogue);
    if product.is_none() || ty.shape[..] != reshape.shape[..] {
        return None;
    }
    let origin = draft.node(other).origin.clone();
    draft.add(Reshape { shape: before.to_vec() }, &[other], &origin)
}
