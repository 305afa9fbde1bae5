//! The conversion with the 128-bit vectors that every x86-64 processor has.

use std::arch::x86_64::{
    __m128i, _mm_add_epi16, _mm_add_epi32, _mm_and_si128, _mm_madd_epi16, _mm_mulhi_epi16,
    _mm_or_si128, _mm_packs_epi32, _mm_packus_epi16, _mm_set_epi32, _mm_set1_epi16, _mm_set1_epi32,
    _mm_set1_epi64x, _mm_setzero_si128, _mm_shuffle_epi8, _mm_slli_si128, _mm_srai_epi16,
    _mm_srai_epi32, _mm_srli_epi64, _mm_srli_si128, _mm_sub_epi16, _mm_unpackhi_epi8,
    _mm_unpackhi_epi16, _mm_unpacklo_epi8, _mm_unpacklo_epi16,
};

use super::{BLUE_BY_BLUE, GREEN_BY_BLUE, GREEN_BY_RED, RED_BY_RED};

/// Pixels of a step.
const STEP: usize = 16;

/// Converts a row; see [`super::plain`].
#[target_feature(enable = "sse2")]
pub(super) fn from_ycc(luma: &[u8], blue: &[u8], red: &[u8], rgb: &mut [u8]) {
    let (steps, rest) = rgb.as_chunks_mut::<{ 3 * STEP }>();
    let sources = luma.as_chunks().0.iter().zip(blue.as_chunks().0).zip(red.as_chunks().0);
    for (out, ((luma, blue), red)) in steps.iter_mut().zip(sources) {
        let [red, green, blue] = step(luma, blue, red);
        *out = interleave(red, green, blue);
    }
    let [red, green, blue] = last_step(steps.len(), luma, blue, red);
    rest.copy_from_slice(&interleave(red, green, blue)[..rest.len()]);
}

/// The same with the byte shuffles of newer processors.
#[target_feature(enable = "ssse3")]
pub(super) fn from_ycc_by_shuffles(luma: &[u8], blue: &[u8], red: &[u8], rgb: &mut [u8]) {
    let (steps, rest) = rgb.as_chunks_mut::<{ 3 * STEP }>();
    let sources = luma.as_chunks().0.iter().zip(blue.as_chunks().0).zip(red.as_chunks().0);
    for (out, ((luma, blue), red)) in steps.iter_mut().zip(sources) {
        *out = shuffle(step(luma, blue, red));
    }
    let last = shuffle(last_step(steps.len(), luma, blue, red));
    rest.copy_from_slice(&last[..rest.len()]);
}

/// The pixels after `done` steps; those beyond the row have any colour.
#[target_feature(enable = "sse2")]
fn last_step(done: usize, luma: &[u8], blue: &[u8], red: &[u8]) -> [__m128i; 3] {
    let tail = |row: &[u8]| {
        let mut last = [0; STEP];
        let rest = row.get(done * STEP..).unwrap_or_default();
        let length = rest.len().min(STEP);
        last[..length].copy_from_slice(&rest[..length]);
        last
    };
    step(&tail(luma), &tail(blue), &tail(red))
}

/// Red, green and blue of 16 pixels.
#[inline]
#[target_feature(enable = "sse2")]
fn step(luma: &[u8; STEP], blue: &[u8; STEP], red: &[u8; STEP]) -> [__m128i; 3] {
    let (luma, blue, red): (__m128i, __m128i, __m128i) =
        (bytemuck::cast(*luma), bytemuck::cast(*blue), bytemuck::cast(*red));
    let zero = _mm_setzero_si128();
    let low = colours(
        _mm_unpacklo_epi8(luma, zero),
        _mm_unpacklo_epi8(blue, zero),
        _mm_unpacklo_epi8(red, zero),
    );
    let high = colours(
        _mm_unpackhi_epi8(luma, zero),
        _mm_unpackhi_epi8(blue, zero),
        _mm_unpackhi_epi8(red, zero),
    );
    std::array::from_fn(|index| _mm_packus_epi16(low[index], high[index]))
}

/// Where the bytes of a channel go in the third `part` of 16 pixels; the others become 0.
const fn places(channel: usize, part: usize) -> [u8; STEP] {
    let mut places = [0x80; STEP];
    let mut byte = 0;
    while byte < STEP {
        let place = part * STEP + byte;
        if place % 3 == channel {
            places[byte] = (place / 3) as u8;
        }
        byte += 1;
    }
    places
}

#[inline]
#[target_feature(enable = "ssse3")]
fn shuffle(channels: [__m128i; 3]) -> [u8; 3 * STEP] {
    const PLACES: [[[u8; STEP]; 3]; 3] = [
        [places(0, 0), places(1, 0), places(2, 0)],
        [places(0, 1), places(1, 1), places(2, 1)],
        [places(0, 2), places(1, 2), places(2, 2)],
    ];
    let [red, green, blue] = channels;
    let parts: [__m128i; 3] = std::array::from_fn(|part| {
        let [first, second, third] = PLACES[part].map(bytemuck::cast::<_, __m128i>);
        let pair = _mm_or_si128(_mm_shuffle_epi8(red, first), _mm_shuffle_epi8(green, second));
        _mm_or_si128(pair, _mm_shuffle_epi8(blue, third))
    });
    bytemuck::cast(parts)
}

/// Red, green and blue of eight pixels, before clamping.
#[inline]
#[target_feature(enable = "sse2")]
fn colours(luma: __m128i, blue: __m128i, red: __m128i) -> [__m128i; 3] {
    let middle = _mm_set1_epi16(128);
    let (blue, red) = (_mm_sub_epi16(blue, middle), _mm_sub_epi16(red, middle));
    // The constants exceed 16 bits: 1.402 is 1 + 0.402, 1.772 is 2 - 0.228.
    let red_part = _mm_add_epi16(red, rounded_product(red, (RED_BY_RED - 65536) as i16));
    let blue_part = rounded_product(blue, (BLUE_BY_BLUE - 131_072) as i16);
    let blue_part = _mm_add_epi16(_mm_add_epi16(blue, blue), blue_part);
    // -0.714 is 0.286 - 1.
    let factors = (65536 - GREEN_BY_RED) << 16 | i32::from(-GREEN_BY_BLUE as i16 as u16);
    let (factors, half) = (_mm_set1_epi32(factors), _mm_set1_epi32(1 << 15));
    let sum = |pairs| _mm_srai_epi32::<16>(_mm_add_epi32(_mm_madd_epi16(pairs, factors), half));
    let (low, high) = (_mm_unpacklo_epi16(blue, red), _mm_unpackhi_epi16(blue, red));
    let green_part = _mm_sub_epi16(_mm_packs_epi32(sum(low), sum(high)), red);
    [_mm_add_epi16(luma, red_part), _mm_add_epi16(luma, green_part), _mm_add_epi16(luma, blue_part)]
}

/// `value * factor / 2^16`, rounded to the nearest: twice the product, rounded down, is halved.
#[inline]
#[target_feature(enable = "sse2")]
fn rounded_product(value: __m128i, factor: i16) -> __m128i {
    let double = _mm_mulhi_epi16(_mm_add_epi16(value, value), _mm_set1_epi16(factor));
    _mm_srai_epi16::<1>(_mm_add_epi16(double, _mm_set1_epi16(1)))
}

#[inline]
#[target_feature(enable = "sse2")]
fn interleave(red: __m128i, green: __m128i, blue: __m128i) -> [u8; 3 * STEP] {
    let zero = _mm_setzero_si128();
    let (red_green, blue_zero) = (_mm_unpacklo_epi8(red, green), _mm_unpacklo_epi8(blue, zero));
    let a = without_fourth(_mm_unpacklo_epi16(red_green, blue_zero));
    let b = without_fourth(_mm_unpackhi_epi16(red_green, blue_zero));
    let (red_green, blue_zero) = (_mm_unpackhi_epi8(red, green), _mm_unpackhi_epi8(blue, zero));
    let c = without_fourth(_mm_unpacklo_epi16(red_green, blue_zero));
    let d = without_fourth(_mm_unpackhi_epi16(red_green, blue_zero));
    bytemuck::cast([
        _mm_or_si128(a, _mm_slli_si128::<12>(b)),
        _mm_or_si128(_mm_srli_si128::<4>(b), _mm_slli_si128::<8>(c)),
        _mm_or_si128(_mm_srli_si128::<8>(c), _mm_slli_si128::<4>(d)),
    ])
}

/// Four pixels of four bytes, of which the last is 0, to four of three bytes, followed by zeros.
#[inline]
#[target_feature(enable = "sse2")]
fn without_fourth(pixels: __m128i) -> __m128i {
    let first = _mm_and_si128(pixels, _mm_set1_epi64x(0xff_ffff));
    let second = _mm_srli_epi64::<8>(_mm_and_si128(pixels, _mm_set1_epi64x(!0xffff_ffff)));
    let pairs = _mm_or_si128(first, second);
    let lower = _mm_and_si128(pairs, _mm_set_epi32(0, 0, -1, -1));
    let upper = _mm_srli_si128::<2>(_mm_and_si128(pairs, _mm_set_epi32(-1, -1, 0, 0)));
    _mm_or_si128(lower, upper)
}
