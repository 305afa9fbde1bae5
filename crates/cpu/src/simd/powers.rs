//! Powers of two as bytes, by operations of every instruction set.

use super::Simd;
use crate::vecmath::{COARSE_EXP2, power_parts};

/// Largest byte.
const LARGEST: f32 = 255.0;

/// `255 · 2^x` for `|x| <= 1 / 2`, relative error 7.5e-5.
const BYTE_EXP2: [f32; 4] = {
    let mut coefficients = COARSE_EXP2;
    let mut term = 0;
    while term < coefficients.len() {
        coefficients[term] *= LARGEST;
        term += 1;
    }
    coefficients
};

/// See [`Simd::byte_powers`].
#[inline(always)]
pub(super) fn byte_powers<S: Simd>(simd: S, scores: [S::F; 4], origin: S::F) -> (S::I, S::F) {
    // A float of this size has no fraction bits: adding it rounds, and leaves the integer in the low bits.
    let shift = simd.splat(12_582_912.0);
    let (mut word, mut marks) = (simd.splat_int(0), simd.splat(0.0));
    for (place, score) in scores.into_iter().enumerate() {
        let exponent = simd.sub(score, origin);
        // No exponent is above zero, so that a sum of them is NaN only if one is.
        marks = simd.add(marks, exponent);
        let [value, power] = power_parts(simd, exponent, BYTE_EXP2);
        let byte = simd.and_int(simd.bits(simd.fma(value, power, shift)), simd.splat_int(255));
        word = simd.or_int(word, simd.shift_left(byte, 8 * place as u32));
    }
    (word, marks)
}

/// See [`Simd::add_bytes`].
#[inline(always)]
pub(super) fn add_bytes<S: Simd>(simd: S, sum: S::I, bytes: S::I) -> S::I {
    let mut sum = sum;
    for place in 0..4 {
        let byte = simd.and_int(simd.shift_right(bytes, 8 * place), simd.splat_int(255));
        sum = simd.add_int(sum, byte);
    }
    sum
}
