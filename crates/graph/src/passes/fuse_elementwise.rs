//! Fuses chains of elementwise ops into one loop.

use super::{Context, Draft, rewrite};
use crate::graph::{Graph, Kind, NodeId};
use crate::ops::{Elementwise, Operand, Step};
use crate::{CompileError, Op};

/// Longest chain that one loop evaluates: its values stay in registers and the first-level cache.
const MOST_STEPS: usize = 16;

/// An elementwise op is fused with the elementwise ops that only it reads and that have its shape.
///
/// ```text
/// %1 = Unary { kind: Exp } %0 : f32[4]
/// %2 = Binary { kind: Add } %1 %0 : f32[4]    →   %1 = Elementwise { steps: [Unary(Exp, Input(0)),
///                                                       Binary(Add, Step(0), Input(0))] } %0 : f32[4]
/// ```
pub(super) fn run(graph: &Graph, context: &Context<'_>) -> Result<Graph, CompileError> {
    Ok(rewrite(graph, |draft, id| {
        let Kind::Op(op) = &draft.old().node(id).kind else { return None };
        let inputs = draft.new_inputs(id);
        let mut chain = chain_of(op, &inputs)?;
        let mut fused = 0;
        let mut position = 0;
        while position < chain.inputs.len() {
            if take_in(draft, id, &mut chain, position) {
                fused += 1;
            } else {
                position += 1;
            }
        }
        take_numbers(draft, &mut chain);
        if fused == 0 && chain.inputs.len() == inputs.len() {
            return None;
        }
        let origin = draft.old().node(id).origin.clone();
        let new = draft.add(Elementwise { steps: chain.steps }, &chain.inputs, &origin)?;
        // If all inputs became numbers, the shape is lost and the op stays as it was.
        if draft.node(new).ty != draft.old().node(id).ty {
            return None;
        }
        if fused > 0 {
            context.note(format!("fused: {fused} elementwise ops into one loop at {origin}"));
        }
        Some(new)
    }))
}

/// Steps over the values of `inputs`.
struct Chain {
    steps: Vec<Step>,
    inputs: Vec<NodeId>,
}

/// The op as a chain; `None` if it is not elementwise.
fn chain_of(op: &Op, inputs: &[NodeId]) -> Option<Chain> {
    let mut chain = Chain { steps: op.steps()?, inputs: inputs.to_vec() };
    chain.merge_equal_inputs();
    Some(chain)
}

/// Replaces input `position` of the chain by the chain that computes it, if only this node reads it and it has
/// the same shape.
fn take_in(draft: &Draft<'_>, id: NodeId, chain: &mut Chain, position: usize) -> bool {
    let producer = chain.inputs[position];
    let Some(op) = draft.op(producer) else { return false };
    let Some(inner) = chain_of(op, &draft.node(producer).inputs) else { return false };
    let fits = draft.node(producer).ty == draft.old().node(id).ty
        && inner.steps.len() + chain.steps.len() <= MOST_STEPS
        && draft.read_once(producer);
    if !fits {
        return false;
    }
    let shift = inner.steps.len();
    let first_new = chain.inputs.len();
    let value = Operand::Step(shift - 1);
    let mut steps: Vec<Step> = inner
        .steps
        .iter()
        .map(|step| step.map(|x| renumber(x, 0, |i| Operand::Input(first_new + i))))
        .collect();
    let outer = chain.steps.iter().map(|step| {
        step.map(|x| renumber(x, shift, |i| if i == position { value } else { Operand::Input(i) }))
    });
    steps.extend(outer);
    chain.inputs.extend(inner.inputs);
    chain.steps = steps;
    chain.drop_input(position);
    chain.merge_equal_inputs();
    true
}

/// Replaces inputs that are scalar constants by numbers in the steps.
fn take_numbers(draft: &Draft<'_>, chain: &mut Chain) {
    for position in (0..chain.inputs.len()).rev() {
        // A chain needs one input to have a shape.
        if chain.inputs.len() == 1 {
            return;
        }
        let input = chain.inputs[position];
        let scalar = draft.node(input).ty.rank() == 0;
        let Some(number) = draft.number(input).filter(|_| scalar) else { continue };
        let into = |i| if i == position { Operand::Number(number) } else { Operand::Input(i) };
        chain.steps = chain.steps.iter().map(|step| step.map(|x| renumber(x, 0, into))).collect();
        chain.drop_input(position);
    }
}

fn renumber(operand: Operand, shift: usize, input: impl Fn(usize) -> Operand) -> Operand {
    match operand {
        Operand::Input(i) => input(i),
        Operand::Step(i) => Operand::Step(i + shift),
        Operand::Number(number) => Operand::Number(number),
    }
}

impl Chain {
    /// Removes an input that no step reads any more.
    fn drop_input(&mut self, position: usize) {
        self.inputs.remove(position);
        let into = |i: usize| Operand::Input(if i > position { i - 1 } else { i });
        self.steps = self.steps.iter().map(|step| step.map(|x| renumber(x, 0, into))).collect();
    }

    /// Merges inputs that are the same node.
    fn merge_equal_inputs(&mut self) {
        for position in (1..self.inputs.len()).rev() {
            let same = |other: &NodeId| *other == self.inputs[position];
            let Some(first) = self.inputs[..position].iter().position(same) else { continue };
            let into = |i| Operand::Input(if i == position { first } else { i });
            self.steps = self.steps.iter().map(|step| step.map(|x| renumber(x, 0, into))).collect();
            self.drop_input(position);
        }
    }
}
