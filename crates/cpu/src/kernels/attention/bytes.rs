//! Copies of queries, keys and values as bytes.
//!
//! Each query and each key has a scale, as the rows of `gemm::int8`, whose module defines scales and rounding; each channel of the
//! values has one per block of keys. Queries are kept as unsigned bytes, 128 more than their numbers, and the sums of a key begin with
//! what cancels that. The mean of some keys is subtracted from all of them: it changes all scores of a query alike, which softmax
//! does not see, and numbers around zero lose less in rounding.
//!
//! Weights are unsigned bytes relative to the largest weight of their block (see `softmax`). All sums are exact integers.

use super::half::RowCopies;
use crate::gemm::int8::{lane_scales, magnitude_bits, scale_of};
use crate::simd::{Kernel, Simd};

/// What is added to the numbers of queries, to make them unsigned.
const OFFSET: i32 = 128;

/// Replaces `width` rows of a panel of queries, `[rows][stride]`, by groups of four bytes, `[rows / 4][stride]`.
pub(super) struct BytePanel<'a> {
    /// Its rows from `width` to the next multiple of `LANES` are zero.
    pub(super) panel: &'a mut [f32],
    pub(super) width: usize,
    /// Factor of the scores.
    pub(super) factor: f32,
    /// The scale of each query times the factor; whole vectors.
    pub(super) scales: &'a mut [f32],
}

impl Kernel for BytePanel<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let BytePanel { panel, width, factor, scales } = self;
        let stride = scales.len();
        for column in (0..stride).step_by(S::LANES) {
            let mut largest = simd.splat_int(0);
            for row in 0..width {
                let value = simd.load(&panel[row * stride + column..]);
                largest = simd.max_int(largest, magnitude_bits(simd, value));
            }
            let (scale, inverse) = lane_scales(simd, simd.from_bits(largest));
            simd.store(simd.mul(scale, simd.splat(factor)), &mut scales[column..]);
            for group in 0..width.div_ceil(4) {
                let mut numbers = [simd.splat_int(0); 4];
                for (index, number) in numbers.iter_mut().enumerate() {
                    let value = simd.load(&panel[(4 * group + index) * stride + column..]);
                    let rounded = simd.to_int(simd.mul(value, inverse));
                    *number = simd.add_int(rounded, simd.splat_int(OFFSET));
                }
                let word = simd.from_bits(join_bytes(simd, numbers));
                simd.store(word, &mut panel[group * stride + column..]);
            }
        }
    }
}

/// The low bytes of four vectors in each lane, the first in the lowest place.
#[inline(always)]
fn join_bytes<S: Simd>(simd: S, numbers: [S::I; 4]) -> S::I {
    let mut word = simd.shift_left(numbers[3], 24);
    for (place, &number) in numbers[..3].iter().enumerate() {
        let byte = simd.and_int(number, simd.splat_int(255));
        word = simd.or_int(word, simd.shift_left(byte, 8 * place as u32));
    }
    word
}

/// What makes scores of the integer sums of a block's keys.
pub(super) struct KeyTerms<'a> {
    /// The scale of each key.
    pub(super) scales: &'a mut [f32],
    /// What the sums of each key begin with, as the bits of an `i32`.
    pub(super) starts: &'a mut [f32],
}

/// Copies keys less a shift as groups of four bytes, one group for each word of the copies' stride.
pub(super) struct ByteKeys<'a> {
    /// Followed by room for a vector of bytes.
    pub(super) copies: RowCopies<'a>,
    pub(super) terms: KeyTerms<'a>,
    /// What is subtracted from each key, and memory for a key: `width` elements each, padded to whole vectors.
    pub(super) shift: [&'a mut [f32]; 2],
}

impl Kernel for ByteKeys<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let ByteKeys { mut copies, terms, shift: [shift, shifted] } = self;
        for number in 0..copies.count() {
            let row = copies.row(number);
            let mut largest = simd.splat_int(0);
            for first in (0..row.len()).step_by(S::LANES) {
                let value = simd.sub(simd.load_partial(&row[first..]), simd.load(&shift[first..]));
                largest = simd.max_int(largest, magnitude_bits(simd, value));
                simd.store(value, &mut shifted[first..]);
            }
            let (scale, inverse) = scale_of(f32::from_bits(simd.reduce_max_int(largest) as u32));
            let mut sums = simd.splat_int(0);
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(copies.out_from(number));
            for first in (0..row.len()).step_by(S::LANES) {
                let value = simd.mul(simd.load(&shifted[first..]), simd.splat(inverse));
                // Zero times a number that is not finite is none.
                let value = if inverse == 0.0 { simd.splat(0.0) } else { value };
                let rounded = simd.to_int(value);
                sums = simd.add_int(sums, rounded);
                let target = bytes[first..][..S::LANES].as_mut_ptr();
                // SAFETY: `LANES` bytes were sliced.
                unsafe { simd.store_low_bytes(rounded, target) };
            }
            let sum = simd.reduce_sum(simd.to_float(sums)) as i32;
            terms.scales[number] = scale;
            terms.starts[number] = f32::from_bits((-OFFSET * sum) as u32);
        }
    }
}

/// Copies values as groups of four bytes of neighbouring keys, channel by channel, padded with zeros to the copies' stride. A last
/// group is filled up with zeros.
pub(super) struct ByteValues<'a> {
    pub(super) copies: RowCopies<'a>,
    /// The scale of each channel, padded with zeros to the copies' stride.
    pub(super) scales: &'a mut [f32],
}

impl Kernel for ByteValues<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let ByteValues { mut copies, scales } = self;
        let (count, width) = (copies.count(), copies.width());
        scales[width..].fill(0.0);
        for first in (0..width).step_by(S::LANES) {
            let mut largest = simd.splat_int(0);
            for number in 0..count {
                let value = simd.load_partial(&copies.row(number)[first..]);
                largest = simd.max_int(largest, magnitude_bits(simd, value));
            }
            let (scale, inverse) = lane_scales(simd, simd.from_bits(largest));
            simd.store_partial(scale, &mut scales[first..width]);
            for group in 0..count.div_ceil(4) {
                let mut numbers = [simd.splat_int(0); 4];
                for (number, key) in numbers.iter_mut().zip(4 * group..count) {
                    let value = simd.load_partial(&copies.row(key)[first..]);
                    *number = simd.to_int(simd.mul(value, inverse));
                }
                let word = simd.from_bits(join_bytes(simd, numbers));
                simd.store_partial(word, &mut copies.out(group)[first..width]);
            }
        }
        for group in 0..count.div_ceil(4) {
            copies.out(group)[width..].fill(0.0);
        }
    }
}

/// The mean of rows, or zeros without rows.
pub(super) struct MeanRow<'a> {
    rows: &'a [*const f32],
    out: &'a mut [f32],
}

impl<'a> MeanRow<'a> {
    /// # Safety
    /// Each row has as many readable elements as `out`, none of them in `out`.
    pub(super) unsafe fn new(rows: &'a [*const f32], out: &'a mut [f32]) -> Self {
        MeanRow { rows, out }
    }
}

impl Kernel for MeanRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let MeanRow { rows, out } = self;
        let inverse = simd.splat(1.0 / rows.len().max(1) as f32);
        for first in (0..out.len()).step_by(S::LANES) {
            let count = S::LANES.min(out.len() - first);
            let mut sum = simd.splat(0.0);
            for row in rows {
                // SAFETY: the contract of `new` vouches for the elements of the row.
                let value = unsafe { simd.load_partial_pointer(row.wrapping_add(first), count) };
                sum = simd.add(sum, value);
            }
            simd.store_partial(simd.mul(sum, inverse), &mut out[first..]);
        }
    }
}
