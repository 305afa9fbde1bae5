//! One axis of a picture resized by windows that are given.

use bytemuck::Pod;
use cutout_graph::RunError;
use cutout_graph::ops::{self, ResampleSizes};
use cutout_tensor::DType;

use crate::execute::{Execute, Io};
use crate::lower::Site;

/// Elements that a task sums up, about.
const TASK: usize = 1 << 16;

/// A compiled [`ops::Resample`].
pub(crate) struct Resample {
    op: ops::Resample,
    sizes: ResampleSizes,
    /// Element types of the picture and of the weights.
    types: [DType; 2],
}

impl Resample {
    pub(crate) fn new(op: &ops::Resample, site: &Site<'_>) -> Self {
        let (picture, weights) = (&site.inputs[0].ty, &site.inputs[2].ty);
        let sizes = op.sizes(&picture.shape, &weights.shape);
        Resample { op: *op, sizes, types: [picture.dtype, weights.dtype] }
    }

    /// Computes one line of the result after the other. A line is all elements behind the axis at one position. Sums start with
    /// `zero`, `add` adds a weighted line of the picture to them, and `store` converts them to results.
    fn lines<X: Pod + Sync, W: Pod + Sync, S: Copy + Sync, Y: Pod + Send>(
        &self,
        io: Io<'_>,
        zero: S,
        add: impl Fn(&mut [S], W, &[X]) + Sync,
        store: impl Fn(S) -> Y + Sync,
    ) {
        let ResampleSizes { length, inner, positions, taps, .. } = self.sizes;
        let (x, starts) = (io.inputs.slice::<X>(0), io.inputs.slice::<i32>(1));
        let weights = io.inputs.slice::<W>(2);
        let output = io.output.slice::<Y>();
        if output.is_empty() {
            return;
        }
        let together = (TASK / (inner * taps).max(1)).max(1);
        io.pool.for_chunks(output, together * inner, &|task, results| {
            let mut sums = vec![zero; inner];
            for (index, results) in results.chunks_exact_mut(inner).enumerate() {
                let line = task * together + index;
                let (outer, position) = (line / positions, line % positions);
                sums.fill(zero);
                for (tap, &weight) in weights[position * taps..][..taps].iter().enumerate() {
                    let from = i64::from(starts[position]).saturating_add(tap as i64);
                    let from = from.clamp(0, length as i64 - 1) as usize;
                    add(&mut sums, weight, &x[(outer * length + from) * inner..][..inner]);
                }
                for (result, &sum) in results.iter_mut().zip(&sums) {
                    *result = store(sum);
                }
            }
        });
    }
}

impl Execute for Resample {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let bits = self.op.bits;
        match self.types {
            [_, DType::I32] => {
                let add = |sums: &mut [i32], weight: i32, bytes: &[u8]| {
                    for (sum, &byte) in sums.iter_mut().zip(bytes) {
                        *sum = sum.wrapping_add(weight.wrapping_mul(i32::from(byte)));
                    }
                };
                let byte = |sum: i32| (sum >> bits).clamp(0, 255) as u8;
                self.lines(io, self.op.half(), add, byte);
            }
            [DType::U8, _] => {
                let add = |sums: &mut [f32], weight: f32, bytes: &[u8]| {
                    for (sum, &byte) in sums.iter_mut().zip(bytes) {
                        *sum += weight * (f32::from(byte) / 255.0);
                    }
                };
                self.lines(io, 0.0, add, |sum: f32| sum);
            }
            _ => {
                let add = |sums: &mut [f32], weight: f32, values: &[f32]| {
                    for (sum, &value) in sums.iter_mut().zip(values) {
                        *sum += weight * value;
                    }
                };
                self.lines(io, 0.0, add, |sum: f32| sum);
            }
        }
        Ok(())
    }
}
