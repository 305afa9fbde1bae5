//! Quantises rows of floats to bytes with a scale.

use cutout_graph::ops::SMALLEST_ROW;

use crate::gemm::left::RUN_UNIT;
use crate::gemm::word_rows::LINE;
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// The scale of values whose largest magnitude is `largest`, and the factor that quantises them; see the module's
/// documentation.
#[inline(always)]
pub(crate) fn scale_of(largest: f32) -> (f32, f32) {
    if !largest.is_finite() {
        (f32::NAN, 0.0)
    } else if largest < SMALLEST_ROW {
        (0.0, 0.0)
    } else {
        (largest / 127.0, 127.0 / largest)
    }
}

/// [`scale_of`] in each lane.
#[inline(always)]
pub(crate) fn lane_scales<S: Simd>(simd: S, largest: S::F) -> (S::F, S::F) {
    let (zero, bytes) = (simd.splat(0.0), simd.splat(127.0));
    let finite = simd.less(largest, simd.splat(f32::INFINITY));
    let tiny = simd.less(largest, simd.splat(SMALLEST_ROW));
    let scale = simd.select(tiny, zero, simd.div(largest, bytes));
    let factor = simd.select(tiny, zero, simd.div(bytes, largest));
    (simd.select(finite, scale, simd.splat(f32::NAN)), simd.select(finite, factor, zero))
}

/// What is added to the bytes of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Offset {
    /// Nothing.
    None,
    /// [`Simd::DOT_OFFSET`].
    OfVectors,
}

const _: () = assert!(RUN_UNIT == 4 * LINE, "a unit of a run is quantised to a line");

/// Quantises one row of the left operand, given as [runs](crate::gemm::LeftSource::runs), to bytes with the offset added, in lines of
/// `LINE` words that are padded with the offset. Returns the row's scale.
pub(super) fn quantize_row<'m>(
    isa: Isa,
    row: &[&[f32]],
    lines: impl Iterator<Item = &'m mut [f32]>,
    offset: Offset,
) -> f32 {
    dispatch(isa, QuantizeRow { row, lines, offset })
}

struct QuantizeRow<'a, L> {
    row: &'a [&'a [f32]],
    lines: L,
    offset: Offset,
}

impl<'m, L: Iterator<Item = &'m mut [f32]>> Kernel for QuantizeRow<'_, L> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        let QuantizeRow { row, mut lines, offset } = self;
        let offset = if offset == Offset::None { 0 } else { S::DOT_OFFSET };
        let (scale, factor) = scale_of(largest_magnitude(simd, row));
        if factor != 0.0 {
            for run in row {
                let mut whole = run.chunks_exact(RUN_UNIT);
                for (values, line) in whole.by_ref().zip(lines.by_ref()) {
                    quantize_line(simd, values, line, (factor, offset));
                }
                let rest = whole.remainder();
                if !rest.is_empty() {
                    let mut padded = [0.0; RUN_UNIT];
                    padded[..rest.len()].copy_from_slice(rest);
                    let line = lines.next().expect("the layout has room for the row");
                    quantize_line(simd, &padded, line, (factor, offset));
                }
            }
        }
        lines.for_each(|line| bytemuck::cast_slice_mut(line).fill(offset as u8));
        scale
    }
}

/// Quantises the numbers of a line.
#[inline(always)]
fn quantize_line<S: Simd>(simd: S, values: &[f32], line: &mut [f32], (factor, offset): (f32, i32)) {
    let factor = simd.splat(factor);
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(line);
    let vectors = 4 * S::LANES;
    for (values, bytes) in values.chunks_exact(vectors).zip(bytes.chunks_exact_mut(vectors)) {
        let mut numbers = [simd.splat_int(0); 4];
        for (number, values) in numbers.iter_mut().zip(values.chunks_exact(S::LANES)) {
            *number = simd.to_int(simd.mul(simd.load(values), factor));
        }
        // SAFETY: four times `LANES` bytes were sliced, and the numbers are within -127..=127.
        unsafe { simd.store_bytes(numbers, offset, bytes.as_mut_ptr()) };
    }
}

/// The bits of the magnitudes, which order like them, with infinity above all numbers and NaN above infinity.
#[inline(always)]
pub(crate) fn magnitude_bits<S: Simd>(simd: S, value: S::F) -> S::I {
    simd.and_int(simd.bits(value), simd.splat_int(i32::MAX))
}

/// The largest magnitude; not finite if any value is not.
#[inline(always)]
fn largest_magnitude<S: Simd>(simd: S, row: &[&[f32]]) -> f32 {
    let mut largest = simd.splat_int(0);
    for run in row {
        let mut chunks = run.chunks_exact(S::LANES);
        for chunk in &mut chunks {
            largest = simd.max_int(largest, magnitude_bits(simd, simd.load(chunk)));
        }
        let rest = simd.load_partial(chunks.remainder());
        largest = simd.max_int(largest, magnitude_bits(simd, rest));
    }
    f32::from_bits(simd.reduce_max_int(largest) as u32)
}
