//! Conversion to another element type.

use bytemuck::{Pod, Zeroable, cast_slice};
use cutout_graph::RunError;
use cutout_tensor::DType;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::execute::{Execute, Io};
use crate::simd::{Kernel, Simd, dispatch};

/// Elements a task converts.
const TASK: usize = 1 << 15;

/// Elements that are converted at a time, through `f32` or `i64`.
const BLOCK: usize = 512;

/// Converts a contiguous input.
pub(crate) struct Cast {
    pub(crate) from: DType,
    pub(crate) to: DType,
}

impl Cast {
    fn run_to<T: Target>(&self, io: Io<'_>) {
        let (isa, from) = (io.isa, self.from);
        let (source, size) = (io.inputs.bytes(0), self.from.size());
        io.pool.for_chunks(io.output.slice::<T>(), TASK, &|task, target| {
            let first = task * TASK * size;
            let source = &source[first..first + target.len() * size];
            dispatch(isa, CastTask { from, source, target });
        });
    }
}

impl Execute for Cast {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        match self.to {
            DType::F32 => self.run_to::<f32>(io),
            DType::F16 => self.run_to::<f16>(io),
            DType::BF16 => self.run_to::<bf16>(io),
            DType::I8 => self.run_to::<i8>(io),
            DType::U8 => self.run_to::<u8>(io),
            DType::I32 => self.run_to::<i32>(io),
            DType::I64 => self.run_to::<i64>(io),
            DType::Bool => self.run_to::<Truth>(io),
        }
        Ok(())
    }
}

/// A `bool` in memory: 0 or 1.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
struct Truth(u8);

/// A type that values are converted to. Implementations are `#[inline(always)]`.
trait Target: Pod + Send {
    /// From floats, or from whole numbers that a float holds exactly.
    fn from_floats(source: &[f32], target: &mut [Self]);
    /// From whole numbers.
    fn from_integers(source: &[i64], target: &mut [Self]);
}

/// Implements [`Target`] by two functions of one element.
macro_rules! targets {
    ($($type:ty: |$x:ident| $from_float:expr, |$i:ident| $from_integer:expr;)*) => {$(
        impl Target for $type {
            #[inline(always)]
            fn from_floats(source: &[f32], target: &mut [Self]) {
                for (target, &$x) in target.iter_mut().zip(source) {
                    *target = $from_float;
                }
            }
            #[inline(always)]
            fn from_integers(source: &[i64], target: &mut [Self]) {
                for (target, &$i) in target.iter_mut().zip(source) {
                    *target = $from_integer;
                }
            }
        }
    )*};
}

// `as` truncates floats, saturates and turns NaN into 0, as the op is defined.
targets! {
    f32: |x| x, |i| i as f64 as f32;
    bf16: |x| bf16::from_f32(x), |i| bf16::from_f32(i as f64 as f32);
    i8: |x| x as i8, |i| i.clamp(i8::MIN.into(), i8::MAX.into()) as i8;
    u8: |x| x as u8, |i| i.clamp(u8::MIN.into(), u8::MAX.into()) as u8;
    i32: |x| x as i32, |i| i.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    i64: |x| x as i64, |i| i;
    Truth: |x| Truth(u8::from(x != 0.0)), |i| Truth(u8::from(i != 0));
}

impl Target for f16 {
    #[inline(always)]
    fn from_floats(source: &[f32], target: &mut [Self]) {
        target.convert_from_f32_slice(source);
    }
    #[inline(always)]
    fn from_integers(source: &[i64], target: &mut [Self]) {
        for (target, &i) in target.iter_mut().zip(source) {
            *target = f16::from_f32(i as f64 as f32);
        }
    }
}

/// The elements of one task.
struct CastTask<'a, T> {
    from: DType,
    source: &'a [u8],
    target: &'a mut [T],
}

impl<T: Target> Kernel for CastTask<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let size = self.from.size();
        let (mut floats, mut integers) = ([0f32; BLOCK], [0i64; BLOCK]);
        for (block, target) in self.source.chunks(BLOCK * size).zip(self.target.chunks_mut(BLOCK)) {
            let floats = &mut floats[..target.len()];
            let integers = &mut integers[..target.len()];
            match self.from {
                DType::F32 => T::from_floats(cast_slice(block), target),
                DType::F16 => {
                    cast_slice::<u8, f16>(block).convert_to_f32_slice(floats);
                    T::from_floats(floats, target);
                }
                DType::BF16 => {
                    for (float, &x) in floats.iter_mut().zip(cast_slice::<u8, bf16>(block)) {
                        *float = f32::from_bits(u32::from(x.to_bits()) << 16);
                    }
                    T::from_floats(floats, target);
                }
                DType::U8 | DType::Bool => {
                    for (float, &x) in floats.iter_mut().zip(block) {
                        *float = f32::from(x);
                    }
                    T::from_floats(floats, target);
                }
                DType::I8 => {
                    for (float, &x) in floats.iter_mut().zip(cast_slice::<u8, i8>(block)) {
                        *float = f32::from(x);
                    }
                    T::from_floats(floats, target);
                }
                DType::I32 => {
                    for (integer, &x) in integers.iter_mut().zip(cast_slice::<u8, i32>(block)) {
                        *integer = i64::from(x);
                    }
                    T::from_integers(integers, target);
                }
                DType::I64 => T::from_integers(cast_slice(block), target),
            }
        }
    }
}
