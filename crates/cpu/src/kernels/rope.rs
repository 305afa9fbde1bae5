//! Rotary position embedding: pairs of channels rotated by an angle that depends on the token.

use cutout_graph::{Layout, RunError};

use super::rows::{RowIn, RowKernel, RowOut, Rows, stream};
use crate::execute::{Execute, Io};
use crate::simd::Simd;

/// Rotates the tokens `[.., tokens, width]` before the tail. The input may be overwritten.
pub(crate) struct Rope {
    rows: Rows,
    tokens: usize,
    tail: usize,
}

impl Rope {
    /// The last axis of `input` is contiguous and of even length, and there are at least two axes.
    pub(crate) fn new(input: &Layout, tail: usize) -> Self {
        Rope { rows: Rows::new(input), tokens: input.shape[input.shape.rank() - 2], tail }
    }
}

impl Execute for Rope {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let (cos, sin) = (io.inputs.f32(1), io.inputs.f32(2));
        let positions = io.inputs.layout(1).shape[0];
        self.rows.run(&Rotation { rope: self, cos, sin, positions }, io);
        Ok(())
    }
}

/// Rotates one token by its row of the tables.
struct Rotation<'a> {
    rope: &'a Rope,
    cos: &'a [f32],
    sin: &'a [f32],
    positions: usize,
}

impl RowKernel for Rotation<'_> {
    type State = ();

    fn scratch(&self) -> usize {
        self.rope.rows.width
    }

    #[inline(always)]
    fn read<S: Simd>(&self, _: S, source: RowIn<'_>, scratch: &mut [f32]) {
        scratch.copy_from_slice(source.values);
    }

    #[inline(always)]
    fn write<S: Simd>(&self, simd: S, (): (), scratch: &mut [f32], out: RowOut<'_>) {
        let token = out.row % self.rope.tokens;
        if token < self.rope.tokens - self.rope.tail {
            let pairs = self.rope.rows.width / 2;
            let first = token % self.positions * pairs;
            let cos = &self.cos[first..first + pairs];
            let sin = &self.sin[first..first + pairs];
            for ((pair, &cos), &sin) in scratch.chunks_exact_mut(2).zip(cos).zip(sin) {
                let (a, b) = (pair[0], pair[1]);
                pair[0] = a * cos - b * sin;
                pair[1] = a * sin + b * cos;
            }
        }
        if out.streaming {
            stream(simd, scratch, out.target);
        } else {
            out.target.copy_from_slice(scratch);
        }
    }
}
