//! The transform with the 128-bit vectors that every x86-64 processor has.

use std::arch::x86_64::{
    __m128i, _mm_add_epi8, _mm_add_epi16, _mm_add_epi32, _mm_cmpeq_epi16, _mm_madd_epi16,
    _mm_movemask_epi8, _mm_mullo_epi16, _mm_or_si128, _mm_packs_epi16, _mm_packs_epi32,
    _mm_set1_epi8, _mm_set1_epi32, _mm_setzero_si128, _mm_slli_epi16, _mm_srai_epi32,
    _mm_sub_epi16, _mm_sub_epi32, _mm_unpackhi_epi16, _mm_unpackhi_epi32, _mm_unpackhi_epi64,
    _mm_unpacklo_epi16, _mm_unpacklo_epi32, _mm_unpacklo_epi64,
};

use super::constants::*;
use super::{CONSTANT_BITS, FIRST_SHIFT, PASS_BITS, SECOND_SHIFT, Steps, Target};
use crate::frame::{Block, SIDE};

/// Eight rows, or columns, of 16-bit values.
type Lines = [__m128i; SIDE];

/// 32-bit values of a line: its lower and its upper half.
#[derive(Clone, Copy)]
struct Wide {
    low: __m128i,
    high: __m128i,
}

impl Wide {
    #[inline]
    #[target_feature(enable = "sse2")]
    fn add(self, other: Wide) -> Wide {
        Wide { low: _mm_add_epi32(self.low, other.low), high: _mm_add_epi32(self.high, other.high) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn sub(self, other: Wide) -> Wide {
        Wide { low: _mm_sub_epi32(self.low, other.low), high: _mm_sub_epi32(self.high, other.high) }
    }

    /// Rounds, drops `SHIFT` bits and saturates.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn narrow<const SHIFT: i32>(self) -> __m128i {
        let half = _mm_set1_epi32(1 << (SHIFT - 1));
        let low = _mm_srai_epi32::<SHIFT>(_mm_add_epi32(self.low, half));
        let high = _mm_srai_epi32::<SHIFT>(_mm_add_epi32(self.high, half));
        _mm_packs_epi32(low, high)
    }
}

/// `a * by + b * with`.
#[inline]
#[target_feature(enable = "sse2")]
fn pair(a: __m128i, by: i16, b: __m128i, with: i16) -> Wide {
    let factors = _mm_set1_epi32(i32::from(with) << 16 | i32::from(by as u16));
    Wide {
        low: _mm_madd_epi16(_mm_unpacklo_epi16(a, b), factors),
        high: _mm_madd_epi16(_mm_unpackhi_epi16(a, b), factors),
    }
}

/// `value * 2^13`.
#[inline]
#[target_feature(enable = "sse2")]
fn wide(value: __m128i) -> Wide {
    const DOWN: i32 = 16 - CONSTANT_BITS as i32;
    let zero = _mm_setzero_si128();
    Wide {
        low: _mm_srai_epi32::<DOWN>(_mm_unpacklo_epi16(zero, value)),
        high: _mm_srai_epi32::<DOWN>(_mm_unpackhi_epi16(zero, value)),
    }
}

/// The one-dimensional transform of eight lines at once: across the vectors.
#[inline]
#[target_feature(enable = "sse2")]
fn lines_transform<const SHIFT: i32>(x: Lines) -> Lines {
    // Even part.
    let sum = wide(_mm_add_epi16(x[0], x[4]));
    let difference = wide(_mm_sub_epi16(x[0], x[4]));
    let outer = pair(x[2], F_0_541 + F_0_765, x[6], F_0_541);
    let inner = pair(x[2], F_0_541, x[6], F_0_541 - F_1_847);
    let even = [sum.add(outer), difference.add(inner), difference.sub(inner), sum.sub(outer)];
    // Odd part.
    let (z3, z4) = (_mm_add_epi16(x[7], x[3]), _mm_add_epi16(x[5], x[1]));
    let a = pair(z3, F_1_175 - F_1_961, z4, F_1_175);
    let b = pair(z3, F_1_175, z4, F_1_175 - F_0_390);
    let odd = [
        pair(x[7], -F_0_899, x[1], F_1_501 - F_0_899).add(b),
        pair(x[5], -F_2_562, x[3], F_3_072 - F_2_562).add(a),
        pair(x[5], F_2_053 - F_2_562, x[3], -F_2_562).add(b),
        pair(x[7], F_0_298 - F_0_899, x[1], -F_0_899).add(a),
    ];
    [
        even[0].add(odd[0]).narrow::<SHIFT>(),
        even[1].add(odd[1]).narrow::<SHIFT>(),
        even[2].add(odd[2]).narrow::<SHIFT>(),
        even[3].add(odd[3]).narrow::<SHIFT>(),
        even[3].sub(odd[3]).narrow::<SHIFT>(),
        even[2].sub(odd[2]).narrow::<SHIFT>(),
        even[1].sub(odd[1]).narrow::<SHIFT>(),
        even[0].sub(odd[0]).narrow::<SHIFT>(),
    ]
}

#[inline]
#[target_feature(enable = "sse2")]
fn transpose(x: Lines) -> Lines {
    let low = |a: usize, b: usize| _mm_unpacklo_epi16(x[a], x[b]);
    let high = |a: usize, b: usize| _mm_unpackhi_epi16(x[a], x[b]);
    // Pairs of rows: columns 0 to 3 and 4 to 7.
    let (a, b, c, d) = (low(0, 1), low(2, 3), low(4, 5), low(6, 7));
    let (e, f, g, h) = (high(0, 1), high(2, 3), high(4, 5), high(6, 7));
    // Rows 0 to 3 and 4 to 7 of two columns each.
    let top = [
        _mm_unpacklo_epi32(a, b),
        _mm_unpackhi_epi32(a, b),
        _mm_unpacklo_epi32(e, f),
        _mm_unpackhi_epi32(e, f),
    ];
    let bottom = [
        _mm_unpacklo_epi32(c, d),
        _mm_unpackhi_epi32(c, d),
        _mm_unpacklo_epi32(g, h),
        _mm_unpackhi_epi32(g, h),
    ];
    [
        _mm_unpacklo_epi64(top[0], bottom[0]),
        _mm_unpackhi_epi64(top[0], bottom[0]),
        _mm_unpacklo_epi64(top[1], bottom[1]),
        _mm_unpackhi_epi64(top[1], bottom[1]),
        _mm_unpacklo_epi64(top[2], bottom[2]),
        _mm_unpackhi_epi64(top[2], bottom[2]),
        _mm_unpacklo_epi64(top[3], bottom[3]),
        _mm_unpackhi_epi64(top[3], bottom[3]),
    ]
}

#[inline]
#[target_feature(enable = "sse2")]
fn is_zero(value: __m128i) -> bool {
    _mm_movemask_epi8(_mm_cmpeq_epi16(value, _mm_setzero_si128())) == 0xffff
}

/// Writes the samples of a block.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn transform(block: &Block, steps: &Steps, mut target: Target<'_>) {
    let rows: Lines = bytemuck::cast(*block);
    let steps: Lines = bytemuck::cast(*steps);
    let below = rows[2..].iter().fold(rows[1], |all, &row| _mm_or_si128(all, row));
    let first = _mm_mullo_epi16(rows[0], steps[0]);
    let columns = if is_zero(below) {
        if block[1..SIDE].iter().all(|&coefficient| coefficient == 0) {
            return constant(
                block[0].wrapping_mul(bytemuck::cast::<_, [i16; 8]>(steps[0])[0]),
                target,
            );
        }
        // Constant columns; these wrap where the full transform saturates.
        transpose([_mm_slli_epi16::<{ PASS_BITS as i32 }>(first); SIDE])
    } else {
        let mut lines = [first; SIDE];
        for index in 1..SIDE {
            lines[index] = _mm_mullo_epi16(rows[index], steps[index]);
        }
        transpose(lines_transform::<{ FIRST_SHIFT as i32 }>(lines))
    };
    let rows = transpose(lines_transform::<{ SECOND_SHIFT as i32 }>(columns));
    let middle = _mm_set1_epi8(-128);
    for pair in 0..SIDE / 2 {
        let packed = _mm_packs_epi16(rows[2 * pair], rows[2 * pair + 1]);
        let samples: [[u8; SIDE]; 2] = bytemuck::cast(_mm_add_epi8(packed, middle));
        target.row(2 * pair).copy_from_slice(&samples[0]);
        target.row(2 * pair + 1).copy_from_slice(&samples[1]);
    }
}

/// A block with a DC coefficient only: both passes are shifts.
#[inline]
#[target_feature(enable = "sse2")]
fn constant(dc: i16, mut target: Target<'_>) {
    let value = (i32::from(dc << PASS_BITS) + (1 << (PASS_BITS + 2))) >> (PASS_BITS + 3);
    let sample = (value.clamp(-128, 127) + 128) as u8;
    for row in 0..SIDE {
        target.row(row).fill(sample);
    }
}
