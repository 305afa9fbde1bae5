//! The two passes of a resize.

use super::{Block, Tap, Taps};
use crate::kernels::image::{Image, load_count, store_count};
use crate::simd::{Interleave, Kernel, MAX_LANES, Simd};

/// Resizes rows of pixels horizontally.
pub(super) struct Horizontal<'a> {
    /// Whole rows of the input.
    pub(super) source: &'a [f32],
    /// Pixels of an input row, pixels of a resized row, channels of a pixel.
    pub(super) shape: (usize, usize, usize),
    pub(super) columns: &'a Taps,
    /// The resized rows.
    pub(super) rows: &'a mut [f32],
    /// As many elements as [`Horizontal::scratch`] says.
    pub(super) scratch: &'a mut [f32],
}

impl Horizontal<'_> {
    /// Elements of scratch memory for `group` interleaved rows.
    pub(super) fn scratch(input: &Image, lanes: usize, group: usize) -> usize {
        let transposed = input.row().next_multiple_of(lanes) * lanes;
        if group > 1 { transposed + 2 * lanes * lanes } else { 0 }
    }
}

impl Kernel for Horizontal<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (input_width, output_width, channels) = self.shape;
        let (input_row, output_row) = (input_width * channels, output_width * channels);
        if channels < S::LANES {
            let sources = self.source.chunks(S::LANES * input_row);
            for (source, rows) in sources.zip(self.rows.chunks_mut(S::LANES * output_row)) {
                let lengths = (input_row, output_row, channels);
                side_by_side(simd, (source, rows), lengths, self.columns, self.scratch);
            }
            return;
        }
        let sources = self.source.chunks_exact(input_row);
        for (source, row) in sources.zip(self.rows.chunks_exact_mut(output_row)) {
            for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
                weighted_runs(simd, self.columns.at(x), (source, channels), pixel, false);
            }
        }
    }
}

/// Resizes at most `LANES` rows, one in each lane. `lengths` are the elements of an input row, of an output row
/// and of a pixel.
#[inline(always)]
fn side_by_side<S: Simd>(
    simd: S,
    (source, rows): (&[f32], &mut [f32]),
    lengths: (usize, usize, usize),
    columns: &Taps,
    scratch: &mut [f32],
) {
    let (input_row, output_row, channels) = lengths;
    let square = S::LANES * S::LANES;
    let (squares, transposed) = scratch.split_at_mut(2 * square);
    let (resized, turned) = squares.split_at_mut(square);
    transpose_rows(simd, source, input_row, transposed);
    let mut first = 0;
    while first < output_row {
        let count = S::LANES.min(output_row - first);
        for (lane, run) in resized.chunks_exact_mut(S::LANES).take(count).enumerate() {
            let (x, channel) = ((first + lane) / channels, (first + lane) % channels);
            let source = (&transposed[channel * S::LANES..], channels * S::LANES);
            weighted_runs(simd, columns.at(x), source, run, false);
        }
        transpose_square(simd, resized, turned);
        for (row, run) in rows.chunks_exact_mut(output_row).zip(turned.chunks_exact(S::LANES)) {
            store_count(simd, simd.load(run), &mut row[first..], count);
        }
        first += S::LANES;
    }
}

/// `target[i * LANES + r] = row r of source, element i`, and zero for missing rows.
#[inline(always)]
fn transpose_rows<S: Simd>(simd: S, source: &[f32], length: usize, target: &mut [f32]) {
    let mut starts = [std::ptr::null(); MAX_LANES];
    let mut rows = 0;
    for row in source.chunks_exact(length).take(S::LANES) {
        starts[rows] = row.as_ptr();
        rows += 1;
    }
    let starts = &starts[..rows];
    let whole = length - length % S::LANES;
    let mut column = 0;
    while column < whole {
        let out = target[column * S::LANES..][..S::LANES * S::LANES].as_mut_ptr();
        // SAFETY: every row has `length` elements, of which `LANES` begin at `column`; `out` was sliced.
        unsafe { simd.interleave(Interleave { rows: starts, column, panel_rows: S::LANES, out }) };
        column += S::LANES;
    }
    for column in whole..length {
        for (row, element) in target[column * S::LANES..][..S::LANES].iter_mut().enumerate() {
            *element = if row < rows { source[row * length + column] } else { 0.0 };
        }
    }
}

/// Transposes `LANES` by `LANES` elements.
#[inline(always)]
fn transpose_square<S: Simd>(simd: S, source: &[f32], target: &mut [f32]) {
    transpose_rows(simd, &source[..S::LANES * S::LANES], S::LANES, target);
}

/// Sums resized rows vertically.
pub(super) struct Vertical<'a> {
    /// The resized rows from `block.input.start` on.
    pub(super) rows: &'a [f32],
    /// Elements of a row.
    pub(super) row: usize,
    pub(super) taps: &'a Taps,
    pub(super) block: &'a Block,
    /// The block's rows of the output.
    pub(super) target: &'a mut [f32],
    /// Whether to use non-temporal stores.
    pub(super) streaming: bool,
}

impl Kernel for Vertical<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut local = Vec::new();
        for (y, target) in self.block.output.clone().zip(self.target.chunks_exact_mut(self.row)) {
            local.clear();
            let first = self.block.input.start;
            local.extend(self.taps.at(y).iter().map(|&(at, weight)| (at - first, weight)));
            weighted_runs(simd, &local, (self.rows, self.row), target, self.streaming);
        }
        simd.fence();
    }
}

/// `target[i] = Σ weight * source[position * stride + i]`, with the source and the stride given together.
///
/// Panics if a run reaches beyond the source.
#[inline(always)]
fn weighted_runs<S: Simd>(
    simd: S,
    taps: &[Tap],
    (source, stride): (&[f32], usize),
    target: &mut [f32],
    streaming: bool,
) {
    // Non-temporal stores must be aligned.
    let streaming = streaming && (target.as_ptr() as usize).is_multiple_of(4 * S::LANES);
    match *taps {
        [a] => fixed_runs(simd, [a], (source, stride), target, streaming),
        [a, b] => fixed_runs(simd, [a, b], (source, stride), target, streaming),
        [a, b, c, d] => fixed_runs(simd, [a, b, c, d], (source, stride), target, streaming),
        _ => {
            let mut start = 0;
            while start < target.len() {
                let count = S::LANES.min(target.len() - start);
                let mut sum = simd.splat(0.0);
                for &(position, weight) in taps {
                    let run = load_count(simd, &source[position * stride + start..], count);
                    sum = simd.fma(simd.splat(weight), run, sum);
                }
                store_count(simd, sum, &mut target[start..], count);
                start += S::LANES;
            }
        }
    }
}

/// [`weighted_runs`] for a constant number of taps. With `streaming` the target is aligned to vectors.
#[inline(always)]
fn fixed_runs<S: Simd, const TAPS: usize>(
    simd: S,
    taps: [Tap; TAPS],
    (source, stride): (&[f32], usize),
    target: &mut [f32],
    streaming: bool,
) {
    let length = target.len();
    let mut runs = [std::ptr::null(); TAPS];
    let mut weights = [simd.splat(0.0); TAPS];
    for (tap, &(position, weight)) in taps.iter().enumerate() {
        runs[tap] = source[position * stride..][..length].as_ptr();
        weights[tap] = simd.splat(weight);
    }
    let mut start = 0;
    while start + S::LANES <= length {
        // SAFETY: every run has `length` elements, and `LANES` of them begin at `start`.
        let mut sum =
            simd.mul(weights[0], unsafe { simd.load_pointer(runs[0].wrapping_add(start)) });
        for tap in 1..TAPS {
            // SAFETY: as above.
            sum = simd.fma(
                weights[tap],
                unsafe { simd.load_pointer(runs[tap].wrapping_add(start)) },
                sum,
            );
        }
        let address = target[start..][..S::LANES].as_mut_ptr();
        if streaming {
            // SAFETY: `LANES` elements were just sliced; the target is aligned, and `start` is whole vectors from it.
            unsafe { simd.store_streaming(sum, address) };
        } else {
            // SAFETY: `LANES` elements were just sliced.
            unsafe { simd.store_pointer(sum, address) };
        }
        start += S::LANES;
    }
    for (i, element) in target.iter_mut().enumerate().skip(start) {
        *element = taps[0].1 * source[taps[0].0 * stride + i];
        for &(position, weight) in &taps[1..] {
            *element += weight * source[position * stride + i];
        }
    }
}
