//! Lowers a planned graph to launches: plain data, without a driver or a GPU.

mod attention;
mod bytes;
mod elementwise;
mod followers;
mod hopper;
mod image;
mod movement;
mod parameters;
mod product;
mod resample;
mod rows;
mod site;
mod split;
mod tensor_cores;

use std::collections::HashMap;

use cutout_graph::plan::{Action, Home, Operand, Plan, Source};
use cutout_graph::{CompileError, Graph, NodeId, Op, Profile};
use cutout_tensor::{DType, TensorType};

use crate::launch::{Argument, Launch, Place, Region};
use crate::rules::{CudaRules, half_of};
use crate::variants::Family;
use crate::weights::Form;

pub(crate) use site::{Input, Site};

/// What lowering must know of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The kernels it runs.
    pub family: Family,
    /// Its multiprocessors.
    pub multiprocessors: usize,
    /// Shared memory that a block may have, in bytes.
    pub shared_bytes: usize,
}

impl Target {
    /// An H100 or H200.
    pub const HOPPER: Target =
        Target { family: Family::Sm90a, multiprocessors: 132, shared_bytes: 227 << 10 };
    /// An A100.
    pub const AMPERE: Target =
        Target { family: Family::Sm80, multiprocessors: 108, shared_bytes: 163 << 10 };
}

/// Every place starts at a multiple of this.
const ALIGNMENT: usize = 256;

/// A graph as launches.
#[derive(Clone, Debug, Default)]
pub struct Lowered {
    /// The steps of the plan, each with its launches.
    pub steps: Vec<LoweredStep>,
    /// Weights and constants, by the number of [`Region::Weight`].
    pub weights: Vec<WeightUse>,
    /// Bytes of the arena: the plan's, and scratch memory behind it.
    pub arena_bytes: usize,
    /// Bytes of each input's slot.
    pub input_bytes: Vec<usize>,
    /// Bytes of the slot of each buffer in memory of its own, by the number of the buffer.
    pub output_bytes: HashMap<usize, usize>,
    /// Where each output lies when the last launch is done: contiguous, in its own type.
    pub outputs: Vec<(String, TensorType, Place)>,
    /// Where kernels report values that ops are not defined on, if some do.
    pub problem: Option<Place>,
}

/// One step of the plan.
#[derive(Clone, Debug)]
pub struct LoweredStep {
    /// Name of the op, or "copy".
    pub op: &'static str,
    /// The node of the optimised graph.
    pub node: NodeId,
    /// Its launches, in order.
    pub launches: Vec<Launch>,
}

/// A weight or constant in the form that kernels read.
#[derive(Clone, Debug)]
pub struct WeightUse {
    /// The weight's node, and the form; or bytes that lowering made.
    pub source: WeightSource,
    /// Bytes on the device.
    pub bytes: usize,
}

/// Where a constant of a program comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum WeightSource {
    /// A weight or constant of the graph.
    Node(NodeId, Form),
    /// A table of the op itself.
    Table(Vec<u8>),
}

/// A graph that is being lowered.
pub(crate) struct Lowering<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    profile: &'a Profile,
    target: Target,
    lowered: Lowered,
    known: HashMap<(NodeId, Form), usize>,
    /// What is taken into other ops.
    fusions: hopper::Fusions,
}

/// Lowers a planned graph.
pub fn lower(
    graph: &Graph,
    plan: &Plan,
    profile: &Profile,
    target: Target,
) -> Result<Lowered, CompileError> {
    let inputs = graph.inputs().map(|(_, id)| graph.ty(id).bytes());
    let own = plan.buffers.iter().enumerate().filter(|(_, buffer)| buffer.home == Home::Own);
    let lowered = Lowered {
        arena_bytes: plan.arena_bytes,
        input_bytes: inputs.collect(),
        output_bytes: own.map(|(index, buffer)| (index, buffer.bytes)).collect(),
        ..Lowered::default()
    };
    let fusions = hopper::Fusions::find(graph, profile, target);
    let mut lowering =
        Lowering { graph, plan, profile, target, lowered, known: HashMap::new(), fusions };
    let rules = CudaRules::new(profile);
    for step in &plan.steps {
        let (node, launches) = lowering.step(step, &rules)?;
        let op = match step.action {
            Action::Compute(_) => graph.op(node).map_or("copy", Op::name),
            Action::Copy(_) => "copy",
        };
        lowering.lowered.steps.push(LoweredStep { op, node, launches });
    }
    lowering.outputs()?;
    Ok(lowering.lowered)
}

impl Lowering<'_> {
    fn step(
        &mut self,
        step: &cutout_graph::plan::Step,
        rules: &CudaRules<'_>,
    ) -> Result<(NodeId, Vec<Launch>), CompileError> {
        let graph = self.graph;
        let (id, op) = match step.action {
            Action::Compute(id) => (id, graph.op(id)),
            Action::Copy(id) => (id, None),
        };
        let ty = graph.ty(id).clone();
        let buffer = &self.plan.buffers[step.output];
        let stored = match step.action {
            Action::Copy(_) => step.inputs[0].stored,
            Action::Compute(_) => stored_type(&ty, buffer.bytes, rules, graph, id),
        };
        let output = self.buffer(step.output);
        let inputs = self.inputs(step, op, id);
        let half = half_of(graph, id, self.profile);
        let name = op.map_or_else(|| "copy".to_owned(), Op::printed);
        let mut site = Site {
            inputs,
            output,
            ty,
            stored,
            node: id,
            half,
            lowering: self,
            launches: Vec::new(),
            scratch: 0,
            op: name,
        };
        if site.ty.shape.elements() > 0 && !site.lowering.fusions.drops(id) {
            match op {
                Some(op) => lower_op(op, &mut site)?,
                None => movement::copy(&mut site)?,
            }
        }
        Ok((id, site.launches))
    }

    /// The operands of a step. Weights that the op reads in a form of its own are not uploaded as they are.
    fn inputs(
        &mut self,
        step: &cutout_graph::plan::Step,
        op: Option<&Op>,
        id: NodeId,
    ) -> Vec<Input> {
        let graph = self.graph;
        let mut inputs = Vec::with_capacity(step.inputs.len());
        for (index, operand) in step.inputs.iter().enumerate() {
            let node = match operand.source {
                Source::Static(node) => Some(node),
                Source::Input(_) | Source::Buffer(_) => None,
            };
            let own_form = op.is_some_and(|op| takes_own_form(op, index, operand))
                && graph.node(id).inputs.get(index).is_some();
            let place = match node {
                Some(_) if own_form => {
                    Place { region: Region::Weight(usize::MAX), offset: 0, bytes: 0 }
                }
                _ => self.operand(operand),
            };
            inputs.push(Input {
                place,
                ty: operand.ty.clone(),
                stored: operand.stored,
                strides: operand.layout.strides.clone(),
                node,
            });
        }
        inputs
    }

    /// Memory of an operand, from its first element to its last.
    fn operand(&mut self, operand: &Operand) -> Place {
        let whole = match operand.source {
            Source::Input(index) => Place {
                region: Region::Input(index),
                offset: 0,
                bytes: self.lowered.input_bytes[index],
            },
            Source::Static(node) => {
                let ty = self.graph.ty(node).clone();
                self.weight(node, &ty, Form::Plain(ty.dtype))
            }
            Source::Buffer(index) => self.buffer(index),
        };
        let layout = &operand.layout;
        if layout.shape.elements() == 0 {
            return Place { bytes: 0, ..whole };
        }
        let last: usize = layout
            .shape
            .iter()
            .zip(&layout.strides)
            .map(|(length, stride)| (length - 1) * stride)
            .sum();
        let size = operand.stored.size();
        Place { offset: whole.offset + layout.offset * size, bytes: (last + 1) * size, ..whole }
    }

    /// The step of the plan that is being lowered; `None` for copies of outputs behind it.
    fn planned(&self) -> Option<&cutout_graph::plan::Step> {
        self.plan.steps.get(self.lowered.steps.len())
    }

    fn buffer(&self, index: usize) -> Place {
        let buffer = &self.plan.buffers[index];
        match buffer.home {
            Home::Arena(offset) => Place { region: Region::Arena, offset, bytes: buffer.bytes },
            Home::Own => Place { region: Region::Output(index), offset: 0, bytes: buffer.bytes },
        }
    }

    fn weight(&mut self, node: NodeId, ty: &TensorType, form: Form) -> Place {
        let bytes = form.bytes(ty);
        let weights = &mut self.lowered.weights;
        let index = *self.known.entry((node, form.clone())).or_insert_with(|| {
            weights.push(WeightUse { source: WeightSource::Node(node, form), bytes });
            weights.len() - 1
        });
        Place { region: Region::Weight(index), offset: 0, bytes }
    }

    fn problem(&mut self) -> Argument {
        let place = *self.lowered.problem.get_or_insert(Place {
            region: Region::Output(usize::MAX),
            offset: 0,
            bytes: PROBLEM_BYTES,
        });
        self.lowered.output_bytes.insert(usize::MAX, PROBLEM_BYTES);
        Argument::Write(place)
    }

    /// Finds the outputs, and copies those that are a part or a view of something.
    fn outputs(&mut self) -> Result<(), CompileError> {
        for (number, (name, operand)) in self.plan.outputs.iter().enumerate() {
            let place = self.operand(operand);
            let contiguous = operand.layout.is_contiguous() && operand.stored == operand.ty.dtype;
            if contiguous {
                let place = Place { bytes: operand.ty.bytes(), ..place };
                self.lowered.outputs.push((name.clone(), operand.ty.clone(), place));
                continue;
            }
            // A slot of its own, behind those of the plan's buffers.
            let slot = self.plan.buffers.len() + number;
            let bytes = operand.ty.bytes();
            self.lowered.output_bytes.insert(slot, bytes);
            let output = Place { region: Region::Output(slot), offset: 0, bytes };
            self.copy_output(operand, place, output)?;
            self.lowered.outputs.push((name.clone(), operand.ty.clone(), output));
        }
        Ok(())
    }

    fn copy_output(
        &mut self,
        operand: &Operand,
        place: Place,
        output: Place,
    ) -> Result<(), CompileError> {
        let node = self.graph.outputs().first().map_or(NodeId(0), |(_, id)| *id);
        let input = Input {
            place,
            ty: operand.ty.clone(),
            stored: operand.stored,
            strides: operand.layout.strides.clone(),
            node: None,
        };
        let mut site = Site {
            inputs: vec![input],
            output,
            ty: operand.ty.clone(),
            stored: operand.ty.dtype,
            node,
            half: None,
            lowering: self,
            launches: Vec::new(),
            scratch: 0,
            op: "copy".to_owned(),
        };
        if site.ty.shape.elements() > 0 {
            movement::copy(&mut site)?;
        }
        let launches = site.launches;
        self.lowered.steps.push(LoweredStep { op: "copy", node, launches });
        Ok(())
    }
}

/// Bytes of the report of a bad value.
pub(crate) const PROBLEM_BYTES: usize = 32;

/// The element type that the plan chose for a result.
fn stored_type(
    ty: &TensorType,
    bytes: usize,
    rules: &CudaRules<'_>,
    graph: &Graph,
    id: NodeId,
) -> DType {
    use cutout_graph::plan::Rules;
    let stored = rules.stored(graph, id);
    if bytes == ty.shape.elements() * stored.size() { stored } else { ty.dtype }
}

/// Whether an op asks for a weight in a form of its own.
fn takes_own_form(op: &Op, index: usize, operand: &Operand) -> bool {
    if !operand.layout.is_contiguous() || operand.layout.offset != 0 {
        return false;
    }
    match op {
        Op::Linear(_) | Op::Conv2d(_) | Op::ConvTranspose2d(_) | Op::QuantizedLinear(_) => {
            index == 1
        }
        Op::ArgMax(_)
        | Op::Attention(_)
        | Op::Binary(_)
        | Op::Broadcast(_)
        | Op::Cast(_)
        | Op::Compare(_)
        | Op::Concat(_)
        | Op::CumulativeSum(_)
        | Op::Elementwise(_)
        | Op::Gather(_)
        | Op::GridSample(_)
        | Op::GroupNorm(_)
        | Op::LayerNorm(_)
        | Op::MaskBits(_)
        | Op::MatMul(_)
        | Op::MaxPool2d(_)
        | Op::Pad(_)
        | Op::Permute(_)
        | Op::Reduce(_)
        | Op::Resample(_)
        | Op::Reshape(_)
        | Op::Resize(_)
        | Op::RoiAlign(_)
        | Op::Rope(_)
        | Op::Select(_)
        | Op::Slice(_)
        | Op::Softmax(_)
        | Op::Unary(_) => false,
    }
}

/// The launches of an op. No wildcard: a new op does not compile until it has an arm here.
fn lower_op(op: &Op, site: &mut Site<'_, '_>) -> Result<(), CompileError> {
    match op {
        Op::ArgMax(op) => rows::arg_max(op, site),
        Op::Attention(op) => attention::attention(op, site),
        Op::Binary(op) if op.kind.is_logical() => movement::logical(op.kind, site),
        Op::Unary(op) if op.kind == cutout_graph::ops::UnaryKind::Not => movement::not(site),
        Op::Binary(_) | Op::Unary(_) | Op::Elementwise(_) => {
            elementwise::chain(&op.steps().unwrap_or_default(), site)
        }
        Op::Cast(op) => movement::cast(op.dtype, site),
        Op::Compare(op) => movement::compare(op.kind, site),
        Op::Concat(op) => movement::concat(op.axis, site),
        Op::Conv2d(op) => image::conv2d(op, site),
        Op::ConvTranspose2d(op) => image::conv_transpose2d(op, site),
        Op::CumulativeSum(op) => rows::cumulative_sum(op, site),
        Op::Gather(_) => movement::gather(site),
        Op::GridSample(_) => image::grid_sample(site),
        Op::GroupNorm(op) => rows::group_norm(op, site),
        Op::LayerNorm(op) => rows::layer_norm(op, site),
        Op::Linear(op) => product::linear(op, site),
        Op::MaskBits(op) => image::mask_bits(op, site),
        Op::MatMul(op) => product::matmul(op, site),
        Op::MaxPool2d(op) => image::max_pool(op, site),
        Op::Pad(op) => movement::pad(op, site),
        Op::QuantizedLinear(op) => bytes::quantized_linear(op, site),
        Op::Reduce(op) => rows::reduce(op, site),
        // A view op that is scheduled has inputs no stride can describe: its result is a copy.
        Op::Reshape(_) | Op::Permute(_) | Op::Slice(_) | Op::Broadcast(_) => movement::copy(site),
        Op::Resample(op) => resample::resample(op, site),
        Op::Resize(op) => image::resize(op, site),
        Op::RoiAlign(op) => image::roi_align(op, site),
        Op::Rope(op) => rows::rope(op, site),
        Op::Select(_) => movement::select(site),
        Op::Softmax(_) => rows::softmax(site),
    }
}
