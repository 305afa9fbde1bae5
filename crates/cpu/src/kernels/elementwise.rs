//! Chains of elementwise functions, one block of elements at a time.
//!
//! The output is walked in blocks that fit the first-level cache; each step of the chain is one tight loop over the
//! block, and only the inputs and the output touch memory.

mod functions;

use cutout_graph::ops::{BinaryKind, Operand, Step, UnaryKind};
use cutout_graph::{Layout, RunError};
use cutout_tensor::{Shape, contiguous_strides};

use self::functions::{Argument, binary, unary};
use crate::execute::{Execute, Inputs, Io, SharedSlice};
use crate::simd::{Kernel, Simd, dispatch};

/// Elements of a block: with sixteen steps, the values in between take 16 KiB.
const BLOCK: usize = 256;

/// Elements a task computes: a few pages of output, so that small tensors stay on one thread.
const TASK: usize = 1 << 14;

/// Steps whose results fit the memory for values in between.
const MOST_STEPS: usize = 16;

/// An elementwise chain over inputs of fixed layouts.
pub(crate) struct Chain {
    steps: Vec<Step>,
    axes: Axes,
}

/// The output's axes, merged as far as all inputs allow, and how each input walks them.
struct Axes {
    /// Lengths, outermost first; the last is the row that blocks are cut from.
    lengths: Vec<usize>,
    /// For each input, its stride along each axis.
    strides: Vec<Vec<usize>>,
}

impl Chain {
    /// A chain whose inputs broadcast to `output`. Along the last axis every input is dense or repeats one element.
    pub(crate) fn new(steps: &[Step], inputs: &[&Layout], output: &Shape) -> Self {
        assert!(steps.len() <= MOST_STEPS, "passes keep chains short");
        Chain { steps: steps.to_vec(), axes: Axes::new(inputs, output) }
    }

    /// The chain of one unary function.
    pub(crate) fn unary(kind: UnaryKind, input: &Layout, output: &Shape) -> Self {
        Chain::new(&[Step::Unary(kind, Operand::Input(0))], &[input], output)
    }

    /// The chain of one binary function.
    pub(crate) fn binary(kind: BinaryKind, inputs: &[&Layout], output: &Shape) -> Self {
        Chain::new(&[Step::Binary(kind, Operand::Input(0), Operand::Input(1))], inputs, output)
    }
}

impl Axes {
    fn new(inputs: &[&Layout], output: &Shape) -> Self {
        let spread = |layout: &&Layout| -> Vec<usize> {
            let missing = output.rank() - layout.shape.rank();
            let stride = |axis: usize| match axis.checked_sub(missing) {
                Some(own) if layout.shape[own] == output[axis] => layout.strides[own],
                Some(_) | None => 0,
            };
            (0..output.rank()).map(stride).collect()
        };
        let every: Vec<Vec<usize>> = inputs.iter().map(spread).collect();
        let mut axes = Axes { lengths: Vec::new(), strides: vec![Vec::new(); inputs.len()] };
        for axis in (0..output.rank()).rev().filter(|&axis| output[axis] != 1) {
            axes.prepend(output[axis], &every, axis);
        }
        if axes.lengths.is_empty() {
            axes.lengths.push(1);
            axes.strides.iter_mut().for_each(|strides| strides.push(0));
        }
        let mut inner = axes.strides.iter().map(|strides| strides[0]);
        assert!(
            inner.all(|stride| stride <= 1),
            "the memory plan copies inputs that cannot be walked"
        );
        axes.lengths.reverse();
        axes.strides.iter_mut().for_each(|strides| strides.reverse());
        axes
    }

    /// Adds the next outer axis, or merges it with the one inside where every input continues evenly.
    fn prepend(&mut self, length: usize, every: &[Vec<usize>], axis: usize) {
        let even = self.lengths.last().is_some_and(|inner| {
            let mut pairs = self.strides.iter().zip(every);
            pairs.all(|(strides, own)| {
                Some(&own[axis]) == strides.last().map(|s| s * inner).as_ref()
            })
        });
        match self.lengths.last_mut() {
            Some(inner) if even => *inner *= length,
            Some(_) | None => {
                self.lengths.push(length);
                for (strides, own) in self.strides.iter_mut().zip(every) {
                    strides.push(own[axis]);
                }
            }
        }
    }

    fn row_length(&self) -> usize {
        *self.lengths.last().expect("there is always a row")
    }

    /// Where input `input` reads its first element of row `row`.
    fn row_start(&self, input: usize, row: usize) -> usize {
        let outer = &self.lengths[..self.lengths.len() - 1];
        let steps = contiguous_strides(outer);
        let indices = outer.iter().zip(&steps).map(|(length, step)| row / step % length);
        indices.zip(&self.strides[input]).map(|(index, stride)| index * stride).sum()
    }
}

impl Execute for Chain {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let (inputs, isa) = (io.inputs, io.isa);
        let output = io.output.f32();
        let count = output.len();
        let first = output.as_mut_ptr();
        let pointers: Vec<SourcePointer> =
            (0..inputs.len()).map(|i| self.source(&inputs, i, first, count)).collect();
        let shared = SharedSlice::new(output);
        io.pool.run(count.div_ceil(TASK), &|task| {
            let start = task * TASK;
            let length = TASK.min(count - start);
            // SAFETY: tasks write disjoint ranges of the output.
            let part = unsafe { shared.part(start, length) };
            dispatch(isa, ChainTask { chain: self, sources: &pointers, start, output: part });
        });
        Ok(())
    }
}

impl Chain {
    fn source(
        &self,
        inputs: &Inputs<'_>,
        index: usize,
        output: *mut f32,
        count: usize,
    ) -> SourcePointer {
        let pointer = inputs.pointer(index, output);
        let walked: usize = self
            .axes
            .lengths
            .iter()
            .zip(&self.axes.strides[index])
            .map(|(length, stride)| length.saturating_sub(1) * stride)
            .sum();
        assert!(count == 0 || walked < inputs.reach(index), "a chain stays inside its inputs");
        SourcePointer(pointer)
    }
}

/// First element of an input, readable from every thread.
struct SourcePointer(*const f32);
// SAFETY: inputs are only read; the one that the output overwrites is read by each task only where that task writes.
unsafe impl Sync for SourcePointer {}

/// The part of the output that one thread computes.
struct ChainTask<'a> {
    chain: &'a Chain,
    sources: &'a [SourcePointer],
    /// Position of the part in the whole output.
    start: usize,
    output: &'a mut [f32],
}

impl Kernel for ChainTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let row_length = self.chain.axes.row_length();
        let mut values = [0f32; MOST_STEPS * BLOCK];
        let mut arguments: Vec<Argument> = vec![Argument::Number(0.0); self.sources.len()];
        let mut starts: Vec<usize> = vec![0; self.sources.len()];
        let mut done = 0;
        let mut current_row = usize::MAX;
        while done < self.output.len() {
            let position = self.start + done;
            let (row, column) = (position / row_length, position % row_length);
            if row != current_row {
                current_row = row;
                for (input, start) in starts.iter_mut().enumerate() {
                    *start = self.chain.axes.row_start(input, row);
                }
            }
            let length = BLOCK.min(row_length - column).min(self.output.len() - done);
            for (input, argument) in arguments.iter_mut().enumerate() {
                let repeats = self.chain.axes.strides[input].last() == Some(&0);
                let offset = starts[input] + if repeats { 0 } else { column };
                let pointer = self.sources[input].0.wrapping_add(offset);
                *argument = if repeats {
                    // SAFETY: the layout's reach was checked against the memory before the tasks started.
                    Argument::Number(unsafe { pointer.read() })
                } else {
                    Argument::Pointer(pointer)
                };
            }
            let target = &mut self.output[done..done + length];
            run_block(simd, &self.chain.steps, &arguments, &mut values, target);
            done += length;
        }
    }
}

/// Evaluates all steps on one block; the last writes the output.
#[inline(always)]
fn run_block<S: Simd>(
    simd: S,
    steps: &[Step],
    inputs: &[Argument],
    values: &mut [f32; MOST_STEPS * BLOCK],
    output: &mut [f32],
) {
    let base = values.as_mut_ptr();
    for (number, step) in steps.iter().enumerate() {
        let target = if number + 1 == steps.len() {
            output.as_mut_ptr()
        } else {
            base.wrapping_add(number * BLOCK)
        };
        let argument = |operand: &Operand| match *operand {
            Operand::Input(i) => inputs[i],
            Operand::Step(i) => Argument::Pointer(base.wrapping_add(i * BLOCK).cast_const()),
            Operand::Number(number) => Argument::Number(number),
        };
        let length = output.len();
        match step {
            // SAFETY: inputs reach `length` elements (checked before the tasks started), values in between have a whole
            // block each, and the target is the output or a block of its own. Where an input is the output itself,
            // each vector is read before it is written.
            Step::Unary(kind, x) => unsafe { unary(simd, *kind, argument(x), target, length) },
            Step::Binary(kind, a, b) => {
                let arguments = [argument(a), argument(b)];
                // SAFETY: as above.
                unsafe { binary(simd, *kind, arguments, target, length) }
            }
        }
    }
}
