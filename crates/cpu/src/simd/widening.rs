//! bf16 and bytes on instruction sets that lack them: rounding by integer operations, products by widening.

use half::bf16;

use super::{MAX_LANES, Simd};

/// The bits of each lane rounded to bf16, to nearest even, in the upper half; the lower half is not cleared. NaN stays NaN.
#[inline(always)]
pub(super) fn rounded_to_bf16<S: Simd>(simd: S, value: S::F) -> S::I {
    let bits = simd.bits(value);
    let odd = simd.and_int(simd.shift_right(bits, 16), simd.splat_int(1));
    let rounded = simd.add_int(bits, simd.add_int(odd, simd.splat_int(0x7FFF)));
    // A quiet NaN has this bit; rounding could carry out of the mantissa.
    let quiet = simd.or_int(bits, simd.splat_int(0x40_0000));
    let number = simd.equal(value, value);
    simd.bits(simd.select(number, simd.from_bits(rounded), simd.from_bits(quiet)))
}

/// The upper half of each lane, as `f32`.
#[inline(always)]
fn upper<S: Simd>(simd: S, pairs: S::I) -> S::F {
    simd.from_bits(simd.and_int(pairs, simd.splat_int(!0xFFFF)))
}

/// The lower half of each lane, as `f32`.
#[inline(always)]
fn lower<S: Simd>(simd: S, pairs: S::I) -> S::F {
    simd.from_bits(simd.shift_left(pairs, 16))
}

/// See [`Simd::dot2`].
#[inline(always)]
pub(super) fn widening_dot2<S: Simd>(simd: S, sum: S::F, left: S::I, right: S::I) -> S::F {
    let sum = simd.fma(upper(simd, left), upper(simd, right), sum);
    simd.fma(lower(simd, left), lower(simd, right), sum)
}

/// See [`Simd::dot4_unsigned`]. Products of bytes and their sums are exact in `f32`.
#[inline(always)]
pub(super) fn widening_dot4<S: Simd>(simd: S, sum: S::I, left: S::I, right: S::I) -> S::I {
    let mut total = simd.splat(0.0);
    for byte in 0..4 {
        let unsigned = simd.and_int(simd.shift_right(left, 8 * byte), simd.splat_int(255));
        let signed = simd.shift_right(simd.shift_left(right, 24 - 8 * byte), 24);
        total = simd.fma(simd.to_float(unsigned), simd.to_float(signed), total);
    }
    simd.add_int(sum, simd.to_int(total))
}

/// See [`Simd::pair_bf16`].
#[inline(always)]
pub(super) fn pair_rounded<S: Simd>(simd: S, low: S::F, high: S::F) -> S::I {
    let low = simd.shift_right(rounded_to_bf16(simd, low), 16);
    let high = simd.and_int(rounded_to_bf16(simd, high), simd.splat_int(!0xFFFF));
    simd.or_int(simd.and_int(low, simd.splat_int(0xFFFF)), high)
}

/// See [`Simd::store_bf16`].
///
/// # Safety
/// `target` is valid for writing `2 * LANES` elements.
#[inline(always)]
pub(super) unsafe fn store_rounded<S: Simd>(simd: S, low: S::F, high: S::F, target: *mut bf16) {
    let mut bits = [0; 2 * MAX_LANES];
    for (index, value) in [low, high].into_iter().enumerate() {
        let lanes = bits[index * S::LANES..][..S::LANES].as_mut_ptr();
        // SAFETY: `LANES` integers were sliced.
        unsafe { simd.store_int_pointer(rounded_to_bf16(simd, value), lanes) };
    }
    for (index, bits) in bits.into_iter().enumerate().take(2 * S::LANES) {
        let element = bf16::from_bits((bits as u32 >> 16) as u16);
        // SAFETY: the caller vouches for `2 * LANES` elements.
        unsafe { target.wrapping_add(index).write(element) };
    }
}
