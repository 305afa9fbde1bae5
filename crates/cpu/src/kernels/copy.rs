//! Moves elements between layouts: contiguous copies of views, concatenation, and the results of a run.

use cutout_graph::plan::Operand;
use cutout_graph::{Layout, RunError};
use cutout_parallel::{Pool, SharedSlice};
use cutout_tensor::{Tensor, contiguous_strides};

use crate::execute::{Execute, Io};

/// Least number of elements of a task, so that small copies stay on one thread.
const TASK_ELEMENTS: usize = 1 << 15;

/// Copies a strided view into contiguous memory.
pub(crate) struct Copy {
    pub(crate) element_bytes: usize,
}

impl Execute for Copy {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let layout = io.inputs.layout(0);
        match self.element_bytes {
            1 => copy(io.inputs.slice::<u8>(0), layout, io.output.slice::<u8>(), io.pool),
            2 => copy(io.inputs.slice::<u16>(0), layout, io.output.slice::<u16>(), io.pool),
            4 => copy(io.inputs.slice::<u32>(0), layout, io.output.slice::<u32>(), io.pool),
            _ => copy(io.inputs.slice::<u64>(0), layout, io.output.slice::<u64>(), io.pool),
        }
        Ok(())
    }
}

fn copy<T: Copied>(source: &[T], layout: &Layout, target: &mut [T], pool: &Pool) {
    let strides = contiguous_strides(&layout.shape);
    Movement::new(&layout.shape, &layout.strides, &strides).run(source, target, pool);
}

/// Elements that can be copied between threads.
pub(crate) trait Copied: std::marker::Copy + Send + Sync {}
impl<T: std::marker::Copy + Send + Sync> Copied for T {}

/// A copy from one strided layout to another, with as few axes as possible, outermost first.
#[derive(Debug)]
pub(crate) struct Movement {
    /// `(length, source stride, target stride)`, ordered by target stride.
    axes: Vec<(usize, usize, usize)>,
}

impl Movement {
    /// A copy of `shape` elements. Elements of the target must not overlap.
    pub(crate) fn new(shape: &[usize], source: &[usize], target: &[usize]) -> Self {
        let mut axes: Vec<(usize, usize, usize)> = (0..shape.len())
            .map(|i| (shape[i], source[i], target[i]))
            .filter(|&(length, ..)| length != 1)
            .collect();
        axes.sort_by_key(|&(_, _, target)| std::cmp::Reverse(target));
        let mut merged: Vec<(usize, usize, usize)> = Vec::new();
        for (length, source, target) in axes {
            match merged.last_mut() {
                Some(outer) if outer.1 == source * length && outer.2 == target * length => {
                    *outer = (outer.0 * length, source, target);
                }
                Some(_) | None => merged.push((length, source, target)),
            }
        }
        Movement { axes: merged }
    }

    /// Copies; `source` and `target` start at their first elements.
    pub(crate) fn run<T: Copied>(&self, source: &[T], target: &mut [T], pool: &Pool) {
        let count: usize = self.axes.iter().map(|axis| axis.0).product();
        if count == 0 {
            return;
        }
        let inner = self.inner_axes();
        let (outer, inner) = self.axes.split_at(self.axes.len() - inner);
        let blocks: usize = outer.iter().map(|axis| axis.0).product();
        let per_task = TASK_ELEMENTS.div_ceil(count / blocks).min(blocks);
        let target = SharedSlice::new(target);
        pool.run(blocks.div_ceil(per_task), &|task| {
            for block in task * per_task..((task + 1) * per_task).min(blocks) {
                let (from, to) = offsets(outer, block);
                // SAFETY: elements of the target do not overlap, so blocks are disjoint.
                let target = unsafe { target.part(to, extent(inner)) };
                copy_block(inner, &source[from..], target);
            }
        });
    }

    /// Number of innermost axes of a block: one row, or two axes that are transposed.
    fn inner_axes(&self) -> usize {
        match self.axes[..] {
            [.., (_, 1, 1)] => 1,
            [.., (_, 1, _), (_, _, 1)] => 2,
            _ => self.axes.len().min(1),
        }
    }
}

/// Extent of a block in the target, in elements.
fn extent(axes: &[(usize, usize, usize)]) -> usize {
    1 + axes.iter().map(|&(length, _, target)| (length - 1) * target).sum::<usize>()
}

/// Offsets of block `block` of the outer axes.
fn offsets(axes: &[(usize, usize, usize)], mut block: usize) -> (usize, usize) {
    let (mut from, mut to) = (0, 0);
    for &(length, source, target) in axes.iter().rev() {
        from += block % length * source;
        to += block % length * target;
        block /= length;
    }
    (from, to)
}

fn copy_block<T: Copied>(axes: &[(usize, usize, usize)], source: &[T], target: &mut [T]) {
    match *axes {
        [] => target[0] = source[0],
        [(length, 1, 1)] => target.copy_from_slice(&source[..length]),
        [(length, from, to)] => {
            for i in 0..length {
                target[i * to] = source[i * from];
            }
        }
        [(rows, 1, to), (columns, from, 1)] => {
            transpose(Transposed { rows, columns, from, to }, source, target);
        }
        _ => panic!("a block has at most two axes, and two are transposed"),
    }
}

/// `target[row * to + column] = source[column * from + row]`.
struct Transposed {
    rows: usize,
    columns: usize,
    from: usize,
    to: usize,
}

/// Works in squares whose source and target stay in the L1 cache.
fn transpose<T: Copied>(shape: Transposed, source: &[T], target: &mut [T]) {
    const SIDE: usize = 16;
    for first_row in (0..shape.rows).step_by(SIDE) {
        for first_column in (0..shape.columns).step_by(SIDE) {
            let last_column = (first_column + SIDE).min(shape.columns);
            for row in first_row..(first_row + SIDE).min(shape.rows) {
                let target =
                    &mut target[row * shape.to + first_column..row * shape.to + last_column];
                for (i, element) in target.iter_mut().enumerate() {
                    *element = source[(first_column + i) * shape.from + row];
                }
            }
        }
    }
}

/// Concatenates inputs along one axis.
pub(crate) struct Concat {
    pub(crate) axis: usize,
    pub(crate) output: Vec<usize>,
    pub(crate) element_bytes: usize,
}

impl Execute for Concat {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        match self.element_bytes {
            1 => self.join::<u8>(io),
            2 => self.join::<u16>(io),
            4 => self.join::<u32>(io),
            _ => self.join::<u64>(io),
        }
        Ok(())
    }
}

impl Concat {
    fn join<T: Copied + bytemuck::Pod>(&self, io: Io<'_>) {
        let strides = contiguous_strides(&self.output);
        let output = io.output.slice::<T>();
        let mut start = 0;
        for index in 0..io.inputs.len() {
            let layout = io.inputs.layout(index);
            if !layout.shape.contains(&0) {
                let movement = Movement::new(&layout.shape, &layout.strides, &strides);
                movement.run(io.inputs.slice(index), &mut output[start..], io.pool);
            }
            start += layout.shape[self.axis] * strides[self.axis];
        }
    }
}

/// A contiguous tensor with the elements of `operand`, which are in `bytes`.
pub(crate) fn copied_tensor(
    operand: &Operand,
    bytes: &[u8],
    pool: &Pool,
) -> Result<Tensor, RunError> {
    fn typed<T: Copied + bytemuck::Pod>(
        operand: &Operand,
        bytes: &[u8],
        pool: &Pool,
    ) -> Result<Tensor, RunError> {
        let mut values = vec![T::zeroed(); operand.ty.shape.checked_len()?];
        let whole = &bytes[..bytes.len() / size_of::<T>() * size_of::<T>()];
        if !values.is_empty() {
            let source = &bytemuck::cast_slice::<u8, T>(whole)[operand.layout.offset..];
            copy(source, &operand.layout, &mut values, pool);
        }
        Ok(Tensor::from_words(operand.ty.clone(), values)?)
    }
    match operand.ty.dtype.size() {
        1 => typed::<u8>(operand, bytes, pool),
        2 => typed::<u16>(operand, bytes, pool),
        4 => typed::<u32>(operand, bytes, pool),
        _ => typed::<u64>(operand, bytes, pool),
    }
}
