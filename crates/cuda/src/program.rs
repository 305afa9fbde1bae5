//! A lowered graph on a card: addresses resolved, launches captured once, replayed at every run.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cutout_graph::{
    CompileError, DeviceStorage, DeviceValue, NodeId, Planned, Port, Program, RunError, StepTime,
    Transfers,
};
use cutout_tensor::{Tensor, TensorType, memory};

use crate::driver::{Call, Context, DeviceError, Memory, Parameter, Replay};
use crate::launch::{Argument, Launch, Place, Region};
use crate::lower::{Lowered, PROBLEM_BYTES, WeightSource};
use crate::weights::{DeviceWeight, device_error, prepared, upload};

/// Slots start at multiples of this.
const ALIGNMENT: usize = 256;

/// What every program of a card shares.
pub(crate) struct Machine {
    pub(crate) context: Arc<Context>,
    pub(crate) transfers: Arc<Transfers>,
    /// Fills temporary memory and outputs with NaN before each run, so that tests notice what is never written.
    pub(crate) poison: bool,
}

/// A tensor on the card, contiguous.
pub(crate) struct CudaValue {
    memory: Arc<Memory>,
    ty: TensorType,
}

impl DeviceStorage for CudaValue {
    fn fetch(&self) -> Result<Tensor, RunError> {
        let words = memory::zeroed::<u64>(self.ty.bytes().div_ceil(8));
        let mut words = words.map_err(|error| RunError::OutOfMemory(error.bytes))?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let context = self.memory.context();
        context
            .copy_out(self.memory.address(), &mut bytes[..self.ty.bytes()])
            .map_err(run_error)?;
        Ok(Tensor::from_words(self.ty.clone(), words)?)
    }
}

/// A failure of the card during a run.
pub(crate) fn run_error(error: DeviceError) -> RunError {
    if let DeviceError::OutOfMemory { bytes, .. } = error {
        return RunError::OutOfMemory(bytes);
    }
    RunError::Device(error.to_string())
}

impl Machine {
    /// A host tensor as a value of the card.
    pub(crate) fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, RunError> {
        self.transfers.count_upload(tensor.ty().bytes());
        let tensor = tensor.to_contiguous()?;
        let memory = upload(&self.context, tensor.as_bytes()?).map_err(run_error)?;
        Ok(self.value(Arc::new(memory), tensor.ty().clone()))
    }

    fn value(&self, memory: Arc<Memory>, ty: TensorType) -> DeviceValue {
        let storage = CudaValue { memory, ty: ty.clone() };
        DeviceValue::new(ty, Arc::new(storage), Arc::clone(&self.transfers))
    }
}

/// The launches of one step.
struct Step {
    op: &'static str,
    node: NodeId,
    printed: String,
    /// Its range in the list of calls.
    calls: std::ops::Range<usize>,
}

/// A constant in device memory.
enum Constant {
    Weight(Arc<DeviceWeight>),
    Table(Memory),
}

impl Constant {
    fn address(&self) -> u64 {
        match self {
            Constant::Weight(weight) => weight.address(),
            Constant::Table(memory) => memory.address(),
        }
    }
}

/// A graph compiled for a card.
pub(crate) struct CudaProgram {
    machine: Arc<Machine>,
    inputs: Vec<Port>,
    outputs: Vec<(String, TensorType, u64)>,
    /// Addresses of the inputs' slots.
    slots: Vec<u64>,
    steps: Vec<Step>,
    calls: Vec<Call>,
    replay: OnceLock<Replay>,
    /// Keeps the memory that launches read.
    _constants: Vec<Constant>,
    base: u64,
    bytes: usize,
    table_bytes: usize,
    problem: Option<u64>,
}

/// Offsets of the slots of inputs and outputs behind the arena, and the end of all.
struct Slots {
    inputs: Vec<usize>,
    outputs: HashMap<usize, usize>,
    end: usize,
}

impl Slots {
    fn of(lowered: &Lowered) -> Slots {
        let mut end = lowered.arena_bytes.next_multiple_of(ALIGNMENT);
        let mut take = |bytes: usize| {
            let start = end;
            end += bytes.next_multiple_of(ALIGNMENT);
            start
        };
        let inputs = lowered.input_bytes.iter().map(|&bytes| take(bytes)).collect();
        let mut own: Vec<(usize, usize)> =
            lowered.output_bytes.iter().map(|(&slot, &bytes)| (slot, bytes)).collect();
        own.sort_unstable();
        let outputs = own.into_iter().map(|(slot, bytes)| (slot, take(bytes))).collect();
        Slots { inputs, outputs, end }
    }
}

/// The addresses of all regions.
struct Addresses<'a> {
    base: u64,
    slots: &'a Slots,
    constants: &'a [Constant],
}

impl Addresses<'_> {
    fn of(&self, place: &Place) -> u64 {
        let start = match place.region {
            Region::Arena => self.base,
            Region::Weight(index) => self.constants.get(index).map_or(0, Constant::address),
            Region::Input(index) => self.base + self.slots.inputs[index] as u64,
            Region::Output(slot) => {
                self.base + self.slots.outputs.get(&slot).map_or(0, |&offset| offset as u64)
            }
        };
        start + place.offset as u64
    }
}

impl CudaProgram {
    /// Uploads constants, resolves addresses and loads kernels.
    pub(crate) fn load(
        machine: &Arc<Machine>,
        planned: &Planned<'_>,
        lowered: &Lowered,
    ) -> Result<CudaProgram, CompileError> {
        let context = &machine.context;
        let constants = constants(context, planned, lowered)?;
        let slots = Slots::of(lowered);
        let failed = |error: DeviceError| {
            if let DeviceError::OutOfMemory { free, .. } = error {
                let limit = free + context.arena_bytes();
                return CompileError::Memory { needed: slots.end, limit };
            }
            device_error("program", &error)
        };
        let base = context.arena(slots.end).map_err(failed)?;
        let addresses = Addresses { base, slots: &slots, constants: &constants };
        let (mut steps, mut calls) = (Vec::new(), Vec::new());
        for step in &lowered.steps {
            let first = calls.len();
            for launch in &step.launches {
                calls.push(resolve(context, launch, &addresses).map_err(failed)?);
            }
            let printed = planned.graph.op(step.node).map(cutout_graph::Op::printed);
            steps.push(Step {
                op: step.op,
                node: step.node,
                printed: printed.unwrap_or_default(),
                calls: first..calls.len(),
            });
        }
        let outputs = lowered.outputs.iter();
        let outputs =
            outputs.map(|(name, ty, place)| (name.clone(), ty.clone(), addresses.of(place)));
        let outputs = outputs.collect();
        let table = |constant: &Constant| match constant {
            Constant::Weight(_) => 0,
            Constant::Table(memory) => memory.bytes(),
        };
        Ok(CudaProgram {
            machine: Arc::clone(machine),
            inputs: Port::inputs(planned.graph),
            outputs,
            slots: slots.inputs.iter().map(|&offset| base + offset as u64).collect(),
            steps,
            calls,
            replay: OnceLock::new(),
            base,
            bytes: slots.end,
            table_bytes: constants.iter().map(table).sum(),
            problem: lowered.problem.map(|place| addresses.of(&place)),
            _constants: constants,
        })
    }

    /// Copies the inputs into their slots.
    fn place_inputs(&self, inputs: &[&DeviceValue]) -> Result<(), RunError> {
        let context = &self.machine.context;
        if self.machine.poison {
            context.poison(self.base, self.bytes).map_err(run_error)?;
        }
        for ((port, value), &slot) in self.inputs.iter().zip(inputs).zip(&self.slots) {
            port.check(value.ty())?;
            let bytes = port.ty.bytes();
            let own = value.storage::<CudaValue>();
            match own.filter(|own| Arc::ptr_eq(own.memory.context(), context)) {
                Some(own) => {
                    context.copy_within(slot, own.memory.address(), bytes).map_err(run_error)?;
                }
                None => {
                    let tensor = value.fetch()?.to_contiguous()?;
                    self.machine.transfers.count_upload(bytes);
                    context.copy_in(slot, tensor.as_bytes()?).map_err(run_error)?;
                }
            }
        }
        if let Some(problem) = self.problem {
            context.copy_in(problem, &[0; PROBLEM_BYTES]).map_err(run_error)?;
        }
        Ok(())
    }

    /// Copies the outputs out of their slots.
    fn take_outputs(&self) -> Result<Vec<DeviceValue>, RunError> {
        let context = &self.machine.context;
        let mut values = Vec::with_capacity(self.outputs.len());
        for (_, ty, address) in &self.outputs {
            let memory = context.allocate(ty.bytes()).map_err(run_error)?;
            context.copy_within(memory.address(), *address, ty.bytes()).map_err(run_error)?;
            values.push(self.machine.value(Arc::new(memory), ty.clone()));
        }
        self.check_problem()?;
        Ok(values)
    }

    /// Reports a value that an op is not defined on. Only programs with such ops wait here.
    fn check_problem(&self) -> Result<(), RunError> {
        let Some(address) = self.problem else { return Ok(()) };
        let mut words = [0u64; PROBLEM_BYTES / 8];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        self.machine.context.copy_out(address, bytes).map_err(run_error)?;
        let (step, kind) = (words[0] as u32, (words[0] >> 32) as u32);
        if step == 0 {
            return Ok(());
        }
        let at = words[1];
        let (value, other) = (f64::from_bits(words[2]), f64::from_bits(words[3]));
        let reason = match kind {
            0 => format!("index {value} at element {at} is outside a table of {other} rows"),
            1 => format!("box {at}: batch index {value} is outside a batch of {other}"),
            2 => format!("box {at}: corners are not finite"),
            _ => format!("box {at}: needs {value} samples along a cell, 4096 at most"),
        };
        let step = usize::try_from(step).unwrap_or(1) - 1;
        let op = self.steps.get(step).map(|step| step.printed.clone()).unwrap_or_default();
        Err(RunError::Value { op, reason })
    }

    fn check_count(&self, inputs: &[&DeviceValue]) -> Result<(), RunError> {
        let (expected, found) = (self.inputs.len(), inputs.len());
        if expected == found { Ok(()) } else { Err(RunError::InputCount { expected, found }) }
    }

    /// The launches as one graph, captured at the first run.
    fn replay(&self) -> Result<&Replay, RunError> {
        if let Some(replay) = self.replay.get() {
            return Ok(replay);
        }
        let captured = self.machine.context.capture(&self.calls).map_err(run_error)?;
        Ok(self.replay.get_or_init(|| captured))
    }

    /// Enqueues every step, with a mark between each two.
    fn run_marked(&self) -> Result<Vec<StepTime>, DeviceError> {
        let context = &self.machine.context;
        let mut marks = vec![context.mark()?];
        for step in &self.steps {
            for call in &self.calls[step.calls.clone()] {
                context.launch(call)?;
            }
            marks.push(context.mark()?);
        }
        context.synchronize()?;
        let mut times = Vec::with_capacity(self.steps.len());
        for (step, pair) in self.steps.iter().zip(marks.windows(2)) {
            let time =
                if step.calls.is_empty() { Duration::ZERO } else { pair[1].since(&pair[0])? };
            times.push(StepTime { op: step.op, node: step.node, time });
        }
        Ok(times)
    }
}

/// Uploads the constants of a program, each once for all programs of its weights.
fn constants(
    context: &Arc<Context>,
    planned: &Planned<'_>,
    lowered: &Lowered,
) -> Result<Vec<Constant>, CompileError> {
    let constant = |used: &crate::lower::WeightUse| match &used.source {
        WeightSource::Node(node, form) => {
            let kind = &planned.graph.node(*node).kind;
            let known = planned.weights.known(kind).ok_or_else(|| CompileError::Unsupported {
                op: format!("{node}"),
                reason: "its weight is missing".to_owned(),
            })?;
            Ok(Constant::Weight(prepared(context, &planned.weights, &known, form)?))
        }
        WeightSource::Table(bytes) => {
            let memory = upload(context, bytes).map_err(|error| device_error("table", &error))?;
            Ok(Constant::Table(memory))
        }
    };
    lowered.weights.iter().map(constant).collect()
}

/// A launch with its kernel loaded and its addresses known.
fn resolve(
    context: &Context,
    launch: &Launch,
    addresses: &Addresses<'_>,
) -> Result<Call, DeviceError> {
    let parameter = |argument: &Argument| -> Result<Parameter, DeviceError> {
        Ok(match argument {
            Argument::Read(place) | Argument::Write(place) => {
                Parameter::new(&addresses.of(place).to_le_bytes())
            }
            Argument::Null => Parameter::new(&0u64.to_le_bytes()),
            Argument::Table(pointers) => {
                let address =
                    |place: &Option<Place>| place.as_ref().map_or(0, |place| addresses.of(place));
                let all: Vec<u64> = pointers.iter().map(address).collect();
                Parameter::new(bytemuck::cast_slice(&all))
            }
            Argument::Bytes(bytes) => Parameter::new(bytes),
            Argument::TensorMap(map) => {
                Parameter::new(&context.encode(map, addresses.of(&map.place))?)
            }
        })
    };
    Ok(Call {
        function: context.function(&launch.kernel.0)?,
        grid: launch.grid,
        block: launch.block,
        shared_bytes: launch.shared_bytes,
        parameters: launch.arguments.iter().map(parameter).collect::<Result<_, _>>()?,
    })
}

impl Program for CudaProgram {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> Vec<&str> {
        self.outputs.iter().map(|(name, _, _)| name.as_str()).collect()
    }

    fn run(&self, inputs: &[&DeviceValue]) -> Result<Vec<DeviceValue>, RunError> {
        self.check_count(inputs)?;
        let context = &self.machine.context;
        let _order = context.ordered();
        self.place_inputs(inputs)?;
        if !self.calls.is_empty() {
            context.replay(self.replay()?).map_err(run_error)?;
        }
        self.take_outputs()
    }

    fn run_timed(
        &self,
        inputs: &[&DeviceValue],
    ) -> Result<(Vec<DeviceValue>, Vec<StepTime>), RunError> {
        self.check_count(inputs)?;
        let _order = self.machine.context.ordered();
        self.place_inputs(inputs)?;
        let times = self.run_marked().map_err(run_error)?;
        Ok((self.take_outputs()?, times))
    }

    fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, RunError> {
        self.machine.upload(tensor)
    }

    fn activation_bytes(&self) -> usize {
        self.bytes
    }

    fn held_bytes(&self) -> usize {
        self.table_bytes
    }
}
