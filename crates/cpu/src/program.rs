//! A compiled graph and how it runs.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cutout_graph::plan::Operand;
use cutout_graph::{DeviceValue, NodeId, Port, Program, RunError, StepTime};
use cutout_parallel::{AlignedBuffer, NoScratch, catch_no_scratch};
use cutout_tensor::{Bytes, SharedBytes, Tensor};

use crate::backend::Machine;
use crate::execute::{Execute, Inputs, Io, Memory, Output};
use crate::kernels::copy::copied_tensor;

/// Where a buffer of the plan is.
#[derive(Clone, Copy)]
pub(crate) enum BufferMemory {
    /// The arena, from this byte on.
    Arena(usize),
    /// Memory of its own, by its number.
    Own(usize),
}

/// Where an operand's memory is.
pub(crate) enum OperandSource {
    /// The run's input of this number.
    Input(usize),
    /// A contiguous weight or constant.
    Static(Tensor),
    /// A buffer.
    Memory(BufferMemory),
    /// Inside the kernel, packed.
    Absorbed,
}

/// One step of a program.
pub(crate) struct Instruction {
    /// Name of the op.
    pub(crate) name: &'static str,
    /// The node of the optimised graph whose value it computes.
    pub(crate) node: NodeId,
    pub(crate) kernel: Box<dyn Execute>,
    pub(crate) operands: Vec<Operand>,
    pub(crate) sources: Vec<OperandSource>,
    /// The buffer it writes, and how many bytes of it.
    pub(crate) output: BufferMemory,
    pub(crate) output_bytes: usize,
    pub(crate) in_place: Option<usize>,
}

/// An output and where it is when the last step is done.
pub(crate) struct OutputPort {
    pub(crate) name: String,
    pub(crate) operand: Operand,
    pub(crate) source: OperandSource,
}

/// A graph compiled for the CPU.
pub(crate) struct CpuProgram {
    pub(crate) machine: Arc<Machine>,
    pub(crate) inputs: Vec<Port>,
    pub(crate) steps: Vec<Instruction>,
    pub(crate) outputs: Vec<OutputPort>,
    pub(crate) arena_bytes: usize,
    /// Lengths of the buffers that are handed over as outputs.
    pub(crate) own_bytes: Vec<usize>,
    pub(crate) held_bytes: usize,
}

/// The memory of one run.
struct RunMemory {
    arena: AlignedBuffer<u8>,
    own: Vec<AlignedBuffer<u8>>,
}

/// First byte and length of every piece of memory that steps write to. All pointers into a piece come from the one here, so
/// that handing out an output does not invalidate the inputs beside it.
struct Pieces {
    arena: (*mut u8, usize),
    own: Vec<(*mut u8, usize)>,
}

impl RunMemory {
    fn pieces(&mut self) -> Pieces {
        let piece = |buffer: &mut AlignedBuffer<u8>| (buffer.as_mut_ptr(), buffer.len());
        Pieces { arena: piece(&mut self.arena), own: self.own.iter_mut().map(piece).collect() }
    }
}

impl Pieces {
    /// A buffer's first byte, and the bytes from there to the end of its piece.
    fn at(&self, buffer: BufferMemory) -> (*mut u8, usize) {
        match buffer {
            BufferMemory::Own(index) => self.own[index],
            BufferMemory::Arena(offset) => {
                let (base, length) = self.arena;
                assert!(offset <= length, "the plan keeps every buffer inside the arena");
                (base.wrapping_add(offset), length - offset)
            }
        }
    }
}

impl Program for CpuProgram {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> Vec<&str> {
        self.outputs.iter().map(|output| output.name.as_str()).collect()
    }

    fn run(&self, inputs: &[&DeviceValue]) -> Result<Vec<DeviceValue>, RunError> {
        self.run_observed(inputs, &mut |_, _| {})
    }

    fn run_timed(
        &self,
        inputs: &[&DeviceValue],
    ) -> Result<(Vec<DeviceValue>, Vec<StepTime>), RunError> {
        let mut times = Vec::with_capacity(self.steps.len());
        let outputs = self.run_observed(inputs, &mut |step, time| {
            times.push(StepTime { op: step.name, node: step.node, time });
        })?;
        Ok((outputs, times))
    }

    fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, RunError> {
        Ok(self.machine.upload(tensor))
    }

    fn activation_bytes(&self) -> usize {
        self.arena_bytes + self.own_bytes.iter().sum::<usize>()
    }

    fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

impl CpuProgram {
    fn run_observed(
        &self,
        inputs: &[&DeviceValue],
        observe: &mut dyn FnMut(&Instruction, Duration),
    ) -> Result<Vec<DeviceValue>, RunError> {
        if inputs.len() != self.inputs.len() {
            let (expected, found) = (self.inputs.len(), inputs.len());
            return Err(RunError::InputCount { expected, found });
        }
        let values = self.inputs.iter().zip(inputs);
        let tensors = values.map(|(port, value)| host_tensor(port, value));
        let tensors = tensors.collect::<Result<Vec<Tensor>, RunError>>()?;
        let own = self.own_bytes.iter().map(|&bytes| self.machine.take_output(bytes));
        let own = own.collect::<Result<_, _>>()?;
        let arena = self.machine.take_arena(self.arena_bytes)?;
        let mut memory = RunMemory { arena, own };
        let done = self.run_steps(&tensors, &memory.pieces(), observe);
        let outputs = done.and_then(|()| self.results(&tensors, &mut memory));
        self.machine.return_arena(memory.arena);
        outputs
    }

    fn run_steps(
        &self,
        inputs: &[Tensor],
        pieces: &Pieces,
        observe: &mut dyn FnMut(&Instruction, Duration),
    ) -> Result<(), RunError> {
        let mut memory = Vec::new();
        for step in &self.steps {
            let start = Instant::now();
            step.run(&self.machine, inputs, pieces, &mut memory)?;
            observe(step, start.elapsed());
        }
        Ok(())
    }

    /// The outputs. Those in memory of their own are handed over with it; inputs and constants are passed on; only a view of
    /// a part of something is copied.
    fn results(
        &self,
        inputs: &[Tensor],
        memory: &mut RunMemory,
    ) -> Result<Vec<DeviceValue>, RunError> {
        let own: Vec<SharedBytes> =
            memory.own.drain(..).map(|buffer| Handed::over(buffer, &self.machine)).collect();
        let tensor = |OutputPort { operand, source, .. }: &OutputPort| {
            let whole = operand.layout.is_contiguous() && operand.layout.offset == 0;
            let bytes = match source {
                OperandSource::Memory(BufferMemory::Own(index)) if whole => {
                    let storage = Arc::clone(&own[*index]);
                    return Ok(Tensor::from_bytes(operand.ty.clone(), storage, 0)?);
                }
                OperandSource::Input(index) if *inputs[*index].ty() == operand.ty && whole => {
                    return Ok(inputs[*index].clone());
                }
                OperandSource::Static(tensor) if *tensor.ty() == operand.ty && whole => {
                    return Ok(tensor.clone());
                }
                OperandSource::Memory(BufferMemory::Own(index)) => (*own[*index]).as_ref(),
                OperandSource::Memory(BufferMemory::Arena(offset)) => &memory.arena[*offset..],
                OperandSource::Input(index) => tensor_bytes(&inputs[*index]),
                OperandSource::Static(tensor) => tensor_bytes(tensor),
                OperandSource::Absorbed => panic!("outputs are never packed"),
            };
            copied_tensor(operand, bytes, &self.machine.pool)
        };
        let value = |output: &OutputPort| Ok(self.machine.value(tensor(output)?));
        self.outputs.iter().map(value).collect()
    }
}

/// A buffer that became the storage of an output. It goes back to its machine when the last value over it is dropped.
struct Handed {
    buffer: Option<AlignedBuffer<u8>>,
    machine: Weak<Machine>,
}

impl Handed {
    fn over(buffer: AlignedBuffer<u8>, machine: &Arc<Machine>) -> SharedBytes {
        Arc::new(Handed { buffer: Some(buffer), machine: Arc::downgrade(machine) })
    }
}

impl AsRef<[u8]> for Handed {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if let (Some(buffer), Some(machine)) = (self.buffer.take(), self.machine.upgrade()) {
            machine.return_output(buffer);
        }
    }
}

impl Bytes for Handed {}

/// The contiguous tensor behind an input.
fn host_tensor(port: &Port, value: &DeviceValue) -> Result<Tensor, RunError> {
    port.check(value.ty())?;
    let tensor = match value.storage::<Tensor>() {
        Some(tensor) => tensor.clone(),
        None => value.fetch()?,
    };
    Ok(tensor.to_contiguous()?)
}

impl Instruction {
    fn run(
        &self,
        machine: &Machine,
        inputs: &[Tensor],
        pieces: &Pieces,
        memory: &mut Vec<Memory>,
    ) -> Result<(), RunError> {
        memory.clear();
        for (operand, source) in self.operands.iter().zip(&self.sources) {
            let (start, available) = match source {
                OperandSource::Input(index) => whole(&inputs[*index]),
                OperandSource::Static(tensor) => whole(tensor),
                OperandSource::Memory(buffer) => {
                    let (start, available) = pieces.at(*buffer);
                    (start.cast_const(), available)
                }
                OperandSource::Absorbed => {
                    let pointer = std::ptr::NonNull::<u64>::dangling().as_ptr().cast_const();
                    memory.push(Memory { pointer: pointer.cast(), bytes: 0 });
                    continue;
                }
            };
            let skipped = operand.layout.offset * operand.ty.dtype.size();
            let bytes = reach(operand);
            assert!(skipped + bytes <= available, "a layout stays inside its memory");
            memory.push(Memory { pointer: start.wrapping_add(skipped), bytes });
        }
        let (start, available) = pieces.at(self.output);
        assert!(self.output_bytes <= available, "the plan keeps every buffer inside its memory");
        // SAFETY: inputs, weights and the run's memory live longer than this call, lengths were checked above, and the plan
        // keeps buffers that are alive at the same step apart, except the one that this step overwrites.
        let inputs = unsafe { Inputs::new(&self.operands, memory, self.in_place) };
        // SAFETY: inside its piece as checked above; the run has exclusive use of the piece; apart from all inputs but the
        // overwritten one, which kernels read only through the output itself.
        let output = unsafe { std::slice::from_raw_parts_mut(start, self.output_bytes) };
        let io = Io { inputs, output: Output::new(output), pool: &machine.pool, isa: machine.isa };
        let done = catch_no_scratch(|| self.kernel.run(io));
        done.map_err(|NoScratch { bytes }| RunError::Scratch { op: self.name, bytes })?
    }
}

/// Bytes from an operand's first element to the end of its last.
fn reach(operand: &Operand) -> usize {
    let layout = &operand.layout;
    if layout.shape.contains(&0) {
        return 0;
    }
    let last: usize = layout
        .shape
        .iter()
        .zip(&layout.strides)
        .map(|(length, stride)| (length - 1) * stride)
        .sum();
    (last + 1) * operand.ty.dtype.size()
}

fn whole(tensor: &Tensor) -> (*const u8, usize) {
    let bytes = tensor_bytes(tensor);
    (bytes.as_ptr(), bytes.len())
}

/// The bytes of a contiguous tensor.
fn tensor_bytes(tensor: &Tensor) -> &[u8] {
    tensor.as_bytes().expect("inputs and statics were made contiguous")
}

#[cfg(test)]
mod tests {
    use cutout_graph::plan::plan;
    use cutout_graph::{Backend, Builder, Planned, Profile, Weights};
    use cutout_tensor::DType;

    use super::*;
    use crate::Cpu;

    /// Asks for more scratch than any machine has.
    struct Greedy;

    impl Execute for Greedy {
        fn run(&self, io: Io<'_>) -> Result<(), RunError> {
            io.pool.run_with_scratch(8, 1 << 58, &|_, _| ());
            Ok(())
        }
    }

    #[test]
    fn a_kernel_without_scratch_is_an_error_with_its_name() {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [4]);
        builder.output("y", x.gelu());
        let graph = builder.finish().unwrap();
        for threads in [1, 3] {
            let cpu = Cpu::new(threads);
            let (weights, profile) = (Weights::default(), Profile::default());
            let plan = plan(&graph, &*cpu.rules(&profile));
            let weights = weights.on("cpu");
            let planned = Planned { graph: &graph, plan: &plan, weights, profile: &profile };
            let compile = || cpu.program(&planned).unwrap();
            let (program, mut greedy) = (compile(), compile());
            greedy.steps[0].kernel = Box::new(Greedy);
            let x = Tensor::from_vec([4], vec![1f32; 4]).unwrap();
            let x = cpu.upload(&x).unwrap();
            let error = greedy.run(&[&x]).unwrap_err();
            let name = program.steps[0].name;
            assert_eq!(error, RunError::Scratch { op: name, bytes: 1 << 60 });
            let words = format!("{name}: {} bytes of scratch memory", 1u64 << 60);
            assert!(error.to_string().contains(&words), "{error}");
            // The threads and the arena are as good as before.
            assert!(program.run(&[&x]).is_ok());
        }
    }
}
