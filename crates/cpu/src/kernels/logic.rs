//! Comparisons, selection and boolean functions, with broadcasting.

use bytemuck::Pod;
use cutout_graph::ops::CompareKind;
use cutout_graph::{Layout, RunError};
use cutout_tensor::{DType, Shape};

use super::axes::{Axes, Reader};
use crate::execute::{Execute, Io};
use crate::simd::{Kernel, Simd, dispatch};

/// Elements a task writes.
const TASK: usize = 1 << 14;

/// Elements that are expanded at a time if an input is not contiguous.
const BLOCK: usize = 256;

/// Compares the elements of two inputs of one type.
pub(crate) struct Compare {
    kind: CompareKind,
    dtype: DType,
    axes: Axes,
}

impl Compare {
    /// For inputs of type `dtype` that broadcast to `output`.
    pub(crate) fn new(kind: CompareKind, dtype: DType, inputs: &[&Layout], output: &Shape) -> Self {
        Compare { kind, dtype, axes: Axes::new(inputs, output) }
    }

    fn run_on<T: Pod + PartialOrd + Send + Sync>(&self, io: Io<'_>) {
        let inputs = (io.inputs.slice::<T>(0), io.inputs.slice::<T>(1));
        match self.kind {
            CompareKind::Equal => zip(&self.axes, inputs, io, |a, b| u8::from(a == b)),
            CompareKind::NotEqual => zip(&self.axes, inputs, io, |a, b| u8::from(a != b)),
            CompareKind::Less => zip(&self.axes, inputs, io, |a, b| u8::from(a < b)),
            CompareKind::LessEqual => zip(&self.axes, inputs, io, |a, b| u8::from(a <= b)),
            CompareKind::Greater => zip(&self.axes, inputs, io, |a, b| u8::from(a > b)),
            CompareKind::GreaterEqual => zip(&self.axes, inputs, io, |a, b| u8::from(a >= b)),
        }
    }
}

impl Execute for Compare {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        match self.dtype {
            DType::F32 => self.run_on::<f32>(io),
            DType::I8 => self.run_on::<i8>(io),
            DType::U8 => self.run_on::<u8>(io),
            DType::I32 => self.run_on::<i32>(io),
            DType::I64 => self.run_on::<i64>(io),
            DType::F16 | DType::BF16 | DType::Bool => {
                panic!("inference lets only f32 and integers be compared")
            }
        }
        Ok(())
    }
}

/// A boolean function.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Truth {
    And,
    Or,
    Not,
}

/// Applies a boolean function to one or two inputs.
pub(crate) struct Logical {
    kind: Truth,
    axes: Axes,
}

impl Logical {
    /// For as many inputs as `kind` takes, which broadcast to `output`.
    pub(crate) fn new(kind: Truth, inputs: &[&Layout], output: &Shape) -> Self {
        // `not` reads its input twice.
        let inputs = [inputs[0], *inputs.last().expect("a function has an input")];
        Logical { kind, axes: Axes::new(&inputs, output) }
    }
}

impl Execute for Logical {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let a = io.inputs.slice::<u8>(0);
        let inputs = (a, if io.inputs.len() > 1 { io.inputs.slice::<u8>(1) } else { a });
        match self.kind {
            Truth::And => zip(&self.axes, inputs, io, |a, b| u8::from((a != 0) & (b != 0))),
            Truth::Or => zip(&self.axes, inputs, io, |a, b| u8::from((a != 0) | (b != 0))),
            Truth::Not => zip(&self.axes, inputs, io, |a, _| u8::from(a == 0)),
        }
        Ok(())
    }
}

/// Chooses between the elements of two inputs by a third.
pub(crate) struct Select {
    axes: Axes,
    element_bytes: usize,
}

impl Select {
    /// For a condition and two inputs with elements of `element_bytes` that broadcast to `output`.
    pub(crate) fn new(inputs: &[&Layout], output: &Shape, element_bytes: usize) -> Self {
        Select { axes: Axes::new(inputs, output), element_bytes }
    }

    fn run_on<T: Word>(&self, io: Io<'_>) {
        let isa = io.isa;
        let condition = io.inputs.slice::<u8>(0);
        let choices = (io.inputs.slice::<T>(1), io.inputs.slice::<T>(2));
        io.pool.for_chunks(io.output.slice::<T>(), TASK, &|task, output| {
            let (axes, start) = (&self.axes, task * TASK);
            dispatch(isa, SelectTask { axes, start, condition, choices, output });
        });
    }
}

impl Execute for Select {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        match self.element_bytes {
            1 => self.run_on::<u8>(io),
            2 => self.run_on::<u16>(io),
            4 => self.run_on::<u32>(io),
            _ => self.run_on::<u64>(io),
        }
        Ok(())
    }
}

/// Elements as bit patterns of their size.
trait Word: Pod + Send + Sync {
    /// `a` where the condition is not 0, else `b`, by bits: a conditional load would compile to a slow gather.
    fn choose(condition: u8, a: Self, b: Self) -> Self;
}

macro_rules! words {
    ($($type:ty)*) => {$(
        impl Word for $type {
            #[inline(always)]
            fn choose(condition: u8, a: $type, b: $type) -> $type {
                let mask = <$type>::from(condition != 0).wrapping_neg();
                (a & mask) | (b & !mask)
            }
        }
    )*};
}

words! { u8 u16 u32 u64 }

/// Writes `function` of each pair of elements.
fn zip<T, F>(axes: &Axes, inputs: (&[T], &[T]), io: Io<'_>, function: F)
where
    T: Pod + Send + Sync,
    F: Fn(T, T) -> u8 + Copy + Sync,
{
    let isa = io.isa;
    io.pool.for_chunks(io.output.slice::<u8>(), TASK, &|task, output| {
        dispatch(isa, ZipTask { axes, start: task * TASK, inputs, output, function });
    });
}

/// The elements of one task of a [`zip`], from position `start` of the output on.
struct ZipTask<'a, T, F> {
    axes: &'a Axes,
    start: usize,
    inputs: (&'a [T], &'a [T]),
    output: &'a mut [u8],
    function: F,
}

impl<T: Pod, F: Fn(T, T) -> u8> Kernel for ZipTask<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let mut readers = [0, 1].map(|input| Reader::new(self.axes, input, self.start));
        let mut rooms = [[T::zeroed(); BLOCK]; 2];
        let ([first, second], [room, other_room]) = (&mut readers, &mut rooms);
        for output in self.output.chunks_mut(BLOCK) {
            let a = first.next(self.inputs.0, output.len(), room);
            let b = second.next(self.inputs.1, output.len(), other_room);
            for ((output, &a), &b) in output.iter_mut().zip(a).zip(b) {
                *output = (self.function)(a, b);
            }
        }
    }
}

/// The elements of one task of a [`Select`], from position `start` of the output on.
struct SelectTask<'a, T> {
    axes: &'a Axes,
    start: usize,
    condition: &'a [u8],
    choices: (&'a [T], &'a [T]),
    output: &'a mut [T],
}

impl<T: Word> Kernel for SelectTask<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let mut readers = [0, 1, 2].map(|input| Reader::new(self.axes, input, self.start));
        let mut rooms = [[T::zeroed(); BLOCK]; 2];
        let mut condition_room = [0; BLOCK];
        let ([condition, first, second], [room, other_room]) = (&mut readers, &mut rooms);
        for output in self.output.chunks_mut(BLOCK) {
            let condition = condition.next(self.condition, output.len(), &mut condition_room);
            let a = first.next(self.choices.0, output.len(), room);
            let b = second.next(self.choices.1, output.len(), other_room);
            for (((output, &holds), &a), &b) in output.iter_mut().zip(condition).zip(a).zip(b) {
                *output = T::choose(holds, a, b);
            }
        }
    }
}
