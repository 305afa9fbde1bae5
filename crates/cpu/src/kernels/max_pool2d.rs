//! Max pooling, many channels at a time.

use std::ops::Range;

use cutout_graph::RunError;
use cutout_graph::ops::MaxPool2d;

use crate::execute::{Execute, Io};
use crate::kernels::image::{Image, load_count, store_count};
use crate::lower::Site;
use crate::simd::{Kernel, Simd, dispatch};

/// A compiled [`MaxPool2d`].
pub(crate) struct MaxPool {
    op: MaxPool2d,
    input: Image,
    output: Image,
}

impl MaxPool {
    pub(crate) fn new(op: &MaxPool2d, site: &Site<'_>) -> Self {
        let input = Image::new(&site.inputs[0].ty.shape);
        MaxPool { op: *op, input, output: Image::new(&site.output.shape) }
    }

    /// The pixels that window `window` covers along one direction of `length` pixels; at least one.
    #[inline(always)]
    fn covered(&self, direction: usize, window: usize, length: usize) -> Range<usize> {
        let start = window * self.op.stride[direction]; // in padded pixels
        let end = start + self.op.kernel[direction];
        let padding = self.op.padding[direction];
        start.saturating_sub(padding)..end.saturating_sub(padding).min(length)
    }
}

impl Execute for MaxPool {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let source = io.inputs.f32(0);
        let per_task = self.output.rows_per_task();
        let chunk = per_task * self.output.row();
        io.pool.for_chunks(io.output.f32(), chunk, &|task, rows| {
            let first = task * per_task;
            dispatch(io.isa, MaxPoolRows { pool: self, source, first, rows });
        });
        Ok(())
    }
}

/// Some rows of the output.
struct MaxPoolRows<'a> {
    pool: &'a MaxPool,
    source: &'a [f32],
    /// Number of the first row, over all images.
    first: usize,
    rows: &'a mut [f32],
}

impl Kernel for MaxPoolRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let MaxPool { input, output, .. } = *self.pool;
        for (index, row) in self.rows.chunks_exact_mut(output.row()).enumerate() {
            let (image, y) =
                ((self.first + index) / output.height, (self.first + index) % output.height);
            let source = &self.source[image * input.elements()..][..input.elements()];
            let lines = self.pool.covered(0, y, input.height);
            for (x, pixel) in row.chunks_exact_mut(output.channels).enumerate() {
                let columns = self.pool.covered(1, x, input.width);
                largest(simd, source, (&input, &lines, &columns), pixel);
            }
        }
    }
}

/// Writes the largest value of each channel over a window, given as rows and columns of `source`.
#[inline(always)]
fn largest<S: Simd>(
    simd: S,
    source: &[f32],
    window: (&Image, &Range<usize>, &Range<usize>),
    pixel: &mut [f32],
) {
    let (input, lines, columns) = window;
    let mut channel = 0;
    while channel < input.channels {
        let count = S::LANES.min(input.channels - channel);
        let mut largest = simd.splat(f32::NEG_INFINITY);
        for line in lines.clone() {
            for column in columns.clone() {
                let at = (line * input.width + column) * input.channels + channel;
                let value = load_count(simd, &source[at..], count);
                // `max` returns its second operand if either is NaN, so a NaN found earlier stays.
                let larger = simd.max(largest, value);
                largest = simd.select(simd.equal(largest, largest), larger, largest);
            }
        }
        store_count(simd, largest, &mut pixel[channel..], count);
        channel += S::LANES;
    }
}
