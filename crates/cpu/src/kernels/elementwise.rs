//! Chains of elementwise functions, one block of elements at a time.
//!
//! The output is computed in blocks that fit the L1 cache. Each step of the chain is a loop over the block; intermediate values
//! stay in the cache.

mod functions;

use cutout_graph::ops::{BinaryKind, Operand, Step, UnaryKind};
use cutout_graph::{Layout, RunError};
use cutout_parallel::SharedSlice;
use cutout_tensor::Shape;

use self::functions::{Argument, binary, unary};
use super::axes::{Axes, Reader};
use super::rows::{is_overwritten, stream};
use crate::execute::{Execute, Io};
use crate::simd::{Kernel, Simd, dispatch, prefers_streaming};

/// Elements of a block: the intermediate values of sixteen steps take 16 KiB.
const BLOCK: usize = 256;

/// Elements a task computes: a few pages of output, so that small tensors stay on one thread.
const TASK: usize = 1 << 14;

/// Rows of at least this length are split into blocks of their own; blocks span several shorter rows.
const LONG_ROW: usize = 64;

/// An elementwise chain over inputs of fixed layouts.
pub(crate) struct Chain {
    steps: Vec<Step>,
    axes: Axes,
    inputs: usize,
}

impl Chain {
    /// A chain whose inputs broadcast to `output`.
    pub(crate) fn new(steps: &[Step], inputs: &[&Layout], output: &Shape) -> Self {
        Chain { steps: steps.to_vec(), axes: Axes::new(inputs, output), inputs: inputs.len() }
    }

    /// The chain of one unary function.
    pub(crate) fn unary(kind: UnaryKind, input: &Layout, output: &Shape) -> Self {
        Chain::new(&[Step::Unary(kind, Operand::Input(0))], &[input], output)
    }

    /// The chain of one binary function.
    pub(crate) fn binary(kind: BinaryKind, inputs: &[&Layout], output: &Shape) -> Self {
        Chain::new(&[Step::Binary(kind, Operand::Input(0), Operand::Input(1))], inputs, output)
    }

    /// Whether blocks span several rows.
    fn crosses_rows(&self) -> bool {
        self.axes.row_length() < LONG_ROW
    }

    /// Floats of scratch memory: a block for each step, and a buffer to expand each input.
    fn scratch(&self) -> usize {
        self.steps.len() * BLOCK + self.inputs * SPREAD
    }

    /// How a task that starts at `position` reads an input; `None` is the input that the output overwrites.
    fn access<'a>(
        &'a self,
        input: usize,
        source: Option<&'a [f32]>,
        position: usize,
        room: &mut [f32],
    ) -> Access<'a> {
        let Some(source) = source else { return Access::Output };
        let period = self.axes.row_length();
        if self.axes.is_constant(input) {
            Access::Number(source[0])
        } else if self.axes.is_flat(input) {
            Access::Flat(source)
        } else if self.crosses_rows() && self.axes.repeats_rows(input) {
            let stride = self.axes.row_stride(input);
            for (i, element) in room.iter_mut().enumerate() {
                *element = source[i % period * stride];
            }
            Access::Cycle { period }
        } else {
            Access::Walk { source, reader: Reader::new(&self.axes, input, position) }
        }
    }
}

/// Length of the buffer that an input is expanded into: one block, or one block from any position of a short row.
const SPREAD: usize = BLOCK + LONG_ROW;

impl Execute for Chain {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let isa = io.isa;
        let output = io.output.f32();
        let count = output.len();
        if count == 0 {
            return Ok(());
        }
        let first = output.as_ptr();
        let mut streaming = prefers_streaming(count);
        let mut sources: Vec<Option<&[f32]>> = Vec::with_capacity(self.inputs);
        for input in 0..self.inputs {
            assert!(self.axes.reach(input) <= io.inputs.reach(input), "inputs are read inside");
            if is_overwritten(&io.inputs, input, first) {
                assert!(self.axes.is_flat(input), "only an input laid out as the output is lost");
                streaming = false;
                sources.push(None);
            } else {
                sources.push(Some(io.inputs.f32(input)));
            }
        }
        let shared = SharedSlice::new(output);
        io.pool.run_with_scratch(count.div_ceil(TASK), self.scratch(), &|task, scratch| {
            let start = task * TASK;
            // SAFETY: tasks write disjoint ranges of the output.
            let output = unsafe { shared.part(start, TASK.min(count - start)) };
            let sources = &sources;
            dispatch(isa, ChainTask { chain: self, sources, start, output, scratch, streaming });
        });
        Ok(())
    }
}

/// How a task reads an input.
enum Access<'a> {
    /// The memory of the output, before it is written.
    Output,
    /// Contiguous in the order of the output.
    Flat(&'a [f32]),
    /// One element for all.
    Number(f32),
    /// A short row, repeated over more than a block.
    Cycle { period: usize },
    /// Row by row.
    Walk { source: &'a [f32], reader: Reader<'a> },
}

impl Access<'_> {
    /// The elements for the block of `length` elements at `position`, which will be written to `target`.
    #[inline(always)]
    fn argument(
        &mut self,
        position: usize,
        length: usize,
        target: *const f32,
        room: &mut [f32],
    ) -> Argument {
        match self {
            Access::Output => Argument::Pointer(target),
            Access::Flat(source) => Argument::Pointer(source[position..position + length].as_ptr()),
            Access::Number(number) => Argument::Number(*number),
            Access::Cycle { period } => Argument::Pointer(room[position % *period..].as_ptr()),
            Access::Walk { source, reader } if reader.repeats(length) => {
                let number = source[reader.here()];
                reader.advance(length);
                Argument::Number(number)
            }
            Access::Walk { source, reader } => {
                Argument::Pointer(reader.next(source, length, room).as_ptr())
            }
        }
    }
}

/// The elements of one task.
struct ChainTask<'a> {
    chain: &'a Chain,
    sources: &'a [Option<&'a [f32]>],
    /// Position of the first element in the output.
    start: usize,
    output: &'a mut [f32],
    scratch: &'a mut [f32],
    streaming: bool,
}

impl Kernel for ChainTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let chain = self.chain;
        let (values, rooms) = self.scratch.split_at_mut(chain.steps.len() * BLOCK);
        let mut accesses: Vec<Access<'_>> = Vec::with_capacity(self.sources.len());
        for (input, room) in rooms.chunks_exact_mut(SPREAD).enumerate() {
            accesses.push(chain.access(input, self.sources[input], self.start, room));
        }
        let mut arguments: Vec<Argument> = vec![Argument::Number(0.0); accesses.len()];
        let row_length = if chain.crosses_rows() { usize::MAX } else { chain.axes.row_length() };
        let mut done = 0;
        while done < self.output.len() {
            let position = self.start + done;
            let length =
                BLOCK.min(row_length - position % row_length).min(self.output.len() - done);
            let part = &mut self.output[done..done + length];
            let target = part.as_mut_ptr();
            for (input, room) in rooms.chunks_exact_mut(SPREAD).enumerate() {
                arguments[input] =
                    accesses[input].argument(position, length, target.cast_const(), room);
            }
            let last = (chain.steps.len() - 1) * BLOCK;
            let block = values.as_mut_ptr();
            let result = if self.streaming { block.wrapping_add(last) } else { target };
            // SAFETY: arguments reach `length` elements, `values` holds a block for each step, and the result is one of
            // them or the output, which only `Access::Output` also reads.
            unsafe { run_block(simd, &chain.steps, &arguments, block, (result, length)) };
            if self.streaming {
                stream(simd, &values[last..last + length], part);
            }
            done += length;
        }
        simd.fence();
    }
}

/// Evaluates all steps on one block; the last writes `output`, an address and a number of elements.
///
/// # Safety
///
/// Inputs are readable for that number of elements, `values` is writable for a block per step and apart from the
/// inputs, and the output is writable; it is an input, the last block of `values`, or apart from both.
#[inline(always)]
unsafe fn run_block<S: Simd>(
    simd: S,
    steps: &[Step],
    inputs: &[Argument],
    values: *mut f32,
    (output, length): (*mut f32, usize),
) {
    for (number, step) in steps.iter().enumerate() {
        let target =
            if number + 1 == steps.len() { output } else { values.wrapping_add(number * BLOCK) };
        let argument = |operand: &Operand| match *operand {
            Operand::Input(i) => inputs[i],
            Operand::Step(i) => Argument::Pointer(values.wrapping_add(i * BLOCK).cast_const()),
            Operand::Number(number) => Argument::Number(number),
        };
        match step {
            // SAFETY: by this function's contract. Where an input is the output itself, each vector is read before it is
            // written.
            Step::Unary(kind, x) => unsafe { unary(simd, *kind, argument(x), target, length) },
            Step::Binary(kind, a, b) => {
                let arguments = [argument(a), argument(b)];
                // SAFETY: as above.
                unsafe { binary(simd, *kind, arguments, target, length) }
            }
        }
    }
}
