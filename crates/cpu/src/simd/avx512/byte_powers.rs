//! Powers of two as bytes, computed in 16-bit lanes: a register holds twice as many of them as numbers in single precision.

use std::arch::x86_64::*;

use super::Avx512;
use crate::simd::Simd;

/// How many of the 16 bits of an exponent are its fraction.
const FRACTION_BITS: u32 = 11;

/// `2^-f · 255 · 128` for a fraction `f` in units of `2^-16`, by Horner's rule with the high halves of products; relative error 2e-4.
const COEFFICIENTS: [i16; 4] = [32_641, 22_560, 7_488, 1_250];

/// The order in which each 128 bits, read as four rows of four bytes, are transposed.
static TURNED: [u8; 64] = {
    let mut order = [0; 64];
    let mut place = 0;
    while place < 64 {
        let inside = place % 16;
        order[place] = (inside % 4 * 4 + inside / 4) as u8;
        place += 1;
    }
    order
};

/// See [`Simd::byte_powers`].
#[inline(always)]
pub(super) fn byte_powers<const BF16: bool>(
    simd: Avx512<BF16>,
    scores: [__m512; 4],
    origin: __m512,
) -> (__m512i, __m512)
where
    Avx512<BF16>: Simd<F = __m512, I = __m512i>,
{
    let scale = (1 << FRACTION_BITS) as f32;
    let origin = simd.mul(origin, simd.splat(scale));
    let scale = simd.splat(-scale);
    let [a, b, c, d] = scores;
    // None is negative, so that their sum is NaN only if one of them is.
    let [a, b, c, d] = [
        simd.fma(a, scale, origin),
        simd.fma(b, scale, origin),
        simd.fma(c, scale, origin),
        simd.fma(d, scale, origin),
    ];
    let marks = simd.add(simd.add(a, b), simd.add(c, d));
    // Infinity, NaN and large numbers become -2^31, of which packing makes 2^15: a shift by 16 bits, which gives zero.
    let [a, b, c, d] = [simd.to_int(a), simd.to_int(b), simd.to_int(c), simd.to_int(d)];
    // SAFETY: `simd` is proof that the machine has the instructions.
    let words = unsafe { words_of([a, b, c, d]) };
    (words, marks)
}

/// The bytes of four vectors of exponents, in the places of each lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn words_of([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let [low, high] = [powers(_mm512_packs_epi32(a, b)), powers(_mm512_packs_epi32(c, d))];
    // SAFETY: the table has 64 bytes.
    let order = unsafe { _mm512_loadu_si512(TURNED.as_ptr().cast()) };
    _mm512_shuffle_epi8(_mm512_packus_epi16(low, high), order)
}

/// `round(255 · 2^-x)` for exponents of 5 and 11 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn powers(exponents: __m512i) -> __m512i {
    let fraction = _mm512_slli_epi16::<{ 16 - FRACTION_BITS }>(exponents);
    let [first, second, third, fourth] = COEFFICIENTS;
    let mut value = _mm512_set1_epi16(fourth);
    for coefficient in [third, second, first] {
        value =
            _mm512_sub_epi16(_mm512_set1_epi16(coefficient), _mm512_mulhi_epu16(fraction, value));
    }
    let places = _mm512_srli_epi16::<{ FRACTION_BITS }>(exponents);
    // Divides by 128 and rounds.
    _mm512_mulhrs_epi16(_mm512_srlv_epi16(value, places), _mm512_set1_epi16(256))
}
