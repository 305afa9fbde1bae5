//! Merges and removes ops that only rearrange elements.

use super::{Context, Draft, rewrite};
use crate::graph::{Graph, Kind, NodeId};
use crate::ops::{Permute, Reshape};
use crate::{CompileError, Op};

/// Reshapes of reshapes and permutes of permutes become one; those that change nothing vanish; a permute that only
/// moves axes of length one becomes a reshape.
///
/// ```text
/// %1 = Permute { axes: [0, 2, 1] } %0 : f32[2, 4, 3]
/// %2 = Permute { axes: [0, 2, 1] } %1 : f32[2, 3, 4]    →   %1 = Reshape { shape: [24] } %0 : f32[24]
/// %3 = Reshape { shape: [6, 4] } %2 : f32[6, 4]
/// %4 = Reshape { shape: [24] } %3 : f32[24]
/// ```
#[expect(clippy::wildcard_enum_match_arm, reason = "all other ops compute")]
pub(super) fn run(graph: &Graph, _: &Context<'_>) -> Result<Graph, CompileError> {
    Ok(rewrite(graph, |draft, id| {
        let Kind::Op(op) = &draft.old().node(id).kind else { return None };
        let input = *draft.new_inputs(id).first()?;
        match op {
            Op::Reshape(op) => reshape(draft, id, input, op),
            Op::Permute(op) => permute(draft, id, input, op),
            Op::Broadcast(_) | Op::Slice(_) | Op::Pad(_) | Op::Cast(_) | Op::Concat(_) => {
                let alone = draft.old().node(id).inputs.len() == 1;
                (alone && draft.node(input).ty == draft.old().node(id).ty).then_some(input)
            }
            _ => None,
        }
    }))
}

fn reshape(draft: &mut Draft<'_>, id: NodeId, input: NodeId, op: &Reshape) -> Option<NodeId> {
    if draft.node(input).ty.shape[..] == op.shape[..] {
        return Some(input);
    }
    let Some(Op::Reshape(_)) = draft.op(input) else { return None };
    let source = draft.node(input).inputs[0];
    if draft.node(source).ty.shape[..] == op.shape[..] {
        return Some(source);
    }
    let origin = draft.old().node(id).origin.clone();
    draft.add(op.clone(), &[source], &origin)
}

fn permute(draft: &mut Draft<'_>, id: NodeId, input: NodeId, op: &Permute) -> Option<NodeId> {
    let origin = draft.old().node(id).origin.clone();
    let (source, axes) = match draft.op(input) {
        Some(Op::Permute(first)) => {
            let merged = op.axes.iter().map(|&axis| first.axes[axis]).collect();
            (draft.node(input).inputs[0], merged)
        }
        Some(_) | None => (input, op.axes.clone()),
    };
    if axes.is_sorted() {
        return Some(source);
    }
    let shape = &draft.node(source).ty.shape;
    let long: Vec<usize> = axes.iter().copied().filter(|&axis| shape[axis] != 1).collect();
    if long.is_sorted() {
        let shape = axes.iter().map(|&axis| shape[axis]).collect();
        return draft.add(Reshape { shape }, &[source], &origin);
    }
    if source == input {
        return None;
    }
    draft.add(Permute { axes }, &[source], &origin)
}

#[cfg(test)]
mod tests {
    use cutout_tensor::DType;

    use super::*;
    use crate::{Builder, Profile, Value};

    fn simplified(model: impl for<'g> Fn(Value<'g>) -> Value<'g>) -> String {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [2, 3, 1, 5]);
        builder.output("y", model(x));
        let graph = builder.finish().expect("the shapes fit");
        run(&graph, &Context::new(None, &Profile::default())).expect("nothing can fail").to_string()
    }

    #[test]
    fn permutes_compose_in_order() {
        let text = simplified(|x| x.permute([1, 2, 3, 0]).permute([3, 0, 2, 1]));
        assert!(text.contains("Reshape { shape: [2, 3, 5, 1] } %0"), "{text}");
        let text = simplified(|x| x.permute([3, 0, 1, 2]).permute([1, 3, 0, 2]));
        assert!(
            text.contains("%1 = Permute { axes: [0, 2, 3, 1] } %0 : f32[2, 1, 5, 3]"),
            "{text}"
        );
    }

    #[test]
    fn what_changes_nothing_vanishes() {
        for text in [
            simplified(|x| x.permute([3, 0, 1, 2]).permute([1, 2, 3, 0])),
            simplified(|x| x.reshape([30]).reshape([2, 3, 1, 5])),
            simplified(|x| x.slice(1, 0..3).broadcast([2, 3, 1, 5])),
        ] {
            assert!(text.ends_with("return y = %0\n"), "{text}");
        }
        let moved_one = simplified(|x| x.permute([0, 2, 1, 3]));
        assert!(moved_one.contains("Reshape { shape: [2, 1, 3, 5] } %0"), "{moved_one}");
    }
}
