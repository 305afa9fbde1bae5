//! The CPU as a backend: compiles graphs into programs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cutout_graph::plan::{self, Action, Operand, Source};
use cutout_graph::{
    Backend, CompileError, Device, Graph, NodeId, Op, Profile, Program, RunError, Weights, passes,
    verify,
};
use cutout_tensor::Tensor;

use crate::kernels::{copy_kernel, lower};
use crate::lower::Site;
use crate::memory::AlignedBuffer;
use crate::pool::Pool;
use crate::program::{CpuProgram, Instruction, OperandSource};
use crate::rules::CpuRules;
use crate::simd::Isa;

/// The processor: an instruction set, a thread pool, and the arenas that programs take turns with.
pub struct Cpu {
    machine: Arc<Machine>,
}

/// What all programs of a [`Cpu`] share.
pub(crate) struct Machine {
    pub(crate) isa: Isa,
    pub(crate) pool: Pool,
    arenas: Mutex<Vec<AlignedBuffer<u8>>>,
}

impl Cpu {
    /// The best instruction set of this machine, on `threads` threads.
    pub fn new(threads: usize) -> Self {
        Cpu::with_isa(Isa::detect(), threads)
    }

    /// A given instruction set, or the best one below it that this machine has.
    pub fn with_isa(isa: Isa, threads: usize) -> Self {
        let machine =
            Machine { isa: isa.or_available(), pool: Pool::new(threads), arenas: Mutex::default() };
        Cpu { machine: Arc::new(machine) }
    }

    /// What the kernels can do with memory, for plans made outside a compilation.
    pub fn rules(&self) -> &'static dyn plan::Rules {
        &CpuRules
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.machine.isa
    }

    /// Compiles to the concrete program type; see [`Backend::compile`].
    pub fn compile_program(
        &self,
        graph: &Graph,
        weights: &Weights,
        profile: &Profile,
    ) -> Result<CpuProgram, CompileError> {
        if let Device::Cuda(number) = profile.device {
            let (op, reason) =
                (format!("device cuda:{number}"), "this backend is the CPU".to_owned());
            return Err(CompileError::Unsupported { op, reason });
        }
        verify(graph)?;
        weights.check(graph)?;
        let graph = passes::optimize(graph, &passes::Context::new(Some(weights), profile))?;
        let plan = plan::plan(&graph, &CpuRules);
        let limit =
            profile.memory_limit_mib.map_or(isize::MAX as usize, |mib| mib.saturating_mul(1 << 20));
        if plan.arena_bytes > limit {
            return Err(CompileError::Memory { needed: plan.arena_bytes, limit });
        }
        let mut statics = Statics { graph: &graph, weights, tensors: HashMap::new() };
        let mut steps = Vec::with_capacity(plan.steps.len());
        for step in &plan.steps {
            steps.push(self.instruction(&graph, &plan, step, &mut statics)?);
        }
        let outputs = plan
            .outputs
            .iter()
            .map(|(name, operand)| {
                Ok((name.clone(), operand.clone(), statics.source(&plan, operand)?))
            })
            .collect::<Result<_, CompileError>>()?;
        let inputs =
            graph.inputs().map(|(name, id)| (name.to_owned(), graph.ty(id).clone())).collect();
        Ok(CpuProgram {
            machine: Arc::clone(&self.machine),
            inputs,
            steps,
            outputs,
            arena_bytes: plan.arena_bytes,
        })
    }

    fn instruction(
        &self,
        graph: &Graph,
        plan: &plan::Plan,
        step: &plan::Step,
        statics: &mut Statics<'_>,
    ) -> Result<Instruction, CompileError> {
        let buffer = &plan.buffers[step.output];
        let (id, lowered) = match step.action {
            Action::Copy(id) => (id, copy_kernel(&step.inputs[0])),
            Action::Compute(id) => {
                let op = graph.op(id).expect("only ops are computed");
                let site = Site {
                    inputs: &step.inputs,
                    output: graph.ty(id),
                    statics: graph
                        .node(id)
                        .inputs
                        .iter()
                        .map(|&input| statics.weights.known(&graph.node(input).kind))
                        .collect(),
                    weights: statics.weights,
                    isa: self.machine.isa,
                    pool: &self.machine.pool,
                };
                (id, lower(op, &site)?)
            }
        };
        let mut sources = Vec::with_capacity(step.inputs.len());
        for (index, operand) in step.inputs.iter().enumerate() {
            sources.push(if lowered.absorbed.contains(&index) {
                OperandSource::Absorbed
            } else {
                statics.source(plan, operand)?
            });
        }
        let bytes = graph.ty(id).bytes();
        Ok(Instruction {
            name: graph.op(id).map_or("copy", Op::name),
            node: id,
            kernel: lowered.kernel,
            operands: step.inputs.clone(),
            sources,
            output: buffer.offset..buffer.offset + bytes,
            in_place: step.in_place,
        })
    }
}

impl Backend for Cpu {
    fn name(&self) -> String {
        format!("cpu ({}, {} threads)", self.machine.isa.name(), self.machine.pool.threads())
    }

    fn compile(
        &self,
        graph: &Graph,
        weights: &Weights,
        profile: &Profile,
    ) -> Result<Box<dyn Program>, CompileError> {
        Ok(Box::new(self.compile_program(graph, weights, profile)?))
    }
}

impl Machine {
    /// Memory for one run: the smallest arena at rest that is large enough, or a new one in place of the largest.
    pub(crate) fn take_arena(&self, bytes: usize) -> Result<AlignedBuffer<u8>, RunError> {
        let mut arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        arenas.sort_by_key(|arena| arena.len());
        let fitting = arenas.partition_point(|arena| arena.len() < bytes);
        if fitting < arenas.len() {
            return Ok(arenas.remove(fitting));
        }
        // None is large enough: the largest makes room, so that memory grows to the largest program and no further.
        drop(arenas.pop());
        AlignedBuffer::try_zeroed(bytes).ok_or(RunError::OutOfMemory(bytes))
    }

    /// Gives an arena back.
    pub(crate) fn return_arena(&self, arena: AlignedBuffer<u8>) {
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner).push(arena);
    }
}

/// Values of weights and constants, as kernels read them: contiguous, and floats as `f32`.
struct Statics<'a> {
    graph: &'a Graph,
    weights: &'a Weights,
    tensors: HashMap<NodeId, Tensor>,
}

impl Statics<'_> {
    fn source(
        &mut self,
        plan: &plan::Plan,
        operand: &Operand,
    ) -> Result<OperandSource, CompileError> {
        Ok(match operand.source {
            Source::Input(index) => OperandSource::Input(index),
            Source::Buffer(buffer) => OperandSource::Arena(plan.buffers[buffer].offset),
            Source::Static(id) => OperandSource::Static(self.readable(id)?),
        })
    }

    /// The tensor of a static node in the type the graph gives it.
    fn readable(&mut self, id: NodeId) -> Result<Tensor, CompileError> {
        if let Some(tensor) = self.tensors.get(&id) {
            return Ok(tensor.clone());
        }
        let known = self.weights.known(&self.graph.node(id).kind);
        let known = known.expect("static operands are weights or constants");
        let tensor = self.weights.plain(&known, self.graph.ty(id).dtype)?;
        self.tensors.insert(id, tensor.clone());
        Ok(tensor)
    }
}
