//! Boxes of a feature map, each averaged to a fixed size.

use cutout_graph::ops::RoiAlign;
use cutout_graph::{DenseTensor, OpDef, RunError};

use crate::execute::{Execute, Io};
use crate::kernels::bilinear::{WeightedOffset, weighted_pixels};
use crate::kernels::image::Image;
use crate::lower::Site;
use crate::simd::{Kernel, Simd, dispatch};

/// A compiled [`RoiAlign`].
pub(crate) struct Roi {
    op: RoiAlign,
    input: Image,
    output: Image,
}

impl Roi {
    pub(crate) fn new(op: &RoiAlign, site: &Site<'_>) -> Self {
        let input = Image::new(&site.inputs[0].ty.shape);
        Roi { op: *op, input, output: Image::new(&site.output.shape) }
    }

    fn check(&self, boxes: &[f32]) -> Result<(), RunError> {
        // The check reads the batch's length and the boxes, no features.
        let features = DenseTensor::from_real([self.input.batch, 0, 0, 0], Vec::new());
        let boxes = DenseTensor::from_real([boxes.len() / 5, 5], boxes.to_vec());
        self.op
            .check_values(&[&features, &boxes])
            .map_err(|reason| RunError::Value { op: format!("{:?}", self.op), reason })
    }
}

impl Execute for Roi {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let (features, boxes) = (io.inputs.f32(0), io.inputs.f32(1));
        self.check(boxes)?;
        io.pool.for_chunks(io.output.f32(), self.output.elements(), &|task, cells| {
            let corners = &boxes[task * 5..][..5];
            let first = corners[0] as usize * self.input.elements();
            let features = &features[first..][..self.input.elements()];
            dispatch(io.isa, RoiBox { roi: self, features, corners, cells });
        });
        Ok(())
    }
}

/// One box.
struct RoiBox<'a> {
    roi: &'a Roi,
    /// The box's image.
    features: &'a [f32],
    corners: &'a [f32],
    cells: &'a mut [f32],
}

impl Kernel for RoiBox<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Roi { op, input, output } = *self.roi;
        let rows = Side::new(&op, 0, (self.corners[2], self.corners[4]));
        let columns = Side::new(&op, 1, (self.corners[1], self.corners[3]));
        let row_taps = rows.taps(output.height, input.height, input.row());
        let column_taps = columns.taps(output.width, input.width, input.channels);
        let factor = 1.0 / (rows.samples * columns.samples).max(1) as f32;
        for (index, cell) in self.cells.chunks_exact_mut(output.channels).enumerate() {
            let rows = &row_taps[index / output.width];
            let columns = &column_taps[index % output.width];
            weighted_pixels(simd, self.features, (rows, columns), factor, cell);
        }
    }
}

/// A box on the feature map along one direction.
struct Side {
    start: f32,
    /// Length of one cell.
    cell: f32,
    /// Samples of one cell.
    samples: usize,
}

impl Side {
    /// The extent of a box from `low` to `high` in direction 0 (vertical) or 1, in the arithmetic of the definition.
    fn new(op: &RoiAlign, direction: usize, (low, high): (f32, f32)) -> Self {
        let offset = if op.aligned { 0.5 } else { 0.0 };
        let start = low * op.spatial_scale - offset;
        let length = (high * op.spatial_scale - offset) - start;
        let length = if op.aligned { length } else { length.max(1.0) };
        let cell = length / op.output[direction] as f32;
        // A box of negative length has no samples.
        let adaptive = -(-cell).floor() as usize;
        let samples = if op.sampling_ratio > 0 { op.sampling_ratio } else { adaptive };
        Side { start, cell, samples }
    }

    /// For each cell, the offsets and weights of all its samples' neighbours among `length` pixels, `stride` apart.
    fn taps(&self, cells: usize, length: usize, stride: usize) -> Vec<Vec<WeightedOffset>> {
        let mut every = vec![Vec::new(); cells];
        for (cell, taps) in every.iter_mut().enumerate() {
            for sample in 0..self.samples {
                let within = ((sample as f64 + 0.5) / self.samples as f64) as f32;
                let position = self.start + (cell as f32 + within) * self.cell;
                let neighbours = neighbours(position, length, stride).into_iter().flatten();
                neighbours.for_each(|tap| add_tap(taps, tap));
            }
        }
        every
    }
}

/// Adds a tap, merging it with one of the last two taps if they are the same pixel, as adjacent samples share neighbours. Taps of
/// weight zero are not merged, because zero times infinity is NaN.
fn add_tap(taps: &mut Vec<WeightedOffset>, (offset, weight): WeightedOffset) {
    let same = |tap: &&mut WeightedOffset| tap.0 == offset && tap.1 != 0.0 && weight != 0.0;
    match taps.iter_mut().rev().take(2).find(same) {
        Some(tap) => tap.1 += weight,
        None => taps.push((offset, weight)),
    }
}

/// The two neighbours of a position among `length` pixels; `None` more than one pixel outside.
fn neighbours(position: f32, length: usize, stride: usize) -> Option<[WeightedOffset; 2]> {
    if !(position >= -1.0 && position <= length as f32) {
        return None;
    }
    let inside = position.max(0.0);
    let low = inside.floor() as usize;
    if low + 1 >= length {
        let last = (length - 1) * stride;
        return Some([(last, 1.0), (last, 0.0)]);
    }
    let fraction = inside - low as f32;
    Some([(low * stride, 1.0 - fraction), ((low + 1) * stride, fraction)])
}
