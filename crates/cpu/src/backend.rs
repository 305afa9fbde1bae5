//! The CPU as a backend: compiles graphs into programs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cutout_graph::plan::{self, Action, Home, Operand, Source};
use cutout_graph::{
    Backend, CompileError, DeviceValue, Kind, NodeId, Op, Planned, Port, Precision, Profile,
    Program, RunError, Transfers,
};
use cutout_parallel::{AlignedBuffer, Pool};
use cutout_tensor::Tensor;

use crate::gemm::{Arithmetic, ByteConvolutions, ByteUnit, HalfUnit};
use crate::kernels::{copy_kernel, lower};
use crate::lower::Site;
use crate::program::{BufferMemory, CpuProgram, Instruction, OperandSource, OutputPort};
use crate::rules::CpuRules;
use crate::simd::Isa;

/// The processor: an instruction set, a thread pool, and the arenas that programs take turns with.
pub struct Cpu {
    machine: Arc<Machine>,
}

/// What multiplies numbers of less than 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// What multiplies bf16 numbers.
    pub half: HalfUnit,
    /// What multiplies bytes.
    pub bytes: ByteUnit,
    /// Whether attention multiplies bytes with precision int8; else it does what is faster, bf16 or `f32`.
    pub byte_attention: bool,
    /// Which convolutions multiply bytes with precision int8; the others do what is faster, bf16 or `f32`.
    pub byte_convolutions: ByteConvolutions,
}

impl Units {
    /// The units that are fastest on this machine, for kernels compiled for `isa`.
    pub fn detect(isa: Isa) -> Units {
        let (half, bytes) = (HalfUnit::detect(isa), ByteUnit::detect(isa));
        // AVX-512 has an instruction for four products of bytes. Attention on tile registers is faster, in bf16.
        let byte_attention = isa == Isa::Avx512 && half != HalfUnit::Tiles;
        // Without it, 3 by 3 convolutions of bytes take about as long as Winograd's in `f32`.
        let byte_convolutions = match isa {
            Isa::Avx512 => ByteConvolutions::Faster,
            Isa::Avx2 | Isa::Portable => ByteConvolutions::None,
        };
        Units { half, bytes, byte_attention, byte_convolutions }
    }

    /// These units, and the detected ones in place of those that this machine does not have.
    fn or_detected(self, isa: Isa) -> Units {
        let detected = Units::detect(isa);
        Units {
            half: if self.half.is_available() { self.half } else { detected.half },
            bytes: if self.bytes.is_available() { self.bytes } else { detected.bytes },
            ..self
        }
    }
}

/// What all programs of a [`Cpu`] share.
pub(crate) struct Machine {
    pub(crate) isa: Isa,
    units: Units,
    pub(crate) pool: Arc<Pool>,
    pub(crate) transfers: Arc<Transfers>,
    arenas: Mutex<Vec<AlignedBuffer<u8>>>,
    /// Memory of outputs that nobody holds any more: the next output of that size is written there, into pages that the
    /// system need not clear again.
    spare: Mutex<Vec<AlignedBuffer<u8>>>,
}

/// Bytes of spare output memory that are kept.
const MAX_SPARE_BYTES: usize = 32 << 20;

impl Cpu {
    /// The best instruction set of this machine, on `threads` threads.
    pub fn new(threads: usize) -> Self {
        Cpu::with_isa(Isa::detect(), threads)
    }

    /// The best instruction set of this machine, on the threads of `pool`, which may have other users.
    pub fn on(pool: Arc<Pool>) -> Self {
        Cpu::with_isa_on(Isa::detect(), pool)
    }

    /// A given instruction set, or the best one below it that this machine has.
    pub fn with_isa(isa: Isa, threads: usize) -> Self {
        Cpu::with_isa_on(isa, Arc::new(Pool::new(threads)))
    }

    /// A given instruction set and units, or what this machine has instead of them.
    pub fn with_units(isa: Isa, units: Units, threads: usize) -> Self {
        let isa = isa.or_available();
        Cpu::with(isa, units.or_detected(isa), Arc::new(Pool::new(threads)))
    }

    fn with_isa_on(isa: Isa, pool: Arc<Pool>) -> Self {
        let isa = isa.or_available();
        Cpu::with(isa, Units::detect(isa), pool)
    }

    fn with(isa: Isa, units: Units, pool: Arc<Pool>) -> Self {
        let machine = Machine {
            isa,
            units,
            pool,
            transfers: Arc::default(),
            arenas: Mutex::default(),
            spare: Mutex::default(),
        };
        Cpu { machine: Arc::new(machine) }
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.machine.isa
    }

    /// What multiplies bf16 numbers.
    pub fn half_unit(&self) -> HalfUnit {
        self.machine.units.half
    }

    /// Whether attention multiplies bytes with precision int8.
    pub fn byte_attention(&self) -> bool {
        self.machine.units.byte_attention
    }

    pub(crate) fn program(&self, planned: &Planned<'_>) -> Result<CpuProgram, CompileError> {
        refuse_half_precision(planned)?;
        let Planned { graph, plan, .. } = planned;
        let mut statics = Statics { planned, tensors: HashMap::new() };
        let steps = plan.steps.iter().map(|step| self.instruction(step, &mut statics));
        let steps = steps.collect::<Result<_, _>>()?;
        let mut outputs = Vec::with_capacity(plan.outputs.len());
        for (name, operand) in &plan.outputs {
            let source = statics.source(operand)?;
            outputs.push(OutputPort { name: name.clone(), operand: operand.clone(), source });
        }
        let own = plan.buffers.iter().filter(|buffer| buffer.home == Home::Own);
        Ok(CpuProgram {
            machine: Arc::clone(&self.machine),
            inputs: Port::inputs(graph),
            steps,
            outputs,
            arena_bytes: plan.arena_bytes,
            own_bytes: own.map(|buffer| buffer.bytes).collect(),
            held_bytes: statics.constant_bytes(),
        })
    }

    /// The instructions and the precision of the products of a node. Linear layers in int8 are ops of their own; with precision
    /// int8, attention and convolutions multiply bytes, and otherwise bf16, each where that is faster.
    fn arithmetic(&self, planned: &Planned<'_>, id: NodeId) -> Arithmetic {
        let Machine { isa, units, .. } = *self.machine;
        let Units { half, bytes, byte_attention, byte_convolutions } = units;
        let precision = planned.profile.precision_of(&planned.graph.node(id).origin.scope);
        let byte_attention = byte_attention && precision == Precision::Int8;
        let byte_convolutions = match precision {
            Precision::Int8 => byte_convolutions,
            Precision::Auto | Precision::F32 | Precision::F16 | Precision::Bf16 => {
                ByteConvolutions::None
            }
        };
        let half = match precision {
            Precision::Bf16 => Some(half),
            Precision::Int8 => Some(half).filter(|half| half.is_faster_than_single()),
            Precision::Auto | Precision::F32 | Precision::F16 => None,
        };
        let strassen = planned.profile.strassen.unwrap_or(true);
        Arithmetic { isa, half, bytes, byte_attention, byte_convolutions, strassen }
    }

    fn instruction(
        &self,
        step: &plan::Step,
        statics: &mut Statics<'_>,
    ) -> Result<Instruction, CompileError> {
        let graph = statics.planned.graph;
        let (id, lowered) = match step.action {
            Action::Copy(id) => (id, copy_kernel(&step.inputs[0])),
            Action::Compute(id) => {
                let op = graph.op(id).expect("only ops are computed");
                let weights = statics.planned.weights;
                let known = |&input: &NodeId| weights.known(&graph.node(input).kind);
                let site = Site {
                    inputs: &step.inputs,
                    output: graph.ty(id),
                    statics: graph.node(id).inputs.iter().map(known).collect(),
                    weights,
                    arithmetic: self.arithmetic(statics.planned, id),
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
                statics.source(operand)?
            });
        }
        Ok(Instruction {
            name: graph.op(id).map_or("copy", Op::name),
            node: id,
            kernel: lowered.kernel,
            operands: step.inputs.clone(),
            sources,
            output: statics.memory(step.output),
            output_bytes: graph.ty(id).bytes(),
            in_place: step.in_place,
        })
    }
}

/// Fails if the profile asks for a precision that the CPU has no kernels for: it is never ignored.
fn refuse_half_precision(planned: &Planned<'_>) -> Result<(), CompileError> {
    let half = planned
        .graph
        .parameters()
        .find(|(path, _)| planned.profile.precision_of(path) == Precision::F16);
    match half {
        None => Ok(()),
        Some((path, _)) => {
            let reason = "the CPU multiplies in f32, bf16 or int8, not in f16".to_owned();
            Err(CompileError::Unsupported { op: path.to_owned(), reason })
        }
    }
}

impl Backend for Cpu {
    fn name(&self) -> String {
        format!("cpu ({}, {} threads)", self.machine.isa.name(), self.machine.pool.threads())
    }

    fn device(&self) -> &str {
        "cpu"
    }

    fn rules<'a>(&'a self, _: &'a Profile) -> Box<dyn plan::Rules + 'a> {
        Box::new(CpuRules)
    }

    fn batch_limit(&self) -> usize {
        4
    }

    fn values_are_on_host(&self) -> bool {
        true
    }

    fn lower(&self, planned: &Planned<'_>) -> Result<Box<dyn Program>, CompileError> {
        Ok(Box::new(self.program(planned)?))
    }

    fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, RunError> {
        Ok(self.machine.upload(tensor))
    }

    fn transfers(&self) -> &Transfers {
        &self.machine.transfers
    }
}

impl Machine {
    /// A host tensor as a value of the CPU: the same memory.
    pub(crate) fn upload(&self, tensor: &Tensor) -> DeviceValue {
        self.transfers.count_upload(tensor.ty().bytes());
        self.value(tensor.clone())
    }

    /// A tensor that a program made, as a value.
    pub(crate) fn value(&self, tensor: Tensor) -> DeviceValue {
        DeviceValue::new(tensor.ty().clone(), Arc::new(tensor), Arc::clone(&self.transfers))
    }

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

    /// Memory for an output.
    pub(crate) fn take_output(&self, bytes: usize) -> Result<AlignedBuffer<u8>, RunError> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = spare.iter().position(|buffer| buffer.len() == bytes) {
            return Ok(spare.swap_remove(index));
        }
        drop(spare);
        AlignedBuffer::try_zeroed(bytes).ok_or(RunError::OutOfMemory(bytes))
    }

    /// Keeps the memory of an output that nobody holds any more, unless there is enough.
    pub(crate) fn return_output(&self, buffer: AlignedBuffer<u8>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: usize = spare.iter().map(|buffer| buffer.len()).sum();
        if kept.saturating_add(buffer.len()) <= MAX_SPARE_BYTES {
            spare.push(buffer);
        }
    }

    /// Gives an arena back.
    pub(crate) fn return_arena(&self, arena: AlignedBuffer<u8>) {
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner).push(arena);
    }
}

/// Values of weights and constants, as kernels read them: contiguous, and floats as `f32`.
struct Statics<'a> {
    planned: &'a Planned<'a>,
    tensors: HashMap<NodeId, Tensor>,
}

impl Statics<'_> {
    fn source(&mut self, operand: &Operand) -> Result<OperandSource, CompileError> {
        Ok(match operand.source {
            Source::Input(index) => OperandSource::Input(index),
            Source::Buffer(buffer) => OperandSource::Memory(self.memory(buffer)),
            Source::Static(id) => OperandSource::Static(self.readable(id)?),
        })
    }

    /// Where a buffer of the plan is in a run.
    fn memory(&self, buffer: usize) -> BufferMemory {
        let buffers = &self.planned.plan.buffers;
        match buffers[buffer].home {
            Home::Arena(offset) => BufferMemory::Arena(offset),
            Home::Own => {
                let before = buffers[..buffer].iter().filter(|other| other.home == Home::Own);
                BufferMemory::Own(before.count())
            }
        }
    }

    /// The tensor of a static node in the type the graph gives it.
    fn readable(&mut self, id: NodeId) -> Result<Tensor, CompileError> {
        if let Some(tensor) = self.tensors.get(&id) {
            return Ok(tensor.clone());
        }
        let Planned { graph, weights, .. } = self.planned;
        let known = weights.known(&graph.node(id).kind);
        let known = known.expect("static operands are weights or constants");
        let tensor = weights.plain(&known, graph.ty(id).dtype)?;
        self.tensors.insert(id, tensor.clone());
        Ok(tensor)
    }

    /// Bytes of constants that belong to this program alone.
    fn constant_bytes(&self) -> usize {
        let unnamed = |id: NodeId| match &self.planned.graph.node(id).kind {
            Kind::Constant(constant) => constant.name.is_none(),
            Kind::Input(_) | Kind::Parameter(_) | Kind::Op(_) => false,
        };
        let own = self.tensors.iter().filter(|(id, _)| unnamed(**id));
        own.map(|(_, tensor)| tensor.ty().bytes()).sum()
    }
}
