//! Depthwise convolution: every channel with a kernel of its own, as many channels at a time as a vector has lanes.
//!
//! A task takes one vector of channels and a block of output rows. It copies the channels of the pixels it needs, zeros
//! around them, into a small image of its own, which fits the caches whatever the distance of pixels is, and walks the
//! kernel over it for several neighbouring outputs at a time.

use std::ops::Range;

use cutout_graph::{CompileError, RunError, ops};
use cutout_tensor::{DType, Tensor, TensorError};

use super::weights::{Form, Weight};
use crate::execute::{Execute, Io, SharedSlice};
use crate::kernels::epilogue::Fused;
use crate::kernels::image::{Image, Strides, load_count, store_count};
use crate::lower::{Lowered, Site};
use crate::memory::AlignedBuffer;
use crate::simd::{Kernel, Simd, dispatch};

/// Neighbouring outputs whose sums stay in registers.
const SUMS: usize = 8;

/// Bytes of a task's own image, about: an eighth of a second-level cache.
const TILE_BYTES: usize = 128 << 10;

/// A compiled depthwise convolution.
pub(super) struct Depthwise {
    op: ops::Conv2d,
    kernel: [usize; 2],
    input: Image,
    output: Image,
    weight: Weight<ByVector>,
    /// Output rows of a task.
    row_block: usize,
    /// Pixels of a row of a task's own image.
    tile_width: usize,
    lanes: usize,
}

/// A weight `[channels, 1, kernel_height, kernel_width]` as `[channel vector][kernel_height * kernel_width][lanes]`, zero
/// beyond the last channel.
struct ByVector {
    lanes: usize,
}

impl Form for ByVector {
    type Packed = AlignedBuffer<f32>;

    fn name(&self) -> String {
        format!("depthwise {}", self.lanes)
    }

    fn pack(&self, weight: &Tensor) -> Result<Self::Packed, TensorError> {
        let taps = weight.shape()[2] * weight.shape()[3];
        let values = weight.cast(DType::F32)?.to_vec::<f32>()?;
        let vectors = weight.shape()[0].div_ceil(self.lanes);
        let mut packed = AlignedBuffer::zeroed(vectors * taps * self.lanes);
        for (i, value) in values.into_iter().enumerate() {
            let (channel, tap) = (i / taps, i % taps);
            let (vector, lane) = (channel / self.lanes, channel % self.lanes);
            packed[(vector * taps + tap) * self.lanes + lane] = value;
        }
        Ok(packed)
    }
}

impl Depthwise {
    pub(super) fn lower(op: &ops::Conv2d, site: &Site<'_>) -> Result<Lowered, CompileError> {
        let lanes = site.isa.lanes();
        let weight = Weight::new(ByVector { lanes }, site)?;
        let absorbed = weight.absorbed();
        let input = Image::new(&site.inputs[0].ty.shape);
        let output = Image::new(&site.output.shape);
        let shape = &site.inputs[1].ty.shape;
        let kernel = [shape[2], shape[3]];
        // Whole groups of sums, so that the last ones need no code of their own.
        let columns = output.width.next_multiple_of(SUMS);
        let tile_width = (columns - 1) * op.stride[1] + kernel[1];
        let rows = TILE_BYTES / (size_of::<f32>() * lanes * tile_width);
        let row_block = rows.saturating_sub(kernel[0]) / op.stride[0] + 1;
        let row_block = row_block.min(output.height);
        let depthwise =
            Depthwise { op: *op, kernel, input, output, weight, row_block, tile_width, lanes };
        Ok(Lowered { kernel: Box::new(depthwise), absorbed })
    }

    /// Rows of a task's own image for `rows` output rows.
    fn tile_height(&self, rows: usize) -> usize {
        (rows - 1) * self.op.stride[0] + self.kernel[0]
    }
}

impl Execute for Depthwise {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let weight = self.weight.get(&io.inputs)?;
        let weight_length = self.kernel[0] * self.kernel[1] * self.lanes;
        let fused = Fused::new(&self.op.epilogue, &io.inputs, 2);
        let source = io.inputs.f32(0);
        let strides = Strides::new(io.inputs.layout(0));
        let output = SharedSlice::new(io.output.f32());
        let vectors = self.output.channels.div_ceil(self.lanes);
        let blocks = self.output.height.div_ceil(self.row_block);
        let tasks = self.output.batch * blocks * vectors;
        let scratch = self.tile_height(self.row_block) * self.tile_width * self.lanes;
        io.pool.run_with_scratch(tasks, scratch, &|task, scratch| {
            let (vector, block) = (task % vectors, task / vectors % blocks);
            let first = block * self.row_block;
            let part = Part {
                image: task / vectors / blocks,
                rows: first..self.output.height.min(first + self.row_block),
                channel: vector * self.lanes,
                count: self.lanes.min(self.output.channels - vector * self.lanes),
            };
            let own = DepthwiseTask {
                depthwise: self,
                part,
                source: (source, strides),
                weight: &weight[vector * weight_length..][..weight_length],
                fused,
                tile: scratch,
                output: &output,
            };
            dispatch(io.isa, own);
        });
        Ok(())
    }
}

/// The part of the output that a task computes.
struct Part {
    image: usize,
    rows: Range<usize>,
    channel: usize,
    /// Channels, at most a vector.
    count: usize,
}

struct DepthwiseTask<'a> {
    depthwise: &'a Depthwise,
    part: Part,
    source: (&'a [f32], Strides),
    /// `[kernel_height * kernel_width][LANES]`
    weight: &'a [f32],
    fused: Fused<'a>,
    /// The task's own image, `[tile_height][tile_width][LANES]`.
    tile: &'a mut [f32],
    output: &'a SharedSlice<f32>,
}

impl Kernel for DepthwiseTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let depthwise = self.depthwise;
        assert_eq!(depthwise.lanes, S::LANES, "compiled for this instruction set");
        let rows = self.part.rows.len();
        assert!(self.tile.len() >= depthwise.tile_height(rows) * depthwise.tile_width * S::LANES);
        self.fill_tile(simd);
        // Down the image first: one column of the tile stays in the first-level cache.
        let mut x = 0;
        while x < depthwise.output.width {
            for row in 0..rows {
                let sums = self.sums(simd, row, x);
                self.store(simd, sums, row, x);
            }
            x += SUMS;
        }
    }
}

impl DepthwiseTask<'_> {
    /// Copies the pixels that the task reads, and zeros where there are none.
    #[inline(always)]
    fn fill_tile<S: Simd>(&mut self, simd: S) {
        let Depthwise { op, input, tile_width, .. } = self.depthwise;
        let (source, strides) = self.source;
        let height = self.depthwise.tile_height(self.part.rows.len());
        let [top, left] = [op.padding[0][0], op.padding[1][0]];
        let first = self.part.rows.start * op.stride[0];
        let end = (left + input.width).min(*tile_width);
        for (line, row) in
            self.tile.chunks_exact_mut(tile_width * S::LANES).take(height).enumerate()
        {
            let inside = (first + line).checked_sub(top).filter(|&y| y < input.height);
            let Some(y) = inside else {
                row.fill(0.0);
                continue;
            };
            let start = self.part.image * strides.image + y * strides.row + self.part.channel;
            row[..left.min(*tile_width) * S::LANES].fill(0.0);
            for x in left..end {
                let pixel = &source[start + (x - left) * strides.pixel..];
                let value = load_count(simd, pixel, self.part.count);
                simd.store(value, &mut row[x * S::LANES..]);
            }
            row[end.max(left.min(*tile_width)) * S::LANES..].fill(0.0);
        }
    }

    /// The sums of `SUMS` outputs from column `x` of the part's row `row` on.
    #[inline(always)]
    fn sums<S: Simd>(&self, simd: S, row: usize, x: usize) -> [S::F; SUMS] {
        let Depthwise { op, kernel, tile_width, .. } = self.depthwise;
        let mut sums = [simd.splat(0.0); SUMS];
        let step = op.stride[1] * S::LANES;
        let mut weight = self.weight.as_ptr();
        for down in 0..kernel[0] {
            let start = (row * op.stride[0] + down) * tile_width + x * op.stride[1];
            let mut pixel = self.tile[start * S::LANES..].as_ptr();
            for _ in 0..kernel[1] {
                // SAFETY: the weight has a vector for each element of the kernel.
                let factor = unsafe { simd.load_pointer(weight) };
                for (index, sum) in sums.iter_mut().enumerate() {
                    let pixel = pixel.wrapping_add(index * step);
                    // SAFETY: the tile's width covers the kernel at whole groups of `SUMS` outputs, its height all rows of
                    // the part, as `run` checked.
                    let value = unsafe { simd.load_pointer(pixel) };
                    *sum = simd.fma(value, factor, *sum);
                }
                weight = weight.wrapping_add(S::LANES);
                pixel = pixel.wrapping_add(S::LANES);
            }
        }
        sums
    }

    /// Finishes and writes the sums that lie inside the output.
    #[inline(always)]
    fn store<S: Simd>(&self, simd: S, sums: [S::F; SUMS], row: usize, x: usize) {
        let output = self.depthwise.output;
        let Part { image, channel, count, .. } = self.part;
        let y = self.part.rows.start + row;
        let zero = simd.splat(0.0);
        let bias = match self.fused.bias {
            Some(bias) => load_count(simd, &bias[channel..], count),
            None => zero,
        };
        for (index, sum) in sums.into_iter().enumerate().take(output.width - x) {
            let at = ((image * output.height + y) * output.width + x + index) * output.channels;
            let residual = match self.fused.residual {
                Some(residual) => load_count(simd, &residual[at + channel..], count),
                None => zero,
            };
            let value = self.fused.finish(simd, sum, bias, residual);
            // SAFETY: tasks have different images, rows or channels, so that no two write the same elements.
            let target = unsafe { self.output.part(at + channel, count) };
            store_count(simd, value, target, count);
        }
    }
}
