//! A lowered graph on a card: addresses resolved, launches made into one graph, replayed at every run.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use cutout_graph::{
    CompileError, DeviceStorage, DeviceValue, NodeId, Planned, Port, Program, RunError, StepTime,
    Transfers,
};
use cutout_tensor::{Tensor, TensorType, memory};

use crate::driver::{Call, Context, DeviceError, Mark, Memory, Parameter, Replay};
use crate::launch::{Argument, Launch, Place, Region};
use crate::lower::{Lowered, PROBLEM_BYTES, WeightSource};
use crate::order::dependencies;
use crate::report::{Report, Reported};
use crate::weights::{DeviceWeight, device_error, prepared, upload};

/// Slots start at multiples of this.
const ALIGNMENT: usize = 256;

/// The number of the next program.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// Reports that values carry before a run waits for them.
const MOST_REPORTS: usize = 16;

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
    /// When it is there; `None` for what was uploaded.
    ready: Option<Arc<Mark>>,
    /// What runs that it depends on may have to report.
    reports: Vec<Arc<Report>>,
}

impl DeviceStorage for CudaValue {
    fn fetch(&self) -> Result<Tensor, RunError> {
        self.copied_out(0, self.ty.clone())
    }

    fn fetch_range(&self, elements: Range<usize>) -> Result<Tensor, RunError> {
        let ty = TensorType::new(self.ty.dtype, [elements.len()]);
        self.copied_out(elements.start * ty.dtype.size(), ty)
    }
}

impl CudaValue {
    /// A tensor of type `ty` from the bytes at `offset`. Work that was enqueued after the value's own is not waited for.
    fn copied_out(&self, offset: usize, ty: TensorType) -> Result<Tensor, RunError> {
        let words = memory::zeroed::<u64>(ty.bytes().div_ceil(8));
        let mut words = words.map_err(|error| RunError::OutOfMemory(error.bytes))?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let (context, address) = (self.memory.context(), self.memory.address() + offset as u64);
        let unread: Vec<&Arc<Report>> =
            self.reports.iter().filter(|report| !report.is_clean()).collect();
        let mut reported = vec![Reported::default(); unread.len()];
        let mut ranges = vec![(address, &mut bytes[..ty.bytes()])];
        let reports = unread.iter().zip(&mut reported);
        ranges.extend(reports.map(|(report, words)| report.range(words)));
        context.copy_out(self.ready.as_deref(), &mut ranges).map_err(run_error)?;
        unread.iter().zip(&reported).try_for_each(|(report, words)| report.judge(words))?;
        Ok(Tensor::from_words(ty, words)?)
    }
}

/// A failure of the card during a run.
pub(crate) fn run_error(error: DeviceError) -> RunError {
    if let DeviceError::OutOfMemory { bytes, free: available } = error {
        return RunError::DeviceMemory { bytes, available };
    }
    RunError::Device(error.to_string())
}

impl Machine {
    /// A host tensor as a value of the card.
    pub(crate) fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, RunError> {
        let tensor = tensor.to_contiguous()?;
        self.upload_bytes(tensor.ty().clone(), tensor.as_bytes()?)
    }

    /// The bytes of a host tensor of type `ty` as a value of the card.
    pub(crate) fn upload_bytes(
        &self,
        ty: TensorType,
        bytes: &[u8],
    ) -> Result<DeviceValue, RunError> {
        self.transfers.count_upload(bytes.len());
        let memory = Arc::new(upload(&self.context, bytes).map_err(run_error)?);
        Ok(self.value(CudaValue { memory, ty, ready: None, reports: Vec::new() }))
    }

    fn value(&self, value: CudaValue) -> DeviceValue {
        DeviceValue::new(value.ty.clone(), Arc::new(value), Arc::clone(&self.transfers))
    }
}

/// The launches of one step.
struct Step {
    op: &'static str,
    node: NodeId,
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
    /// Tells programs apart; from 1.
    number: u64,
    inputs: Vec<Port>,
    /// What was last copied into each slot.
    placed: Mutex<Vec<Weak<Memory>>>,
    outputs: Vec<(String, TensorType, u64)>,
    /// Addresses of the inputs' slots.
    slots: Vec<u64>,
    steps: Vec<Step>,
    /// The ops, by step.
    printed: Arc<[String]>,
    calls: Vec<Call>,
    /// For each call the earlier ones that it waits for.
    dependencies: Vec<Vec<usize>>,
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
        let slots = Slots::of(lowered);
        let failed = |error: DeviceError| {
            let DeviceError::OutOfMemory { free, .. } = error else {
                return device_error("program", &error);
            };
            // What is used counts as available: programs share the arena and weights.
            let available = free.saturating_add(context.used_bytes());
            let weights = lowered.weights.iter().map(|used| used.bytes).sum();
            CompileError::DeviceMemory { weights, activations: slots.end, available }
        };
        let constants = constants(context, planned, lowered, &failed)?;
        let base = context.arena(slots.end).map_err(failed)?;
        let addresses = Addresses { base, slots: &slots, constants: &constants };
        let (mut steps, mut calls, mut printed) = (Vec::new(), Vec::new(), Vec::new());
        for step in &lowered.steps {
            let first = calls.len();
            for launch in &step.launches {
                calls.push(resolve(context, launch, &addresses).map_err(failed)?);
            }
            let op = planned.graph.op(step.node);
            printed.push(op.map(cutout_graph::Op::printed).unwrap_or_default());
            steps.push(Step { op: step.op, node: step.node, calls: first..calls.len() });
        }
        let launches = lowered.steps.iter().flat_map(|step| &step.launches);
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
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            placed: Mutex::new(slots.inputs.iter().map(|_| Weak::new()).collect()),
            inputs: Port::inputs(planned.graph),
            outputs,
            slots: slots.inputs.iter().map(|&offset| base + offset as u64).collect(),
            steps,
            printed: printed.into(),
            calls,
            dependencies: dependencies(launches),
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
        // Slots keep their content as long as no other program uses the arena.
        let kept = context.arena_user(self.number) == self.number && !self.machine.poison;
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept {
            placed.iter_mut().for_each(|slot| *slot = Weak::new());
        }
        let ports = self.inputs.iter().zip(inputs).zip(&self.slots).zip(placed.iter_mut());
        for (((port, value), &slot), placed) in ports {
            port.check(value.ty())?;
            let bytes = port.ty.bytes();
            let before = std::mem::take(placed);
            let own = value.storage::<CudaValue>();
            match own.filter(|own| Arc::ptr_eq(own.memory.context(), context)) {
                Some(own) => {
                    // Values never change: the same memory has the same content while it lives.
                    let same = before.upgrade().is_some_and(|it| Arc::ptr_eq(&it, &own.memory));
                    if !same {
                        let from = own.memory.address();
                        context.copy_within(slot, from, bytes).map_err(run_error)?;
                    }
                    *placed = Arc::downgrade(&own.memory);
                }
                None => {
                    let tensor = value.fetch()?.to_contiguous()?;
                    self.machine.transfers.count_upload(bytes);
                    context.copy_in(slot, tensor.as_bytes()?).map_err(run_error)?;
                }
            }
        }
        if let Some(problem) = self.problem {
            context.clear(problem, PROBLEM_BYTES).map_err(run_error)?;
        }
        Ok(())
    }

    /// What this run and those before it may have to report: values are checked when they are fetched, so that no run waits.
    fn reports(&self, inputs: &[&DeviceValue]) -> Result<Vec<Arc<Report>>, RunError> {
        let mut all: Vec<Arc<Report>> = Vec::new();
        for value in inputs.iter().filter_map(|value| value.storage::<CudaValue>()) {
            for report in value.reports.iter().filter(|report| !report.is_clean()) {
                if !all.iter().any(|known| Arc::ptr_eq(known, report)) {
                    all.push(Arc::clone(report));
                }
            }
        }
        if all.len() > MOST_REPORTS {
            all.drain(..).try_for_each(|report| report.check())?;
        }
        if let Some(address) = self.problem {
            let context = &self.machine.context;
            let report = Report::copied(context, address, Arc::clone(&self.printed));
            all.push(Arc::new(report.map_err(run_error)?));
        }
        Ok(all)
    }

    /// Copies the outputs out of their slots.
    fn take_outputs(&self, inputs: &[&DeviceValue]) -> Result<Vec<DeviceValue>, RunError> {
        let context = &self.machine.context;
        let reports = self.reports(inputs)?;
        let mut taken = Vec::with_capacity(self.outputs.len());
        for (_, ty, address) in &self.outputs {
            let memory = context.allocate(ty.bytes()).map_err(run_error)?;
            context.copy_within(memory.address(), *address, ty.bytes()).map_err(run_error)?;
            taken.push((Arc::new(memory), ty.clone()));
        }
        let ready = Arc::new(context.mark().map_err(run_error)?);
        let value = |(memory, ty)| {
            let (ready, reports) = (Some(Arc::clone(&ready)), reports.clone());
            self.machine.value(CudaValue { memory, ty, ready, reports })
        };
        Ok(taken.into_iter().map(value).collect())
    }

    fn check_count(&self, inputs: &[&DeviceValue]) -> Result<(), RunError> {
        let (expected, found) = (self.inputs.len(), inputs.len());
        if expected == found { Ok(()) } else { Err(RunError::InputCount { expected, found }) }
    }

    /// The launches as one graph, made at the first run.
    fn replay(&self) -> Result<&Replay, RunError> {
        if let Some(replay) = self.replay.get() {
            return Ok(replay);
        }
        let graph = self.machine.context.graph(&self.calls, &self.dependencies);
        let graph = graph.map_err(run_error)?;
        Ok(self.replay.get_or_init(|| graph))
    }

    /// Enqueues every step, with a mark between each two.
    fn run_marked(&self) -> Result<Vec<StepTime>, DeviceError> {
        let context = &self.machine.context;
        let mut marks = vec![context.timed_mark()?];
        for step in &self.steps {
            for call in &self.calls[step.calls.clone()] {
                context.launch(call)?;
            }
            marks.push(context.timed_mark()?);
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
    failed: &dyn Fn(DeviceError) -> CompileError,
) -> Result<Vec<Constant>, CompileError> {
    let constant = |used: &crate::lower::WeightUse| match &used.source {
        WeightSource::Node(node, form) => {
            let kind = &planned.graph.node(*node).kind;
            let known = planned.weights.known(kind).ok_or_else(|| CompileError::Unsupported {
                op: format!("{node}"),
                reason: "its weight is missing".to_owned(),
            })?;
            Ok(Constant::Weight(prepared(context, &planned.weights, (&known, form), failed)?))
        }
        WeightSource::Table(bytes) => Ok(Constant::Table(upload(context, bytes).map_err(failed)?)),
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
        self.take_outputs(inputs)
    }

    fn run_timed(
        &self,
        inputs: &[&DeviceValue],
    ) -> Result<(Vec<DeviceValue>, Vec<StepTime>), RunError> {
        self.check_count(inputs)?;
        let _order = self.machine.context.ordered();
        self.place_inputs(inputs)?;
        let times = self.run_marked().map_err(run_error)?;
        Ok((self.take_outputs(inputs)?, times))
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
