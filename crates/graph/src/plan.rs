//! The memory plan: schedule, views, in-place results and arena offsets.
//!
//! A view op (reshape, permute, slice, broadcast) moves nothing as long as every reader can walk its strides; a
//! reader that cannot gets one contiguous copy. Temporary values live in one arena whose offsets are fixed here; a value that
//! is an output as a whole gets memory of its own, which the run hands over.

mod arena;

use std::fmt;

use cutout_tensor::{DType, TensorType};

use crate::graph::{Graph, Kind, NodeId};
use crate::layout::Layout;
use crate::{Op, passes};

pub use arena::ALIGNMENT;

/// Memory rules of a backend's kernels.
pub trait Rules {
    /// Whether the kernel of `node` can read input `index` laid out as `layout` (which is not contiguous).
    fn reads_strided(&self, graph: &Graph, node: NodeId, index: usize, layout: &Layout) -> bool;

    /// Whether the kernel of `node` may write its result over input `index`, which has the size of the output.
    fn overwrites(&self, graph: &Graph, node: NodeId, index: usize) -> bool;

    /// The element type in which the result of `node` is stored; its type in the graph unless the backend has reasons.
    /// Outputs are always stored in their own type.
    fn stored(&self, graph: &Graph, node: NodeId) -> DType {
        graph.ty(node).dtype
    }
}

/// Rules of kernels that want every input contiguous and every output apart.
pub struct PlainRules;

impl Rules for PlainRules {
    fn reads_strided(&self, _: &Graph, _: NodeId, _: usize, _: &Layout) -> bool {
        false
    }
    fn overwrites(&self, _: &Graph, _: NodeId, _: usize) -> bool {
        false
    }
}

/// Memory that a value is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The run's input of this number.
    Input(usize),
    /// A weight or constant: the node it belongs to.
    Static(NodeId),
    /// A buffer of the plan.
    Buffer(usize),
}

/// A value as a step reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// The memory.
    pub source: Source,
    /// Element type and shape in the graph.
    pub ty: TensorType,
    /// Element type in memory.
    pub stored: DType,
    /// Where its elements lie in that memory.
    pub layout: Layout,
}

impl Operand {
    /// A whole value in row-major order, stored in its own type.
    fn whole(source: Source, ty: &TensorType) -> Operand {
        let layout = Layout::contiguous(&ty.shape);
        Operand { source, ty: ty.clone(), stored: ty.dtype, layout }
    }
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Runs the op of a node.
    Compute(NodeId),
    /// Copies the strided value of a node into contiguous memory.
    Copy(NodeId),
}

/// One step of the schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What it does.
    pub action: Action,
    /// What it reads.
    pub inputs: Vec<Operand>,
    /// The buffer it writes, contiguous from its start.
    pub output: usize,
    /// Input that shares the output's buffer, when the result overwrites it.
    pub in_place: Option<usize>,
}

/// Where a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In the arena, at an offset that is a multiple of [`ALIGNMENT`].
    Arena(usize),
    /// In memory of its own, which the run hands over as an output instead of copying it.
    Own,
}

/// A buffer and its lifetime in steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Where it is.
    pub home: Home,
    /// Length.
    pub bytes: usize,
    /// Step that first writes it.
    pub first: usize,
    /// Last step that reads or writes it; the number of steps if it is an output.
    pub last: usize,
}

/// Schedule and memory of a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// The pieces of memory, in the arena and outside.
    pub buffers: Vec<Buffer>,
    /// Bytes of the arena.
    pub arena_bytes: usize,
    /// Named results and where they lie when the last step is done.
    pub outputs: Vec<(String, Operand)>,
}

impl Plan {
    /// Bytes that a run needs beside its inputs and weights: the arena, and the outputs in memory of their own.
    pub fn activation_bytes(&self) -> usize {
        let own = self.buffers.iter().filter(|buffer| buffer.home == Home::Own);
        own.fold(self.arena_bytes, |sum, buffer| sum.saturating_add(buffer.bytes))
    }
}

/// Plans a graph for kernels that follow `rules`.
pub fn plan(graph: &Graph, rules: &dyn Rules) -> Plan {
    let mut planner = Planner::new(graph, rules);
    let used = passes::reachable(graph);
    for (id, _) in graph.iter().filter(|(id, _)| used[id.0]) {
        planner.visit(id);
    }
    planner.finish()
}

struct Planner<'a> {
    graph: &'a Graph,
    rules: &'a dyn Rules,
    /// How each visited value can be read, without copying.
    values: Vec<Option<Operand>>,
    /// The contiguous copy of a strided value, once some reader needed one.
    copies: Vec<Option<Operand>>,
    /// Run-time inputs met so far.
    inputs: usize,
    plan: Plan,
    /// Position in the graph of the last node that reads each node's memory, through views as well.
    last_reader: Vec<usize>,
    /// The same for each buffer, by the value it holds now.
    buffer_reader: Vec<usize>,
    /// Whether each node, or a view of it, is an output.
    is_output: Vec<bool>,
}

impl<'a> Planner<'a> {
    fn new(graph: &'a Graph, rules: &'a dyn Rules) -> Self {
        let count = graph.nodes().len();
        Planner {
            graph,
            rules,
            values: vec![None; count],
            copies: vec![None; count],
            inputs: 0,
            plan: Plan::default(),
            last_reader: last_readers(graph),
            buffer_reader: Vec::new(),
            is_output: outputs_and_their_sources(graph),
        }
    }

    fn visit(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let value = match &node.kind {
            Kind::Input(_) => {
                self.inputs += 1;
                Operand::whole(Source::Input(self.inputs - 1), &node.ty)
            }
            Kind::Parameter(_) | Kind::Constant(_) => Operand::whole(Source::Static(id), &node.ty),
            Kind::Op(op) => match self.view(id, op) {
                Some(view) => view,
                None => self.compute(id),
            },
        };
        self.values[id.0] = Some(value);
    }

    /// The value of a view op, where its elements already lie.
    fn view(&self, id: NodeId, op: &Op) -> Option<Operand> {
        let node = self.graph.node(id);
        let source = self.value(*node.inputs.first()?);
        let layout = op.view(&source.layout)?;
        Some(Operand { source: source.source, ty: node.ty.clone(), stored: source.stored, layout })
    }

    /// Schedules the op of a node.
    fn compute(&mut self, id: NodeId) -> Operand {
        let node = self.graph.node(id);
        let stored =
            if self.is_output[id.0] { node.ty.dtype } else { self.rules.stored(self.graph, id) };
        let inputs: Vec<Operand> = (0..node.inputs.len()).map(|i| self.operand(id, i)).collect();
        let in_place = (0..inputs.len()).find(|&i| self.can_overwrite(id, i, &inputs, stored));
        let step = self.plan.steps.len();
        let output = match in_place.map(|i| inputs[i].source) {
            Some(Source::Buffer(buffer)) => buffer,
            Some(Source::Input(_) | Source::Static(_)) | None => {
                self.buffer(node.ty.shape.elements() * stored.size())
            }
        };
        self.buffer_reader[output] = self.last_reader[id.0];
        self.touch(&inputs, output, step);
        self.plan.steps.push(Step { action: Action::Compute(id), inputs, output, in_place });
        Operand { stored, ..Operand::whole(Source::Buffer(output), &node.ty) }
    }

    /// Input `index` of a node as its kernel can read it, copied first if there is no other way.
    fn operand(&mut self, id: NodeId, index: usize) -> Operand {
        let input = self.graph.node(id).inputs[index];
        let value = self.value(input).clone();
        let readable = value.layout.is_contiguous()
            || self.rules.reads_strided(self.graph, id, index, &value.layout);
        if readable {
            return value;
        }
        if let Some(copy) = &self.copies[input.0] {
            return copy.clone();
        }
        let step = self.plan.steps.len();
        let (ty, stored) = (value.ty.clone(), value.stored);
        let output = self.buffer(ty.shape.elements() * stored.size());
        self.buffer_reader[output] = self.last_reader[input.0];
        let inputs = vec![value];
        self.touch(&inputs, output, step);
        self.plan.steps.push(Step { action: Action::Copy(input), inputs, output, in_place: None });
        let copy = Operand { stored, ..Operand::whole(Source::Buffer(output), &ty) };
        self.copies[input.0] = Some(copy.clone());
        copy
    }

    /// Whether input `index` is a whole buffer that nobody reads after this node.
    fn can_overwrite(&self, id: NodeId, index: usize, inputs: &[Operand], stored: DType) -> bool {
        let elements = self.graph.ty(id).shape.elements();
        let operand = &inputs[index];
        let Source::Buffer(buffer) = operand.source else { return false };
        let sole = inputs.iter().filter(|other| other.source == operand.source).count() == 1;
        sole && self.buffer_reader[buffer] <= id.0
            && operand.layout.is_contiguous()
            && operand.layout.offset == 0
            && self.plan.buffers[buffer].bytes == elements * stored.size()
            && operand.stored == stored
            && self.rules.overwrites(self.graph, id, index)
    }

    fn buffer(&mut self, bytes: usize) -> usize {
        let first = self.plan.steps.len();
        self.plan.buffers.push(Buffer { home: Home::Arena(0), bytes, first, last: first });
        self.buffer_reader.push(usize::MAX);
        self.plan.buffers.len() - 1
    }

    /// Notes that `step` needs these buffers.
    fn touch(&mut self, inputs: &[Operand], output: usize, step: usize) {
        self.plan.buffers[output].last = step;
        for operand in inputs {
            if let Source::Buffer(buffer) = operand.source {
                self.plan.buffers[buffer].last = step;
            }
        }
    }

    fn value(&self, id: NodeId) -> &Operand {
        self.values[id.0].as_ref().expect("nodes are visited after their inputs")
    }

    fn finish(mut self) -> Plan {
        for (name, id) in self.graph.outputs() {
            let operand = self.value(*id).clone();
            if let Source::Buffer(index) = operand.source {
                let buffer = &mut self.plan.buffers[index];
                buffer.last = self.plan.steps.len();
                let covers = operand.ty.bytes() == buffer.bytes && operand.layout.offset == 0;
                if covers && operand.layout.is_contiguous() && operand.stored == operand.ty.dtype {
                    buffer.home = Home::Own;
                }
            }
            self.plan.outputs.push((name.clone(), operand));
        }
        self.plan.arena_bytes = arena::assign_offsets(&mut self.plan.buffers);
        self.plan
    }
}

/// Which nodes are outputs, or are seen through a view that is one.
fn outputs_and_their_sources(graph: &Graph) -> Vec<bool> {
    let mut outputs = vec![false; graph.nodes().len()];
    for (_, id) in graph.outputs() {
        outputs[id.0] = true;
    }
    for (id, node) in graph.iter().rev() {
        if graph.op(id).is_some_and(Op::is_view) && outputs[id.0] {
            outputs[node.inputs[0].0] = true;
        }
    }
    outputs
}

/// For each node, the position of the last node that may read its memory: itself, through a view, or through a
/// result written in place. Outputs are read at the end.
fn last_readers(graph: &Graph) -> Vec<usize> {
    let count = graph.nodes().len();
    let mut last: Vec<usize> = (0..count).collect();
    for (_, id) in graph.outputs() {
        last[id.0] = count;
    }
    for (id, node) in graph.iter().rev() {
        let is_view = graph.op(id).is_some_and(Op::is_view);
        let until = if is_view { last[id.0] } else { id.0 };
        for input in &node.inputs {
            last[input.0] = last[input.0].max(until);
        }
    }
    last
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            let buffer = &self.buffers[step.output];
            let what = match step.action {
                Action::Compute(id) => format!("compute {id}"),
                Action::Copy(id) => format!("copy {id}"),
            };
            let home = match buffer.home {
                Home::Arena(offset) => format!("at {offset}"),
                Home::Own => "of its own".to_owned(),
            };
            let in_place = if step.in_place.is_some() { ", in place" } else { "" };
            writeln!(
                f,
                "step {number}: {what} -> buffer {} {home} ({} bytes, until step {}{in_place})",
                step.output, buffer.bytes, buffer.last
            )?;
        }
        let total: usize = self.buffers.iter().map(|buffer| buffer.bytes).sum();
        writeln!(f, "arena: {} bytes for {total} bytes of values", self.arena_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;

    /// Stores whatever a GELU gives in half precision.
    struct HalfRules;

    impl Rules for HalfRules {
        fn reads_strided(&self, _: &Graph, _: NodeId, _: usize, _: &Layout) -> bool {
            false
        }
        fn overwrites(&self, _: &Graph, _: NodeId, _: usize) -> bool {
            true
        }
        fn stored(&self, graph: &Graph, node: NodeId) -> DType {
            let printed = graph.op(node).map(Op::printed).unwrap_or_default();
            if printed.contains("Gelu") { DType::BF16 } else { DType::F32 }
        }
    }

    #[test]
    fn storage_is_apart_from_type() {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [64]);
        let stored = x.relu().gelu();
        builder.output("y", stored.relu());
        builder.output("z", stored.relu().gelu());
        let graph = builder.finish().expect("the graph is well-formed");
        let plan = plan(&graph, &HalfRules);
        let bytes = |step: &Step| plan.buffers[step.output].bytes;
        assert_eq!(plan.steps.iter().map(bytes).collect::<Vec<_>>()[..2], [256, 128]);
        let half = &plan.steps[2].inputs[0];
        assert_eq!((half.stored, half.ty.dtype), (DType::BF16, DType::F32));
        // An output has its own type, and memory of its own, whatever the backend prefers.
        let (_, last) = &plan.outputs[1];
        assert_eq!(last.stored, DType::F32);
        let in_place = |step: &Step| step.in_place.is_some();
        assert!(!in_place(&plan.steps[1]), "a result of another size overwrites nothing");
        let own = plan.buffers.iter().filter(|buffer| buffer.home == Home::Own).count();
        assert_eq!(own, 2);
    }
}
