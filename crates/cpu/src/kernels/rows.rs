//! Kernels that process one row at a time: the layout of the rows, their distribution over tasks, and the trait of a row kernel.

use cutout_graph::Layout;
use cutout_tensor::Shape;

use super::axes::Axes;
use crate::execute::{Inputs, Io};
use crate::simd::{Kernel, Simd, dispatch, prefers_streaming};

/// Elements of a task, at least one row: a few pages, so that small tensors stay on one thread.
const TASK: usize = 1 << 14;

/// Whether the output, which starts at `output` and is not empty, overwrites this input.
pub(crate) fn is_overwritten(inputs: &Inputs<'_>, index: usize, output: *const f32) -> bool {
    inputs.pointer(index, output) == output
}

/// Copies with non-temporal stores if the target is aligned. Call [`Simd::fence`] afterwards.
#[inline(always)]
pub(crate) fn stream<S: Simd>(simd: S, source: &[f32], target: &mut [f32]) {
    assert_eq!(source.len(), target.len(), "a copy has the length of its source");
    if !target.as_ptr().addr().is_multiple_of(4 * S::LANES) {
        return target.copy_from_slice(source);
    }
    let mut sources = source.chunks_exact(S::LANES);
    let mut targets = target.chunks_exact_mut(S::LANES);
    for (from, to) in sources.by_ref().zip(targets.by_ref()) {
        // SAFETY: a chunk has `LANES` elements, and all chunks are aligned because the first one is.
        unsafe { simd.store_streaming(simd.load(from), to.as_mut_ptr()) };
    }
    targets.into_remainder().copy_from_slice(sources.remainder());
}

/// Computation on each row: the row is read, then the result is written, possibly over it.
pub(crate) trait RowKernel: Sync {
    /// State between the two, beside the scratch memory.
    type State;

    /// Floats of scratch memory for one row.
    fn scratch(&self) -> usize;

    /// Reads a row. Implementations are `#[inline(always)]`.
    fn read<S: Simd>(&self, simd: S, source: RowIn<'_>, scratch: &mut [f32]) -> Self::State;

    /// Writes the result of the row that was read last. Implementations are `#[inline(always)]`.
    fn write<S: Simd>(&self, simd: S, state: Self::State, scratch: &mut [f32], out: RowOut<'_>);
}

/// A row to be read.
pub(crate) struct RowIn<'a> {
    /// Its elements.
    pub(crate) values: &'a [f32],
    /// Address of the next row of the task, to prefetch.
    next: *const f32,
}

impl RowIn<'_> {
    /// Prefetches `LANES` elements of the next row.
    #[inline(always)]
    pub(crate) fn prefetch_next<S: Simd>(&self, simd: S, position: usize) {
        simd.prefetch(self.next.wrapping_add(position));
    }
}

/// The destination of a row's result.
pub(crate) struct RowOut<'a> {
    /// Number of the row.
    pub(crate) row: usize,
    /// Its elements.
    pub(crate) target: &'a mut [f32],
    /// Whether to use non-temporal stores, which must be aligned to a vector.
    pub(crate) streaming: bool,
}

impl RowOut<'_> {
    /// Writes the vector that starts at `position`.
    #[inline(always)]
    pub(crate) fn put<S: Simd>(&mut self, simd: S, value: S::F, position: usize) {
        let part = &mut self.target[position..];
        if part.len() < S::LANES {
            simd.store_partial(value, part);
        } else if self.streaming {
            // SAFETY: `LANES` elements are left, and `RowTask` allows streaming only to aligned rows.
            unsafe { simd.store_streaming(value, part.as_mut_ptr()) };
        } else {
            simd.store(value, part);
        }
    }
}

/// The rows of an input with a contiguous last axis.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) count: usize,
    pub(crate) width: usize,
    /// Offset of each row.
    starts: Axes,
}

impl Rows {
    /// The rows of a layout whose last axis is contiguous; a scalar is one row of one element.
    pub(crate) fn new(layout: &Layout) -> Self {
        let outer = layout.shape.rank().saturating_sub(1);
        let starts = Layout {
            shape: Shape::new(&layout.shape[..outer]),
            strides: layout.strides[..outer].to_vec(),
            offset: 0,
        };
        let width = if layout.shape.rank() == 0 { 1 } else { layout.shape.last_axis() };
        let count = starts.shape.elements();
        Rows { count, width, starts: Axes::new(&[&starts], &starts.shape) }
    }

    /// Extent of all rows, in elements.
    fn reach(&self) -> usize {
        match self.starts.reach(0) {
            0 => 0,
            last_start => last_start - 1 + self.width,
        }
    }

    /// Reads and writes every row, in parallel; the first input is the source, and may be overwritten.
    pub(crate) fn run<K: RowKernel>(&self, kernel: &K, io: Io<'_>) {
        let (isa, inputs) = (io.isa, io.inputs);
        let output = io.output.f32();
        assert_eq!(output.len(), self.count * self.width, "the output has the same rows");
        if output.is_empty() {
            return;
        }
        assert!(self.reach() <= inputs.reach(0), "rows lie inside the input");
        let streaming =
            prefers_streaming(output.len()) && !is_overwritten(&inputs, 0, output.as_ptr());
        let target = output.as_mut_ptr();
        let memory = RowMemory { source: inputs.pointer(0, target), target };
        let per_task = (TASK / self.width).max(1);
        let tasks = self.count.div_ceil(per_task);
        io.pool.run_with_scratch(tasks, kernel.scratch(), &|task, scratch| {
            let first = task * per_task;
            let rows = first..(first + per_task).min(self.count);
            let memory = &memory;
            dispatch(isa, RowTask { kernel, all: self, memory, rows, scratch, streaming });
        });
    }
}

/// The memory that all tasks share.
struct RowMemory {
    source: *const f32,
    target: *mut f32,
}

// SAFETY: each task writes its own rows of the target; the source is only read, and where it is the target, only the
// task that overwrites a row reads it.
unsafe impl Sync for RowMemory {}

/// The rows of one task.
struct RowTask<'a, K> {
    kernel: &'a K,
    all: &'a Rows,
    memory: &'a RowMemory,
    rows: std::ops::Range<usize>,
    scratch: &'a mut [f32],
    streaming: bool,
}

impl<K: RowKernel> Kernel for RowTask<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let RowTask { kernel, all, memory, rows, scratch, streaming } = self;
        for row in rows {
            let source = memory.source.wrapping_add(all.starts.offset(0, row));
            // SAFETY: `Rows::run` checked that rows lie inside the input, and no other task writes this row.
            let values = unsafe { std::slice::from_raw_parts(source, all.width) };
            let next = memory.source.wrapping_add(all.starts.offset(0, row + 1));
            let state = kernel.read(simd, RowIn { values, next }, scratch);
            let target = memory.target.wrapping_add(row * all.width);
            // SAFETY: `Rows::run` checked the length of the output; this row belongs to this task, and `source`, which may
            // be the same memory, is not used any more.
            let target = unsafe { std::slice::from_raw_parts_mut(target, all.width) };
            let streaming = streaming && target.as_ptr().addr().is_multiple_of(4 * S::LANES);
            kernel.write(simd, state, scratch, RowOut { row, target, streaming });
        }
        simd.fence();
    }
}

/// Copies a row to scratch memory and pads it to whole vectors.
#[inline(always)]
pub(crate) fn fill_scratch(source: &[f32], filler: f32, scratch: &mut [f32]) {
    let (row, rest) = scratch.split_at_mut(source.len());
    row.copy_from_slice(source);
    rest.fill(filler);
}

/// The elements, padded with zeros to whole vectors of any instruction set.
pub(crate) fn padded_copy(values: &[f32]) -> Vec<f32> {
    let mut copy = vec![0.0; padded(values.len())];
    copy[..values.len()].copy_from_slice(values);
    copy
}

/// `width` rounded up to whole vectors of any instruction set.
pub(crate) fn padded(width: usize) -> usize {
    width.next_multiple_of(64)
}
