//! The patches of an image (im2col) as the left operand of a product, packed panel by panel.

use std::ops::Range;

use cutout_graph::ops;
use cutout_parallel::with_scratch;

use crate::gemm::{LeftSource, PanelBlock, RUN_UNIT, interleave_rows};
use crate::kernels::image::{Image, Strides, load_count, store_count};
use crate::simd::{Interleave, Isa, Kernel, MAX_LANES, Simd, dispatch};

/// Marks a position outside the image.
const OUTSIDE: usize = usize::MAX;

/// Along one direction, the input position under each kernel element for every output.
pub(crate) struct TapPositions {
    kernel: usize,
    /// Input positions, or [`OUTSIDE`], as `[output][kernel]`.
    positions: Vec<usize>,
    /// For each output, whether its pixels are all inside the image and consecutive.
    whole: Vec<bool>,
}

impl TapPositions {
    /// TapPositions of a convolution along direction 0 (vertical) or 1, for lengths of input, output and kernel.
    pub(crate) fn convolution(op: &ops::Conv2d, direction: usize, lengths: [usize; 3]) -> Self {
        let [_, output, kernel] = lengths;
        let position = |output: usize, tap: usize| {
            (output * op.stride[direction] + tap).checked_sub(op.padding[direction][0])
        };
        TapPositions::new(lengths[0], output, kernel, position)
    }

    /// TapPositions of a transposed convolution along direction 0 (vertical) or 1, for lengths of input, output and kernel.
    pub(crate) fn transposed(
        op: &ops::ConvTranspose2d,
        direction: usize,
        lengths: [usize; 3],
    ) -> Self {
        let [_, output, kernel] = lengths;
        let stride = op.stride[direction];
        let position = |output: usize, tap: usize| {
            let offset = (output + op.padding[direction]).checked_sub(tap)?;
            offset.is_multiple_of(stride).then_some(offset / stride)
        };
        TapPositions::new(lengths[0], output, kernel, position)
    }

    fn new(
        input: usize,
        output: usize,
        kernel: usize,
        position: impl Fn(usize, usize) -> Option<usize>,
    ) -> Self {
        let inside = |i: usize| {
            position(i / kernel, i % kernel).filter(|&position| position < input).unwrap_or(OUTSIDE)
        };
        let positions: Vec<usize> = (0..output * kernel).map(inside).collect();
        let in_order = |positions: &[usize]| {
            let mut pairs = positions.windows(2);
            positions[0] != OUTSIDE && pairs.all(|pair| pair[0] < OUTSIDE && pair[1] == pair[0] + 1)
        };
        let whole = positions.chunks_exact(kernel).map(in_order).collect();
        TapPositions { kernel, positions, whole }
    }

    /// Length of the kernel.
    pub(crate) fn kernel(&self) -> usize {
        self.kernel
    }

    #[inline(always)]
    fn at(&self, output: usize, tap: usize) -> usize {
        self.positions[output * self.kernel + tap]
    }
}

/// The patches of an image: one row for each output pixel, with depths ordered `[kernel_height, kernel_width, channels]`.
/// Pixels outside the image are zero.
pub(crate) struct Patches<'a> {
    /// Starts at the first channel of the first pixel.
    pub(crate) image: &'a [f32],
    pub(crate) strides: Strides,
    /// Shape of the output; its channels are not used.
    pub(crate) output: Image,
    pub(crate) rows: &'a TapPositions,
    pub(crate) columns: &'a TapPositions,
    /// Channels read from each pixel.
    pub(crate) channels: usize,
}

/// An output pixel.
#[derive(Clone, Copy, Default)]
struct Pixel {
    image: usize,
    y: usize,
    x: usize,
}

/// Pixels outside the image; longer runs of channels are read in pieces.
pub(super) static ZEROS: [f32; 1024] = [0.0; 1024];

/// `count` zeros, in slices of the static ones.
fn zeros<'a>(count: usize) -> impl Iterator<Item = &'a [f32]> {
    let starts = (0..count).step_by(ZEROS.len());
    starts.map(move |start| &ZEROS[..ZEROS.len().min(count - start)])
}

impl LeftSource for Patches<'_> {
    fn rows(&self) -> usize {
        self.output.batch * self.output.height * self.output.width
    }

    fn depth(&self) -> usize {
        self.rows.kernel * self.columns.kernel * self.channels
    }

    fn runs<'a>(&'a self, row: usize, runs: &mut Vec<&'a [f32]>) {
        if !self.channels.is_multiple_of(RUN_UNIT) {
            return;
        }
        let pixel = self.pixel(row);
        let taps = self.joined_taps(&pixel);
        for down in 0..self.rows.kernel {
            for right in (0..self.columns.kernel).step_by(taps) {
                match self.position(&pixel, [down, right]) {
                    Some(start) => runs.push(&self.image[start..][..taps * self.channels]),
                    None => runs.extend(zeros(taps * self.channels)),
                }
            }
        }
    }

    fn pack(&self, block: &PanelBlock, out: &mut [f32]) {
        if block.panel_rows == 1 {
            self.copy_rows(block.isa, block.rows.clone(), block.depth.clone(), out);
        } else if self.has_long_runs(block.isa) {
            self.pack_runs(block, out);
        } else {
            self.pack_copies(block, out);
        }
    }
}

impl Patches<'_> {
    /// Whether a pixel has enough channels to be transposed directly from the image.
    fn has_long_runs(&self, isa: Isa) -> bool {
        let lanes = isa.or_available().lanes();
        self.channels.is_multiple_of(lanes) || self.channels >= 8 * lanes
    }

    /// Packs panel by panel, transposing the channels of each pixel directly from the image.
    fn pack_runs(&self, block: &PanelBlock, out: &mut [f32]) {
        for (rows, range) in block.panels() {
            let mut pixels = [Pixel::default(); MAX_LANES];
            let count = self.pixels(&rows, &mut pixels);
            let pixels = &pixels[..count];
            let (panel_rows, depth, panel) =
                (block.panel_rows, block.depth.clone(), &mut out[range]);
            dispatch(block.isa, PackRuns { patches: self, pixels, depth, panel_rows, panel });
        }
    }

    /// Packs panel by panel, copying the patches of a panel into rows first.
    fn pack_copies(&self, block: &PanelBlock, out: &mut [f32]) {
        let depth = block.depth.len();
        with_scratch(block.panel_rows * depth, |scratch| {
            for (rows, range) in block.panels() {
                let copies = &mut scratch[..rows.len() * depth];
                self.copy_rows(block.isa, rows.clone(), block.depth.clone(), copies);
                let mut slices: [&[f32]; MAX_LANES] = [&[]; MAX_LANES];
                for (slice, copy) in slices.iter_mut().zip(copies.chunks_exact(depth)) {
                    *slice = copy;
                }
                let slices = &slices[..rows.len()];
                interleave_rows(block.isa, block.panel_rows, slices, &mut out[range]);
            }
        });
    }

    /// Copies a range of depths of some rows, row by row.
    fn copy_rows(&self, isa: Isa, rows: Range<usize>, depth: Range<usize>, target: &mut [f32]) {
        dispatch(isa, CopyRows { patches: self, rows, depth, target });
    }

    /// Fills `pixels` with the output pixels of `rows`; returns their number.
    fn pixels(&self, rows: &Range<usize>, pixels: &mut [Pixel]) -> usize {
        let mut pixel = self.pixel(rows.start);
        for slot in &mut pixels[..rows.len()] {
            *slot = pixel;
            pixel = self.next(pixel);
        }
        rows.len()
    }

    /// How many pixels under a row of the kernel are read as one run: all of them if they are contiguous in memory, else one.
    #[inline(always)]
    fn joined_taps(&self, pixel: &Pixel) -> usize {
        let joined = self.strides.pixel == self.channels && self.columns.whole[pixel.x];
        if joined { self.columns.kernel } else { 1 }
    }

    fn pixel(&self, row: usize) -> Pixel {
        let line = row / self.output.width;
        let (image, y) = (line / self.output.height, line % self.output.height);
        Pixel { image, y, x: row % self.output.width }
    }

    #[inline(always)]
    fn next(&self, pixel: Pixel) -> Pixel {
        let Pixel { image, y, x } = pixel;
        if x + 1 < self.output.width {
            Pixel { image, y, x: x + 1 }
        } else if y + 1 < self.output.height {
            Pixel { image, y: y + 1, x: 0 }
        } else {
            Pixel { image: image + 1, y: 0, x: 0 }
        }
    }

    /// Offset of the first channel under a kernel element (row, column), or `None` outside the image.
    #[inline(always)]
    fn position(&self, pixel: &Pixel, [down, right]: [usize; 2]) -> Option<usize> {
        let (row, column) = (self.rows.at(pixel.y, down), self.columns.at(pixel.x, right));
        let inside = row != OUTSIDE && column != OUTSIDE;
        inside.then(|| {
            let line = pixel.image * self.strides.image + row * self.strides.row;
            line + column * self.strides.pixel
        })
    }
}

/// Packs one panel from whole runs of channels.
struct PackRuns<'a> {
    patches: &'a Patches<'a>,
    /// The panel's rows.
    pixels: &'a [Pixel],
    depth: Range<usize>,
    panel_rows: usize,
    panel: &'a mut [f32],
}

impl Kernel for PackRuns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let channels = self.patches.channels;
        let mut tap = self.depth.start / channels;
        let mut channel = self.depth.start % channels;
        let mut done = 0;
        while done < self.depth.len() {
            let length = (channels - channel).min(self.depth.len() - done).min(ZEROS.len());
            let mut runs: [&[f32]; MAX_LANES] = [&ZEROS[..length]; MAX_LANES];
            let element = [tap / self.patches.columns.kernel, tap % self.patches.columns.kernel];
            for (run, pixel) in runs.iter_mut().zip(self.pixels) {
                if let Some(start) = self.patches.position(pixel, element) {
                    *run = &self.patches.image[start + channel..][..length];
                }
            }
            let target = &mut self.panel[done * self.panel_rows..][..length * self.panel_rows];
            interleave(simd, &runs[..self.pixels.len()], self.panel_rows, target);
            done += length;
            channel += length;
            if channel == channels {
                (tap, channel) = (tap + 1, 0);
            }
        }
    }
}

/// `target[i * panel_rows + r] = runs[r][i]`, and zero for the rows without a run.
///
/// Panics unless there are at most `panel_rows` runs and at most `LANES`, all as long as the target has columns.
#[inline(always)]
fn interleave<S: Simd>(simd: S, runs: &[&[f32]], panel_rows: usize, target: &mut [f32]) {
    let length = target.len() / panel_rows;
    let width = panel_rows.min(S::LANES);
    assert!(runs.len() <= width && panel_rows <= S::LANES);
    let mut rows = [std::ptr::null(); MAX_LANES];
    for (row, run) in rows.iter_mut().zip(runs) {
        *row = run[..length].as_ptr();
    }
    let rows = &rows[..runs.len()];
    let whole = length - length % S::LANES;
    let mut column = 0;
    while column < whole {
        let out = target[column * panel_rows..][..S::LANES * panel_rows].as_mut_ptr();
        // SAFETY: `column + LANES` elements of every run were sliced, and `LANES` columns of the target; no more rows are
        // given than a column holds.
        unsafe { simd.interleave(Interleave { rows, column, panel_rows, out }) };
        column += S::LANES;
    }
    for column in whole..length {
        let column_target = &mut target[column * panel_rows..][..panel_rows];
        for (row, element) in column_target.iter_mut().enumerate() {
            *element = if row < runs.len() { runs[row][column] } else { 0.0 };
        }
    }
}

/// Copies patches into rows.
struct CopyRows<'a> {
    patches: &'a Patches<'a>,
    rows: Range<usize>,
    depth: Range<usize>,
    target: &'a mut [f32],
}

impl Kernel for CopyRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let patches = self.patches;
        let mut pixel = patches.pixel(self.rows.start);
        for target in self.target.chunks_exact_mut(self.depth.len().max(1)).take(self.rows.len()) {
            let taps = patches.joined_taps(&pixel);
            copy_patch(simd, patches, (&pixel, taps), self.depth.start, target);
            pixel = patches.next(pixel);
        }
    }
}

/// Copies the depths of a patch from `first` on, in runs of `taps` consecutive pixels.
#[inline(always)]
fn copy_patch<S: Simd>(
    simd: S,
    patches: &Patches<'_>,
    (pixel, taps): (&Pixel, usize),
    first: usize,
    target: &mut [f32],
) {
    let run = taps * patches.channels;
    let (tap, mut skipped) = (first / run * taps, first % run);
    let kernel = patches.columns.kernel;
    let [mut down, mut right] = [tap / kernel, tap % kernel];
    let mut done = 0;
    while done < target.len() {
        let length = (run - skipped).min(target.len() - done);
        let target = &mut target[done..done + length];
        match patches.position(pixel, [down, right]) {
            Some(start) => copy_run(simd, &patches.image[start + skipped..][..length], target),
            None => target.fill(0.0),
        }
        done += length;
        (right, skipped) = (right + taps, 0);
        if right >= kernel {
            (down, right) = (down + 1, 0);
        }
    }
}

/// Copies a short slice onto another of the same length.
#[inline(always)]
fn copy_run<S: Simd>(simd: S, source: &[f32], target: &mut [f32]) {
    let mut start = 0;
    while start < target.len() {
        let count = S::LANES.min(target.len() - start);
        let value = load_count(simd, &source[start..], count);
        store_count(simd, value, &mut target[start..], count);
        start += S::LANES;
    }
}
