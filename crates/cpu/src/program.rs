//! A compiled graph and how it runs.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cutout_graph::plan::Operand;
use cutout_graph::{Named, NodeId, Program, RunError, check_inputs};
use cutout_parallel::{AlignedBuffer, NoScratch, catch_no_scratch};
use cutout_tensor::{Tensor, TensorType};

use crate::backend::Machine;
use crate::execute::{Execute, Inputs, Io, Memory, Output};
use crate::kernels::copy::copied_tensor;

/// Where an operand's memory is.
pub(crate) enum OperandSource {
    /// The run's input of this number.
    Input(usize),
    /// A contiguous weight or constant.
    Static(Tensor),
    /// The arena, from this byte.
    Arena(usize),
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
    /// Bytes of the arena it writes.
    pub(crate) output: Range<usize>,
    pub(crate) in_place: Option<usize>,
}

/// A graph compiled for the CPU.
pub struct CpuProgram {
    pub(crate) machine: Arc<Machine>,
    pub(crate) inputs: Vec<(String, TensorType)>,
    pub(crate) steps: Vec<Instruction>,
    pub(crate) outputs: Vec<(String, Operand, OperandSource)>,
    pub(crate) arena_bytes: usize,
}

/// How long one step of a run took.
#[derive(Clone, Debug)]
pub struct StepTime {
    /// Name of the op, or "copy".
    pub op: &'static str,
    /// The node of the optimised graph.
    pub node: NodeId,
    /// Wall time.
    pub time: Duration,
}

impl Program for CpuProgram {
    fn run(&self, inputs: &[(&str, &Tensor)]) -> Result<Vec<Named>, RunError> {
        self.run_observed(inputs, &mut |_, _| {})
    }

    fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }
}

impl CpuProgram {
    /// Runs and also tells how long each step took.
    pub fn run_timed(
        &self,
        inputs: &[(&str, &Tensor)],
    ) -> Result<(Vec<Named>, Vec<StepTime>), RunError> {
        let mut times = Vec::with_capacity(self.steps.len());
        let outputs = self.run_observed(inputs, &mut |step, time| {
            times.push(StepTime { op: step.name, node: step.node, time });
        })?;
        Ok((outputs, times))
    }

    fn run_observed(
        &self,
        inputs: &[(&str, &Tensor)],
        observe: &mut dyn FnMut(&Instruction, Duration),
    ) -> Result<Vec<Named>, RunError> {
        let inputs: Vec<Tensor> = check_inputs(&self.inputs, inputs)?
            .into_iter()
            .map(Tensor::to_contiguous)
            .collect::<Result<_, _>>()?;
        let mut arena = self.machine.take_arena(self.arena_bytes)?;
        let result = self.run_steps(&inputs, &mut arena, observe);
        self.machine.return_arena(arena);
        result
    }

    fn run_steps(
        &self,
        inputs: &[Tensor],
        arena: &mut AlignedBuffer<u8>,
        observe: &mut dyn FnMut(&Instruction, Duration),
    ) -> Result<Vec<Named>, RunError> {
        let mut memory = Vec::new();
        for step in &self.steps {
            let start = Instant::now();
            step.run(&self.machine, inputs, arena, &mut memory)?;
            observe(step, start.elapsed());
        }
        self.outputs
            .iter()
            .map(|(name, operand, source)| {
                let bytes = match source {
                    OperandSource::Input(index) => tensor_bytes(&inputs[*index]),
                    OperandSource::Static(tensor) => tensor_bytes(tensor),
                    OperandSource::Arena(offset) => &arena[*offset..],
                    OperandSource::Absorbed => panic!("outputs are never packed"),
                };
                Ok((name.clone(), copied_tensor(operand, bytes, &self.machine.pool)?))
            })
            .collect()
    }
}

impl Instruction {
    fn run(
        &self,
        machine: &Machine,
        inputs: &[Tensor],
        arena: &mut AlignedBuffer<u8>,
        memory: &mut Vec<Memory>,
    ) -> Result<(), RunError> {
        // All pointers into the arena come from this one, so that handing out the output does not invalidate the inputs.
        let base = arena.as_mut_ptr();
        let length = arena.len();
        assert!(self.output.end <= length, "the plan keeps every buffer inside the arena");
        memory.clear();
        for (operand, source) in self.operands.iter().zip(&self.sources) {
            let skipped = operand.layout.offset * operand.ty.dtype.size();
            let (start, available) = match source {
                OperandSource::Input(index) => whole(&inputs[*index]),
                OperandSource::Static(tensor) => whole(tensor),
                OperandSource::Arena(offset) => {
                    assert!(*offset <= length, "the plan keeps every buffer inside the arena");
                    (base.wrapping_add(*offset).cast_const(), length - offset)
                }
                OperandSource::Absorbed => {
                    (std::ptr::NonNull::<u64>::dangling().as_ptr().cast_const().cast(), 0)
                }
            };
            let bytes = reach(operand);
            let absorbed = matches!(source, OperandSource::Absorbed);
            assert!(absorbed || skipped + bytes <= available, "a layout stays inside its memory");
            let bytes = if absorbed { 0 } else { bytes };
            memory.push(Memory {
                pointer: start.wrapping_add(if absorbed { 0 } else { skipped }),
                bytes,
            });
        }
        // SAFETY: inputs, weights and the arena live longer than this call, lengths were checked above, and the plan keeps
        // buffers that are alive at the same step apart, except the one that this step overwrites.
        let inputs = unsafe { Inputs::new(&self.operands, memory, self.in_place) };
        let start = base.wrapping_add(self.output.start);
        // SAFETY: inside the arena as checked above, exclusively borrowed here, and apart from all inputs but the
        // overwritten one, which kernels read only through the output itself.
        let output = unsafe { std::slice::from_raw_parts_mut(start, self.output.len()) };
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
    use cutout_graph::{Builder, Profile, Weights};
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
            let compile =
                || cpu.compile_program(&graph, &Weights::default(), &Profile::default()).unwrap();
            let (program, mut greedy) = (compile(), compile());
            greedy.steps[0].kernel = Box::new(Greedy);
            let x = Tensor::from_vec([4], vec![1f32; 4]).unwrap();
            let error = greedy.run(&[("x", &x)]).unwrap_err();
            let name = program.steps[0].name;
            assert_eq!(error, RunError::Scratch { op: name, bytes: 1 << 60 });
            let words = format!("{name}: {} bytes of scratch memory", 1u64 << 60);
            assert!(error.to_string().contains(&words), "{error}");
            // The threads and the arena are as good as before.
            assert!(program.run(&[("x", &x)]).is_ok());
        }
    }
}
