//! Elementwise ops that are fused into the step before them.
//!
//! The plan lets an elementwise op overwrite its operand. If nothing else touches that memory between the step that writes it and the op, and the op's
//! other operand is an input or a weight of the program, which are there from the start, the step can write the op's result in the first place.

use cutout_graph::ops::{BinaryKind, Operand as Of, Step as Function, UnaryKind};
use cutout_graph::plan::{Action, Operand, Source, Step};
use cutout_graph::{NodeId, Op};
use cutout_tensor::DType;

use super::Lowering;
use crate::launch::Place;

/// An elementwise op that follows a step in the same memory: first something is added, then GELU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Follower {
    pub(crate) node: NodeId,
    pub(crate) add: Option<Added>,
    pub(crate) gelu: bool,
}

/// Contiguous f32 elements, repeated to the length of the result they are added to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Added {
    pub(crate) place: Place,
    pub(crate) elements: usize,
}

impl Lowering<'_> {
    /// The op that follows the step which is being lowered, if its kernel may compute it.
    pub(crate) fn follower(&mut self) -> Option<Follower> {
        let plan = self.plan;
        let (own, later) = plan.steps.get(self.lowered.steps.len()..)?.split_first()?;
        let buffer = Source::Buffer(own.output);
        let touches = |step: &Step| {
            step.output == own.output || step.inputs.iter().any(|input| input.source == buffer)
        };
        let next = later.iter().find(|step| touches(step))?;
        let Action::Compute(node) = next.action else { return None };
        let functions = self.graph.op(node).and_then(Op::steps)?;
        let result = next.inputs.iter().position(|input| input.source == buffer)?;
        let whole = |operand: &Operand| {
            operand.stored == DType::F32
                && operand.layout.is_contiguous()
                && operand.layout.offset == 0
                && operand.ty == *self.graph.ty(node)
        };
        if next.output != own.output || !whole(&next.inputs[result]) || next.inputs.len() > 2 {
            return None;
        }
        let (added, gelu) = match functions[..] {
            [Function::Unary(UnaryKind::Gelu, Of::Input(_))] => (false, true),
            [Function::Binary(BinaryKind::Add, Of::Input(a), Of::Input(b))] if a != b => {
                (true, false)
            }
            [
                Function::Binary(BinaryKind::Add, Of::Input(a), Of::Input(b)),
                Function::Unary(UnaryKind::Gelu, Of::Step(0)),
            ] if a != b => (true, true),
            _ => return None,
        };
        let add = match next.inputs.get(1 - result) {
            None if !added => None,
            Some(other) if added => Some(self.added(other, node)?),
            None | Some(_) => return None,
        };
        Some(Follower { node, add, gelu })
    }

    /// The other operand of an addition: an input or weight of the program, broadcast along leading axes of the result.
    fn added(&mut self, other: &Operand, result: NodeId) -> Option<Added> {
        let shape = &self.graph.ty(result).shape;
        let from_start = matches!(other.source, Source::Input(_) | Source::Static(_));
        let own = other.ty.shape.iter().skip_while(|&&length| length == 1);
        let own: Vec<usize> = own.copied().collect();
        let trailing = own.len() <= shape.rank() && shape[shape.rank() - own.len()..] == own[..];
        let plain = other.stored == DType::F32 && other.layout.is_contiguous();
        if !from_start || !trailing || !plain || own.is_empty() {
            return None;
        }
        Some(Added { place: self.operand(other), elements: own.iter().product() })
    }
}
