//! Quantises rows of floats to bytes with a scale.

use cutout_graph::ops::SMALLEST_ROW;

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

/// Quantises one row of the left operand to bytes with the offset added, padded with the offset to the length of `out`.
/// Returns the row's scale.
pub(super) fn quantize_row(isa: Isa, row: &[f32], out: &mut [u8], offset: Offset) -> f32 {
    assert!(out.len() >= row.len());
    dispatch(isa, QuantizeRow { row, out, offset })
}

struct QuantizeRow<'a> {
    row: &'a [f32],
    out: &'a mut [u8],
    offset: Offset,
}

impl Kernel for QuantizeRow<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        let QuantizeRow { row, out, offset } = self;
        let offset = if offset == Offset::None { 0 } else { S::DOT_OFFSET };
        out[row.len()..].fill(offset as u8);
        let (scale, factor) = scale_of(largest_magnitude(simd, row));
        if factor == 0.0 {
            out[..row.len()].fill(offset as u8);
            return scale;
        }
        let (vectors, offsets) = (simd.splat(factor), simd.splat_int(offset));
        let whole = row.len() - row.len() % S::LANES;
        let mut index = 0;
        while index < whole {
            let value = simd.mul(simd.load(&row[index..]), vectors);
            let bytes = simd.add_int(simd.to_int(value), offsets);
            let target = out[index..][..S::LANES].as_mut_ptr();
            // SAFETY: `LANES` bytes were sliced.
            unsafe { simd.store_low_bytes(bytes, target) };
            index += S::LANES;
        }
        for (byte, &value) in out[whole..].iter_mut().zip(&row[whole..]) {
            *byte = ((value * factor).round_ties_even() as i32 + offset) as u8;
        }
        scale
    }
}

/// The bits of the magnitudes, which order like them, with infinity above all numbers and NaN above infinity.
#[inline(always)]
pub(crate) fn magnitude_bits<S: Simd>(simd: S, value: S::F) -> S::I {
    simd.and_int(simd.bits(value), simd.splat_int(i32::MAX))
}

/// The largest magnitude; not finite if any value is not.
#[inline(always)]
fn largest_magnitude<S: Simd>(simd: S, row: &[f32]) -> f32 {
    let mut largest = simd.splat_int(0);
    let mut chunks = row.chunks_exact(S::LANES);
    for chunk in &mut chunks {
        largest = simd.max_int(largest, magnitude_bits(simd, simd.load(chunk)));
    }
    largest = simd.max_int(largest, magnitude_bits(simd, simd.load_partial(chunks.remainder())));
    f32::from_bits(simd.reduce_max_int(largest) as u32)
}
