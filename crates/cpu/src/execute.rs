//! What a kernel sees when it runs: the memory of its operands, the threads, the instruction set.

use bytemuck::Pod;
use cutout_graph::plan::Operand;
use cutout_graph::{Layout, RunError};
use cutout_parallel::Pool;

use crate::simd::Isa;

/// A compiled op: everything that does not change between runs is inside.
pub(crate) trait Execute: Send + Sync {
    /// Reads the inputs and writes every element of the output.
    fn run(&self, io: Io<'_>) -> Result<(), RunError>;
}

/// One step's operands and the machine.
pub(crate) struct Io<'a> {
    /// The inputs, in the op's order.
    pub(crate) inputs: Inputs<'a>,
    /// The output.
    pub(crate) output: Output<'a>,
    /// The threads.
    pub(crate) pool: &'a Pool,
    /// The instruction set to use.
    pub(crate) isa: Isa,
}

/// Memory of one input, from its first element on.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) pointer: *const u8,
    pub(crate) bytes: usize,
}

/// The inputs of a step.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    operands: &'a [Operand],
    memory: &'a [Memory],
    in_place: Option<usize>,
}

impl<'a> Inputs<'a> {
    /// # Safety
    ///
    /// Each memory is valid for reads of its length during `'a`, aligned for its operand's elements, and overlaps no
    /// output except at `in_place`.
    pub(crate) unsafe fn new(
        operands: &'a [Operand],
        memory: &'a [Memory],
        in_place: Option<usize>,
    ) -> Self {
        assert_eq!(operands.len(), memory.len(), "every operand has its memory");
        Inputs { operands, memory, in_place }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.operands.len()
    }

    /// Whether the result overwrites input `index`.
    pub(crate) fn is_in_place(&self, index: usize) -> bool {
        self.in_place == Some(index)
    }

    /// Where the elements of input `index` lie, counted from [`Inputs::slice`]'s first.
    pub(crate) fn layout(&self, index: usize) -> &'a Layout {
        &self.operands[index].layout
    }

    /// The elements of input `index`: all that its layout can reach, starting at its first element.
    ///
    /// Panics if the result overwrites this input: such kernels use [`Inputs::pointer`].
    pub(crate) fn slice<T: Pod>(&self, index: usize) -> &'a [T] {
        assert!(self.in_place != Some(index), "an overwritten input is read by pointer");
        let memory = self.memory[index];
        assert_eq!(
            size_of::<T>(),
            self.operands[index].ty.dtype.size(),
            "kernels know their types"
        );
        let length = memory.bytes / size_of::<T>();
        assert!(memory.pointer.cast::<T>().is_aligned(), "operands are aligned for their type");
        // SAFETY: valid and unchanged for `'a` by the contract of `new` (this input is not overwritten); aligned and
        // sized as just checked; `Pod` allows any bits.
        unsafe { std::slice::from_raw_parts(memory.pointer.cast(), length) }
    }

    /// The bytes of input `index`; see [`Inputs::slice`].
    pub(crate) fn bytes(&self, index: usize) -> &'a [u8] {
        assert!(self.in_place != Some(index), "an overwritten input is read by pointer");
        let memory = self.memory[index];
        // SAFETY: valid and unchanged for `'a` by the contract of `new` (this input is not overwritten).
        unsafe { std::slice::from_raw_parts(memory.pointer, memory.bytes) }
    }

    /// The `f32` elements of input `index`; see [`Inputs::slice`].
    pub(crate) fn f32(&self, index: usize) -> &'a [f32] {
        self.slice(index)
    }

    /// First element of an `f32` input that the result may overwrite: then it is `output`, which the kernel must have
    /// taken from its own output.
    pub(crate) fn pointer(&self, index: usize, output: *const f32) -> *const f32 {
        if self.in_place == Some(index) { output } else { self.memory[index].pointer.cast() }
    }

    /// Elements that input `index`'s layout can reach.
    pub(crate) fn reach(&self, index: usize) -> usize {
        self.memory[index].bytes / self.operands[index].ty.dtype.size()
    }
}

/// The output of a step: contiguous memory that nothing else refers to, except the overwritten input.
pub(crate) struct Output<'a> {
    bytes: &'a mut [u8],
}

impl<'a> Output<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Output { bytes }
    }

    /// The elements, to be written.
    pub(crate) fn slice<T: Pod>(self) -> &'a mut [T] {
        bytemuck::cast_slice_mut(self.bytes)
    }

    /// The `f32` elements, to be written.
    pub(crate) fn f32(self) -> &'a mut [f32] {
        self.slice()
    }
}
