//! Normalisation over one axis.

use cutout_graph::{Layout, RunError};
use cutout_parallel::SharedSlice;

use super::rows::{RowIn, RowKernel, RowOut, Rows, fill_scratch, padded, padded_copy};
use crate::execute::{Execute, Io};
use crate::simd::{Kernel, Simd, dispatch};

/// Elements that are summed in single precision; longer sums continue in double precision.
const PIECE: usize = 4096;

/// Normalises the last axis. The input may be overwritten.
pub(crate) struct LayerNorm {
    rows: Rows,
    epsilon: f32,
}

impl LayerNorm {
    /// The last axis of `input` is contiguous and not empty.
    pub(crate) fn new(input: &Layout, epsilon: f32) -> Self {
        LayerNorm { rows: Rows::new(input), epsilon }
    }
}

impl Execute for LayerNorm {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let [weight, bias] = [1, 2].map(|input| padded_copy(io.inputs.f32(input)));
        let kernel = NormRow { weight, bias, width: self.rows.width, epsilon: self.epsilon };
        self.rows.run(&kernel, io);
        Ok(())
    }
}

/// Normalises one row.
struct NormRow {
    /// Padded to whole vectors, as `bias` is.
    weight: Vec<f32>,
    bias: Vec<f32>,
    width: usize,
    epsilon: f32,
}

impl RowKernel for NormRow {
    /// Mean, and reciprocal of the standard deviation, of the row in scratch memory.
    type State = (f32, f32);

    fn scratch(&self) -> usize {
        padded(self.width)
    }

    #[inline(always)]
    fn read<S: Simd>(&self, simd: S, source: RowIn<'_>, scratch: &mut [f32]) -> (f32, f32) {
        if self.width <= NARROW && self.width.is_multiple_of(S::LANES) {
            return self.read_narrow(simd, source, scratch);
        }
        fill_scratch(source.values, 0.0, scratch);
        let mean = (sum(simd, scratch) / self.width as f64) as f32;
        // The padding of the last vector must not contribute to the variance.
        scratch[self.width..].fill(mean);
        let variance = sum_of_squares(simd, scratch, mean, &source) / self.width as f64;
        (mean, (1.0 / (variance + f64::from(self.epsilon)).sqrt()) as f32)
    }

    #[inline(always)]
    fn write<S: Simd>(
        &self,
        simd: S,
        (mean, scale): (f32, f32),
        scratch: &mut [f32],
        mut out: RowOut<'_>,
    ) {
        let (mean, scale) = (simd.splat(mean), simd.splat(scale));
        let values = scratch.chunks_exact(S::LANES).take(self.width.div_ceil(S::LANES));
        let factors = self.weight.chunks_exact(S::LANES).zip(self.bias.chunks_exact(S::LANES));
        for (number, (value, (weight, bias))) in values.zip(factors).enumerate() {
            let normal = simd.mul(simd.sub(simd.load(value), mean), scale);
            let result = simd.fma(normal, simd.load(weight), simd.load(bias));
            out.put(simd, result, number * S::LANES);
        }
    }
}

/// Rows up to this length are copied and summed in one pass, if they are whole vectors.
const NARROW: usize = 1024;

impl NormRow {
    /// Same result as [`RowKernel::read`], bit for bit, for a narrow row of whole vectors.
    #[inline(always)]
    fn read_narrow<S: Simd>(&self, simd: S, source: RowIn<'_>, scratch: &mut [f32]) -> (f32, f32) {
        let (values, group) = (source.values, 4 * S::LANES);
        let whole = self.width - self.width % group;
        assert!(values.len() == self.width && scratch.len() >= self.width);
        let mut sums = [simd.splat(0.0); 4];
        for start in (0..whole).step_by(group) {
            for (i, sum) in sums.iter_mut().enumerate() {
                let offset = start + i * S::LANES;
                *sum = simd.add(*sum, copied(simd, &source, offset, scratch));
            }
        }
        for (i, sum) in sums.iter_mut().enumerate() {
            let offset = whole + i * S::LANES;
            if offset < self.width {
                *sum = simd.add(*sum, copied(simd, &source, offset, scratch));
            }
        }
        let mean = (f64::from(combined(simd, sums)) / self.width as f64) as f32;
        let center = simd.splat(mean);
        let mut squares = [simd.splat(0.0); 4];
        for start in (0..whole).step_by(group) {
            for (i, square) in squares.iter_mut().enumerate() {
                let distance = simd.sub(simd.load(&scratch[start + i * S::LANES..]), center);
                *square = simd.fma(distance, distance, *square);
            }
        }
        for (i, square) in squares.iter_mut().enumerate() {
            let offset = whole + i * S::LANES;
            if offset < self.width {
                let distance = simd.sub(simd.load(&scratch[offset..]), center);
                *square = simd.fma(distance, distance, *square);
            }
        }
        let variance = f64::from(combined(simd, squares)) / self.width as f64;
        (mean, (1.0 / (variance + f64::from(self.epsilon)).sqrt()) as f32)
    }
}

/// Copies a vector of a row, prefetches that of the next row and returns the copy.
#[inline(always)]
fn copied<S: Simd>(simd: S, row: &RowIn<'_>, offset: usize, scratch: &mut [f32]) -> S::F {
    row.prefetch_next(simd, offset);
    let values = simd.load(&row.values[offset..]);
    simd.store(values, &mut scratch[offset..]);
    values
}

/// Sum of the elements, a multiple of 64.
#[inline(always)]
fn sum<S: Simd>(simd: S, values: &[f32]) -> f64 {
    let mut total = 0.0;
    for piece in values.chunks(PIECE) {
        let mut sums = [simd.splat(0.0); 4];
        for group in piece.chunks_exact(4 * S::LANES) {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = simd.add(*sum, simd.load(&group[i * S::LANES..]));
            }
        }
        total += f64::from(combined(simd, sums));
    }
    total
}

/// Sum of the squared deviations of the elements, a multiple of 64, from `mean`. Prefetches the row after `row`.
#[inline(always)]
fn sum_of_squares<S: Simd>(simd: S, values: &[f32], mean: f32, row: &RowIn<'_>) -> f64 {
    let mean = simd.splat(mean);
    let (mut total, mut position) = (0.0, 0);
    for piece in values.chunks(PIECE) {
        let mut sums = [simd.splat(0.0); 4];
        for group in piece.chunks_exact(4 * S::LANES) {
            for (i, sum) in sums.iter_mut().enumerate() {
                row.prefetch_next(simd, position);
                position += S::LANES;
                let distance = simd.sub(simd.load(&group[i * S::LANES..]), mean);
                *sum = simd.fma(distance, distance, *sum);
            }
        }
        total += f64::from(combined(simd, sums));
    }
    total
}

/// Sum of all lanes of four vectors.
#[inline(always)]
fn combined<S: Simd>(simd: S, sums: [S::F; 4]) -> f32 {
    let halves = [simd.add(sums[0], sums[1]), simd.add(sums[2], sums[3])];
    simd.reduce_sum(simd.add(halves[0], halves[1]))
}

/// Adjacent lines that are normalised together: four vectors of the widest instruction set.
const TILE: usize = 64;

/// Normalises an axis that is not the last: `[outer, length, inner]`, contiguous.
pub(crate) struct LayerNormAxis {
    length: usize,
    inner: usize,
    epsilon: f32,
}

impl LayerNormAxis {
    /// Normalises axis `axis` of a contiguous input of this shape.
    pub(crate) fn new(shape: &[usize], axis: usize, epsilon: f32) -> Self {
        LayerNormAxis { length: shape[axis], inner: shape[axis + 1..].iter().product(), epsilon }
    }
}

impl Execute for LayerNormAxis {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let (isa, x) = (io.isa, io.inputs.f32(0));
        let (weight, bias) = (io.inputs.f32(1), io.inputs.f32(2));
        let output = io.output.f32();
        if output.is_empty() {
            return Ok(());
        }
        let outer = output.len() / (self.length * self.inner);
        let tiles = self.inner.div_ceil(TILE);
        let shared = SharedSlice::new(output);
        let floats = (self.length + 2) * TILE;
        io.pool.run_with_scratch(outer * tiles, floats, &|task, scratch| {
            let first = task % tiles * TILE;
            let start = task / tiles * self.length * self.inner + first;
            let width = TILE.min(self.inner - first);
            let tile = Tile { axis: self, x: &x[start..], width, weight, bias, scratch };
            dispatch(isa, tile);
            for (i, row) in scratch[..self.length * TILE].chunks_exact(TILE).enumerate() {
                // SAFETY: tiles do not overlap, and neither do the rows of one.
                let target = unsafe { shared.part(start + i * self.inner, width) };
                target.copy_from_slice(&row[..width]);
            }
        });
        Ok(())
    }
}

/// Normalises up to `TILE` lines in scratch memory, `[length][TILE]`.
struct Tile<'a> {
    axis: &'a LayerNormAxis,
    x: &'a [f32],
    width: usize,
    weight: &'a [f32],
    bias: &'a [f32],
    scratch: &'a mut [f32],
}

impl Kernel for Tile<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let LayerNormAxis { length, inner, epsilon } = *self.axis;
        let (lines, statistics) = self.scratch.split_at_mut(length * TILE);
        let (means, scales) = statistics.split_at_mut(TILE);
        let (mut sums, mut squares) = ([0f64; TILE], [0f64; TILE]);
        for (i, line) in lines.chunks_exact_mut(TILE).enumerate() {
            line[..self.width].copy_from_slice(&self.x[i * inner..i * inner + self.width]);
            line[self.width..].fill(0.0);
            for (sum, &x) in sums.iter_mut().zip(&*line) {
                *sum += f64::from(x);
            }
        }
        for (mean, sum) in means.iter_mut().zip(&sums) {
            *mean = (sum / length as f64) as f32;
        }
        for line in lines.chunks_exact(TILE) {
            for (lane, square) in squares.iter_mut().enumerate() {
                let distance = line[lane] - means[lane];
                *square += f64::from(distance * distance);
            }
        }
        for (scale, square) in scales.iter_mut().zip(&squares) {
            *scale = (1.0 / (square / length as f64 + f64::from(epsilon)).sqrt()) as f32;
        }
        for (i, line) in lines.chunks_exact_mut(TILE).enumerate() {
            let (weight, bias) = (simd.splat(self.weight[i]), simd.splat(self.bias[i]));
            for position in (0..TILE).step_by(S::LANES) {
                let part = &mut line[position..];
                let distance = simd.sub(simd.load(part), simd.load(&means[position..]));
                let normal = simd.mul(distance, simd.load(&scales[position..]));
                simd.store(simd.fma(normal, weight, bias), part);
            }
        }
    }
}
