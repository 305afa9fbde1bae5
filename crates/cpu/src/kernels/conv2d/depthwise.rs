//! Depthwise convolution: every channel has its own kernel; the lanes of a vector are channels.
//!
//! A task takes a few vectors of channels and a block of output rows. It copies its input pixels, with zeros around them, into
//! one tile for each vector, which fits the caches for any stride of the pixels. Then it moves the kernel over the tile and
//! computes several adjacent outputs at a time.

use std::ops::Range;

use cutout_graph::{CompileError, Packed, RunError, ops};
use cutout_parallel::{AlignedBuffer, Pool, SharedSlice};
use cutout_tensor::{DType, Tensor, TensorError};

use super::weights::{Form, Weight};
use crate::execute::{Execute, Io};
use crate::gemm::{Epilogue, Residual};
use crate::kernels::image::{Image, Strides, load_count, store_count};
use crate::lower::{Lowered, Site};
use crate::memory::zeroed;
use crate::simd::{Kernel, Simd, dispatch};

/// Adjacent outputs whose sums stay in registers.
const SUMS: usize = 8;

/// Most vectors of channels of a task: pixels are read and written a few cache lines at a time.
const MOST_VECTORS: usize = 4;

/// Approximate bytes of a task's tiles: half of an L2 cache.
const TILE_BYTES: usize = 512 << 10;

/// A compiled depthwise convolution.
pub(super) struct Depthwise {
    op: ops::Conv2d,
    kernel: [usize; 2],
    input: Image,
    output: Image,
    weight: Weight<ByVector>,
    /// Vectors of channels of a task.
    vectors: usize,
    /// Output rows of a task.
    row_block: usize,
    /// Pixels of a row of a tile.
    tile_width: usize,
    lanes: usize,
}

/// A weight `[channels, 1, kernel_height, kernel_width]` as `[channel vector][kernel_height * kernel_width][lanes]`, zero
/// beyond the last channel.
struct ByVector {
    lanes: usize,
}

/// A weight in the form of [`ByVector`].
struct PackedTaps(AlignedBuffer<f32>);

impl Packed for PackedTaps {
    fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

impl Form for ByVector {
    type Packed = PackedTaps;

    fn name(&self) -> String {
        format!("depthwise {}", self.lanes)
    }

    fn pack(&self, _pool: &Pool, weight: &Tensor) -> Result<Self::Packed, TensorError> {
        let taps = weight.shape()[2] * weight.shape()[3];
        let values = weight.cast(DType::F32)?.to_vec::<f32>()?;
        let vectors = weight.shape()[0].div_ceil(self.lanes);
        let mut packed = zeroed(vectors * taps * self.lanes)?;
        for (i, value) in values.into_iter().enumerate() {
            let (channel, tap) = (i / taps, i % taps);
            let (vector, lane) = (channel / self.lanes, channel % self.lanes);
            packed[(vector * taps + tap) * self.lanes + lane] = value;
        }
        Ok(PackedTaps(packed))
    }
}

impl Depthwise {
    pub(super) fn lower(op: &ops::Conv2d, site: &Site<'_>) -> Result<Lowered, CompileError> {
        let lanes = site.arithmetic.isa.lanes();
        let weight = Weight::new(ByVector { lanes }, site)?;
        let absorbed = weight.absorbed();
        let input = Image::new(&site.inputs[0].ty.shape);
        let output = Image::new(&site.output.shape);
        let shape = &site.inputs[1].ty.shape;
        let kernel = [shape[2], shape[3]];
        // Rounded up to whole groups of sums, so that the last group needs no special case.
        let columns = output.width.next_multiple_of(SUMS);
        let tile_width = (columns - 1) * op.stride[1] + kernel[1];
        let fitting = TILE_BYTES / (size_of::<f32>() * lanes * tile_width);
        // Wide images take fewer channels at a time, so that blocks have enough rows to reuse the input.
        let vectors = (fitting / (3 * kernel[0])).clamp(1, MOST_VECTORS);
        let vectors = vectors.min(output.channels.div_ceil(lanes));
        let row_block = (fitting / vectors).saturating_sub(kernel[0]) / op.stride[0] + 1;
        let row_block = row_block.min(output.height);
        let op = *op;
        let kernel = Box::new(Depthwise {
            op,
            kernel,
            input,
            output,
            weight,
            vectors,
            row_block,
            tile_width,
            lanes,
        });
        Ok(Lowered { kernel, absorbed })
    }

    /// Rows of a tile for `rows` output rows.
    fn tile_height(&self, rows: usize) -> usize {
        (rows - 1) * self.op.stride[0] + self.kernel[0]
    }
}

impl Execute for Depthwise {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let weight = self.weight.get(&io)?;
        let epilogue = Epilogue::new(&self.op.epilogue, &io.inputs, 2, self.output.channels);
        let source = io.inputs.f32(0);
        let strides = Strides::new(io.inputs.layout(0));
        let output = SharedSlice::new(io.output.f32());
        let width = self.vectors * self.lanes;
        let groups = self.output.channels.div_ceil(width);
        let blocks = self.output.height.div_ceil(self.row_block);
        let tasks = self.output.batch * blocks * groups;
        let scratch = self.tile_height(self.row_block) * self.tile_width * width;
        io.pool.run_with_scratch(tasks, scratch, &|task, tiles| {
            let (group, block) = (task % groups, task / groups % blocks);
            let first = block * self.row_block;
            let block = OutputBlock {
                image: task / groups / blocks,
                rows: first..self.output.height.min(first + self.row_block),
                channels: group * width..self.output.channels.min((group + 1) * width),
            };
            let source = (source, strides);
            let (depthwise, weight, output) = (self, &weight.0[..], &output);
            let task = DepthwiseTask { depthwise, block, source, weight, epilogue, tiles, output };
            dispatch(io.isa, task);
        });
        Ok(())
    }
}

/// The block of the output that a task computes.
struct OutputBlock {
    image: usize,
    rows: Range<usize>,
    channels: Range<usize>,
}

struct DepthwiseTask<'a> {
    depthwise: &'a Depthwise,
    block: OutputBlock,
    source: (&'a [f32], Strides),
    /// `[channel vector][kernel_height * kernel_width][LANES]`, of all channels.
    weight: &'a [f32],
    epilogue: Epilogue<'a>,
    /// `[channel vector][tile_height][tile_width][LANES]`.
    tiles: &'a mut [f32],
    output: &'a SharedSlice<f32>,
}

impl Kernel for DepthwiseTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let depthwise = self.depthwise;
        assert_eq!(depthwise.lanes, S::LANES, "compiled for this instruction set");
        let rows = self.block.rows.len();
        let vectors = self.block.channels.len().div_ceil(S::LANES);
        assert!(self.tiles.len() >= vectors * self.tile_length());
        self.fill_tiles(simd);
        // Down the image first: one column of the tiles stays in the L1 cache.
        let mut x = 0;
        while x < depthwise.output.width {
            for row in 0..rows {
                for vector in 0..vectors {
                    let sums = self.sums(simd, vector, row, x);
                    self.store(simd, sums, vector, [row, x]);
                }
            }
            x += SUMS;
        }
    }
}

impl DepthwiseTask<'_> {
    /// Elements of a tile.
    #[inline(always)]
    fn tile_length(&self) -> usize {
        let depthwise = self.depthwise;
        depthwise.tile_height(self.block.rows.len()) * depthwise.tile_width * depthwise.lanes
    }

    /// Copies the pixels that the task reads, with zeros outside the image.
    #[inline(always)]
    fn fill_tiles<S: Simd>(&mut self, simd: S) {
        let Depthwise { op, input, tile_width, .. } = self.depthwise;
        let (source, strides) = self.source;
        let [top, left] = [op.padding[0][0], op.padding[1][0].min(*tile_width)];
        let end = (op.padding[1][0] + input.width).min(*tile_width);
        let length = self.tile_length();
        let line_length = tile_width * S::LANES;
        for line in 0..length / line_length {
            let y = (self.block.rows.start * op.stride[0] + line).checked_sub(top);
            let inside = y.filter(|&y| y < input.height);
            for tile in self.tiles.chunks_exact_mut(length) {
                let row = &mut tile[line * line_length..][..line_length];
                row[..left * S::LANES].fill(0.0);
                let end = if inside.is_some() { end } else { left };
                row[end.max(left) * S::LANES..].fill(0.0);
            }
            let Some(y) = inside else { continue };
            let start = self.block.image * strides.image + y * strides.row;
            for x in left..end {
                let pixel =
                    &source[start + (x - left) * strides.pixel..][self.block.channels.clone()];
                let offset = (line * tile_width + x) * S::LANES;
                for (vector, channels) in pixel.chunks(S::LANES).enumerate() {
                    let value = load_count(simd, channels, channels.len());
                    simd.store(value, &mut self.tiles[vector * length + offset..]);
                }
            }
        }
    }

    /// The sums of one vector of channels for `SUMS` outputs from column `x` on, in row `row` of the block.
    #[inline(always)]
    fn sums<S: Simd>(&self, simd: S, vector: usize, row: usize, x: usize) -> [S::F; SUMS] {
        let Depthwise { op, kernel, tile_width, .. } = self.depthwise;
        let mut sums = [simd.splat(0.0); SUMS];
        let taps = kernel[0] * kernel[1];
        let number = self.block.channels.start / S::LANES + vector;
        let weight = &self.weight[number * taps * S::LANES..][..taps * S::LANES];
        let tile = &self.tiles[vector * self.tile_length()..][..self.tile_length()];
        // The tile is wide enough for whole groups of outputs.
        let width = (SUMS - 1) * op.stride[1] + kernel[1];
        for (down, weight) in weight.chunks_exact(kernel[1] * S::LANES).enumerate() {
            let start = (row * op.stride[0] + down) * tile_width + x * op.stride[1];
            let pixels = &tile[start * S::LANES..][..width * S::LANES];
            match (kernel[1], op.stride[1]) {
                (3, 1) => add_row::<S, 3>(simd, pixels, weight, &mut sums),
                (5, 1) => add_row::<S, 5>(simd, pixels, weight, &mut sums),
                (7, 1) => add_row::<S, 7>(simd, pixels, weight, &mut sums),
                (_, stride) => add_any_row(simd, (pixels, stride), weight, &mut sums),
            }
        }
        sums
    }

    /// Applies the epilogue to the sums of a vector of channels and stores those inside the output.
    #[inline(always)]
    fn store<S: Simd>(&self, simd: S, sums: [S::F; SUMS], vector: usize, [row, x]: [usize; 2]) {
        let output = self.depthwise.output;
        let channel = self.block.channels.start + vector * S::LANES;
        let count = S::LANES.min(self.block.channels.end - channel);
        let line = self.block.image * output.height + self.block.rows.start + row;
        let mut bias = None;
        if let Some(elements) = self.epilogue.bias {
            bias = Some(load_count(simd, &elements[channel..], count));
        }
        for (index, sum) in sums.into_iter().enumerate().take(output.width - x) {
            let at = (line * output.width + x + index) * output.channels + channel;
            // SAFETY: tasks have different images, rows or channels, so that no two write the same elements.
            let target = unsafe { self.output.part(at, count) };
            let residual = match self.epilogue.residual {
                Residual::None => None,
                Residual::Rows { data, .. } => Some(load_count(simd, &data[at..], count)),
                Residual::Output => Some(load_count(simd, target, count)),
            };
            let value = self.epilogue.apply(simd, sum, bias, residual);
            store_count(simd, value, target, count);
        }
    }
}

/// Widest kernel whose rows stay in registers.
const MOST_WIDTH: usize = 7;

/// Adds one row of a kernel of known width: each pixel is loaded once and multiplied by all kernel elements that cover it.
#[inline(always)]
fn add_row<S: Simd, const WIDTH: usize>(
    simd: S,
    pixels: &[f32],
    weight: &[f32],
    sums: &mut [S::F; SUMS],
) {
    assert!(pixels.len() >= (SUMS - 1 + WIDTH) * S::LANES && weight.len() >= WIDTH * S::LANES);
    let mut factors = [simd.splat(0.0); WIDTH];
    for (index, factor) in factors.iter_mut().enumerate() {
        // SAFETY: the weight's length was just checked.
        *factor = unsafe { simd.load_pointer(weight.as_ptr().wrapping_add(index * S::LANES)) };
    }
    let mut window = [simd.splat(0.0); SUMS - 1 + MOST_WIDTH];
    for (index, pixel) in window.iter_mut().enumerate().take(SUMS - 1 + WIDTH) {
        // SAFETY: the length of the pixels was just checked.
        *pixel = unsafe { simd.load_pointer(pixels.as_ptr().wrapping_add(index * S::LANES)) };
    }
    for (index, factor) in factors.iter().enumerate() {
        for (output, sum) in sums.iter_mut().enumerate() {
            *sum = simd.fma(window[output + index], *factor, *sum);
        }
    }
}

/// Adds one row of a kernel of any width and stride.
#[inline(always)]
fn add_any_row<S: Simd>(
    simd: S,
    (pixels, stride): (&[f32], usize),
    weight: &[f32],
    sums: &mut [S::F; SUMS],
) {
    for (index, factor) in weight.chunks_exact(S::LANES).enumerate() {
        let factor = simd.load(factor);
        for (output, sum) in sums.iter_mut().enumerate() {
            let pixel = simd.load(&pixels[(output * stride + index) * S::LANES..]);
            *sum = simd.fma(pixel, factor, *sum);
        }
    }
}
