//! Bilinear samples of an image at given positions.

use cutout_graph::RunError;

use crate::execute::{Execute, Io};
use crate::kernels::bilinear::{WeightedOffset, weighted_pixels};
use crate::kernels::image::{Image, TASK_ELEMENTS};
use crate::lower::Site;
use crate::simd::{Kernel, Simd, dispatch};

/// A compiled [`cutout_graph::ops::GridSample`].
pub(crate) struct GridSample {
    input: Image,
    output: Image,
}

impl GridSample {
    pub(crate) fn new(site: &Site<'_>) -> Self {
        let input = Image::new(&site.inputs[0].ty.shape);
        GridSample { input, output: Image::new(&site.output.shape) }
    }
}

impl Execute for GridSample {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let (source, grid) = (io.inputs.f32(0), io.inputs.f32(1));
        let per_task = TASK_ELEMENTS.div_ceil(self.output.channels.max(1));
        let chunk = per_task * self.output.channels;
        io.pool.for_chunks(io.output.f32(), chunk, &|task, pixels| {
            let first = task * per_task;
            dispatch(io.isa, Samples { op: self, source, grid, first, pixels });
        });
        Ok(())
    }
}

/// Some pixels of the output.
struct Samples<'a> {
    op: &'a GridSample,
    source: &'a [f32],
    grid: &'a [f32],
    /// Number of the first pixel, over all images.
    first: usize,
    pixels: &'a mut [f32],
}

impl Kernel for Samples<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let GridSample { input, output } = *self.op;
        let per_image = output.height * output.width;
        for (index, pixel) in self.pixels.chunks_exact_mut(output.channels).enumerate() {
            let number = self.first + index;
            let image = &self.source[number / per_image * input.elements()..][..input.elements()];
            let (x, y) = (self.grid[2 * number], self.grid[2 * number + 1]);
            let (rows, row_count) = neighbours(y, input.height, input.row());
            let (columns, column_count) = neighbours(x, input.width, input.channels);
            let taps = (&rows[..row_count], &columns[..column_count]);
            weighted_pixels(simd, image, taps, 1.0, pixel);
        }
    }
}

/// The neighbouring pixels, inside the image, of a coordinate in -1..1, and their number. `stride` is the distance between
/// neighbours in memory.
#[inline(always)]
fn neighbours(coordinate: f32, length: usize, stride: usize) -> ([WeightedOffset; 2], usize) {
    let position = ((coordinate + 1.0) * length as f32 - 1.0) * 0.5;
    let low = position.floor();
    let fraction = position - low;
    let mut found = ([(0, 0.0); 2], 0);
    for (at, weight) in [(low, 1.0 - fraction), (low + 1.0, fraction)] {
        // False for NaN, too.
        if at >= 0.0 && at < length as f32 {
            found.0[found.1] = (at as usize * stride, weight);
            found.1 += 1;
        }
    }
    found
}
