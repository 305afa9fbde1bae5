//! What a kernel sees when it runs: the memory of its operands, the threads, the instruction set.

use bytemuck::Pod;
use cutout_graph::plan::Operand;
use cutout_graph::{Layout, RunError};

use crate::pool::Pool;
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

/// A slice whose disjoint parts are written by several threads.
pub(crate) struct SharedSlice<T> {
    pointer: *mut T,
    length: usize,
}

// SAFETY: parts are handed out by an `unsafe` function whose callers keep them disjoint; elements are `Send`.
unsafe impl<T: Send> Sync for SharedSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for SharedSlice<T> {}

impl<T> SharedSlice<T> {
    pub(crate) fn new(slice: &mut [T]) -> Self {
        SharedSlice { pointer: slice.as_mut_ptr(), length: slice.len() }
    }

    /// The elements `start..start + length`.
    ///
    /// # Safety
    ///
    /// The slice this was made from is still borrowed, and no other part that overlaps this one is alive.
    #[expect(clippy::mut_from_ref, reason = "callers keep the parts disjoint")]
    pub(crate) unsafe fn part(&self, start: usize, length: usize) -> &mut [T] {
        assert!(start <= self.length && length <= self.length - start, "a part lies inside");
        // SAFETY: inside the slice as just checked.
        let first = unsafe { self.pointer.add(start) };
        // SAFETY: inside the slice, and unique by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(first, length) }
    }
}

/// Calls `body` for each chunk of `chunk` elements of `slice` (the last may be shorter), in parallel.
pub(crate) fn for_chunks<T: Send>(
    pool: &Pool,
    slice: &mut [T],
    chunk: usize,
    body: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    let length = slice.len();
    let chunk = chunk.max(1);
    let shared = SharedSlice::new(slice);
    pool.run(length.div_ceil(chunk), &|task| {
        let start = task * chunk;
        // SAFETY: tasks have different numbers, so their chunks are disjoint, and `slice` is borrowed until all are done.
        let part = unsafe { shared.part(start, chunk.min(length - start)) };
        body(task, part);
    });
}
