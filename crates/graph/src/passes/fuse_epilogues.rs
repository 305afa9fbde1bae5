//! Moves scale, bias, activation and residual into the product before them.

use super::{Context, Draft, rewrite};
use crate::graph::{Graph, Kind, NodeId};
use crate::ops::{Activation, BinaryKind, Epilogue, UnaryKind};
use crate::{CompileError, Op};

/// `activation(scale * product + bias) + residual` becomes one op, up to the first step that is out of order or whose
/// input has another reader.
///
/// ```text
/// %3 = Linear { .. } %0 %1 : f32[9, 8]
/// %4 = Binary { kind: Add } %3 %2 : f32[9, 8]      →   %3 = Linear { epilogue: Epilogue { scale: 1.0, bias: true,
/// %5 = Unary { kind: Gelu } %4 : f32[9, 8]                  activation: Gelu, residual: false } } %0 %1 %2 : f32[9, 8]
/// ```
#[expect(clippy::wildcard_enum_match_arm, reason = "only these can be part of an epilogue")]
pub(super) fn run(graph: &Graph, context: &Context<'_>) -> Result<Graph, CompileError> {
    Ok(rewrite(graph, |draft, id| {
        let Kind::Op(op) = &draft.old().node(id).kind else { return None };
        match op {
            Op::Unary(unary) => fuse_activation(draft, context, id, unary.kind),
            Op::Binary(binary) => fuse_binary(draft, context, id, binary.kind),
            _ => None,
        }
    }))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the activations that epilogues know")]
fn fuse_activation(
    draft: &mut Draft<'_>,
    context: &Context<'_>,
    id: NodeId,
    kind: UnaryKind,
) -> Option<NodeId> {
    let activation = match kind {
        UnaryKind::Relu => Activation::Relu,
        UnaryKind::Gelu => Activation::Gelu,
        UnaryKind::Sigmoid => Activation::Sigmoid,
        _ => return None,
    };
    let before = draft.new_inputs(id)[0];
    let current = draft.op(before)?.epilogue()?;
    if current.residual || current.activation != Activation::Identity {
        return None;
    }
    grow(
        draft,
        context,
        Growth { id, before, epilogue: Epilogue { activation, ..current }, added: None },
    )
}

#[expect(clippy::wildcard_enum_match_arm, reason = "epilogues only add and scale")]
fn fuse_binary(
    draft: &mut Draft<'_>,
    context: &Context<'_>,
    id: NodeId,
    kind: BinaryKind,
) -> Option<NodeId> {
    let inputs = draft.new_inputs(id);
    let orders = [(inputs[0], inputs[1]), (inputs[1], inputs[0])];
    // Of two products the later one takes the other as its operand.
    let mut orders =
        if inputs[0] >= inputs[1] { orders } else { [orders[1], orders[0]] }.into_iter();
    orders.find_map(|(before, other)| {
        let current = draft.op(before)?.epilogue()?;
        let (epilogue, added) = match kind {
            BinaryKind::Add => added_operand(draft, current, before, other)?,
            BinaryKind::Multiply => (scaled(draft, current, other)?, None),
            _ => return None,
        };
        if draft.node(before).ty != draft.old().node(id).ty {
            return None;
        }
        grow(draft, context, Growth { id, before, epilogue, added })
    })
}

/// The epilogue after adding `other`: as a bias if it is one, else as a residual.
fn added_operand(
    draft: &Draft<'_>,
    current: Epilogue,
    before: NodeId,
    other: NodeId,
) -> Option<(Epilogue, Option<NodeId>)> {
    let output = &draft.node(before).ty.shape;
    let shape = &draft.node(other).ty.shape;
    let is_bias = shape[..] == [output.last_axis()];
    let sums_only = current.activation == Activation::Identity && !current.residual;
    if is_bias && sums_only && !current.bias {
        return Some((Epilogue { bias: true, ..current }, Some(other)));
    }
    if shape == output && !current.residual {
        return Some((Epilogue { residual: true, ..current }, Some(other)));
    }
    None
}

/// The epilogue after multiplying with the number `other`.
fn scaled(draft: &Draft<'_>, current: Epilogue, other: NodeId) -> Option<Epilogue> {
    let scale = draft.number(other)? * current.scale;
    let first = !current.bias && !current.residual && current.activation == Activation::Identity;
    (first && scale.is_finite()).then_some(Epilogue { scale, ..current })
}

/// A step to fuse: the node it replaces, the product before it, the new epilogue, and the operand it adds.
struct Growth {
    id: NodeId,
    before: NodeId,
    epilogue: Epilogue,
    added: Option<NodeId>,
}

fn grow(draft: &mut Draft<'_>, context: &Context<'_>, growth: Growth) -> Option<NodeId> {
    let Growth { id, before, epilogue, added } = growth;
    let node = draft.node(before).clone();
    let name = draft.op(before)?.name();
    if !draft.read_once(before) {
        context.note(format!(
            "kept apart: {} behind {name} at {}: its result is read elsewhere too",
            draft.old().op(id)?.printed(),
            node.origin
        ));
        return None;
    }
    // Inputs end with the bias, then the residual; a bias is never fused after a residual.
    let inputs: Vec<NodeId> = node.inputs.iter().copied().chain(added).collect();
    let mut op = draft.op(before)?.clone();
    *op.epilogue_mut()? = epilogue;
    let new = draft.add(op, &inputs, &node.origin)?;
    context.note(format!(
        "fused: {} into {name} at {}",
        draft.old().op(id)?.printed(),
        node.origin
    ));
    Some(new)
}
