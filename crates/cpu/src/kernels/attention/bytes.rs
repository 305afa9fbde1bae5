//! Copies of queries, keys and values as bytes.
//!
//! Each query and each key has a scale, as the rows of `gemm::int8`, whose module defines scales and rounding; each channel of the
//! values has one per block of keys. Queries are kept as unsigned bytes, 128 more than their numbers, and the sums of a key begin with
//! what cancels that. The mean of some keys is subtracted from all of them: it changes all scores of a query alike, which softmax
//! does not see, and numbers around zero lose less in rounding.
//!
//! Weights are unsigned bytes relative to the largest weight of their block (see `softmax`). All sums are exact integers.

use std::ops::Range;

use super::half::{RowCopies, load_row};
use crate::gemm::int8::{lane_scales, magnitude_bits};
use crate::simd::{Interleave, Kernel, MAX_LANES, Simd};

/// What is added to the numbers of queries, to make them unsigned.
const OFFSET: i32 = 1 << OFFSET_BITS;
const OFFSET_BITS: u32 = 7;

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
    pub(super) shift: KeyShift<'a>,
}

/// What is subtracted from each key, and memory for `LANES` keys: rows padded to whole vectors.
pub(super) struct KeyShift<'a> {
    pub(super) row: &'a [f32],
    pub(super) shifted: &'a mut [f32],
}

impl Kernel for ByteKeys<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let count = self.copies.count();
        for first in (0..count).step_by(S::LANES) {
            let keys = first..count.min(first + S::LANES);
            let largest = self.subtract(simd, keys.clone());
            let (scales, inverses) = lane_scales(simd, simd.from_bits(largest));
            simd.store_partial(scales, &mut self.terms.scales[keys.clone()]);
            let sums = self.round(simd, keys.clone(), inverses);
            let starts = simd.sub_int(simd.splat_int(0), simd.shift_left(sums, OFFSET_BITS));
            simd.store_partial(simd.from_bits(starts), &mut self.terms.starts[keys]);
        }
    }
}

impl ByteKeys<'_> {
    /// Subtracts the shift from keys. Returns the bits of the largest magnitude of each key, one key per lane.
    #[inline(always)]
    fn subtract<S: Simd>(&mut self, simd: S, keys: Range<usize>) -> S::I {
        let KeyShift { row: shift, shifted } = &mut self.shift;
        let mut largest = Square::new();
        for (lane, number) in keys.enumerate() {
            let row = self.copies.row(number);
            let shifted = &mut shifted[lane * shift.len()..][..shift.len()];
            let mut bits = simd.splat_int(0);
            for first in (0..row.len()).step_by(S::LANES) {
                let value = simd.sub(load_row(simd, row, first), simd.load(&shift[first..]));
                bits = simd.max_int(bits, magnitude_bits(simd, value));
                simd.store(value, &mut shifted[first..]);
            }
            largest.set_row(simd, lane, bits);
        }
        largest.turn(simd);
        let mut bits = simd.splat_int(0);
        for column in 0..S::LANES {
            bits = simd.max_int(bits, largest.row(simd, column));
        }
        bits
    }

    /// Multiplies keys by the inverses of their scales, one per lane, and writes them as bytes. Returns the sum of the bytes of each.
    #[inline(always)]
    fn round<S: Simd>(&mut self, simd: S, keys: Range<usize>, inverses: S::F) -> S::I {
        let mut inverse_of = [0.0; MAX_LANES];
        simd.store(inverses, &mut inverse_of);
        let width = self.copies.width();
        let padded = self.shift.row.len();
        let mut sums = Square::new();
        for (lane, number) in keys.enumerate() {
            let shifted = &mut self.shift.shifted[lane * padded..][..padded];
            if inverse_of[lane] == 0.0 {
                // Zero times a number that is not finite is none.
                shifted.fill(0.0);
            }
            let inverse = simd.splat(inverse_of[lane]);
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(self.copies.out_from(number));
            let mut sum = simd.splat_int(0);
            for first in (0..width).step_by(S::LANES) {
                let rounded = simd.to_int(simd.mul(simd.load(&shifted[first..]), inverse));
                sum = simd.add_int(sum, rounded);
                let target = bytes[first..][..S::LANES].as_mut_ptr();
                // SAFETY: `LANES` bytes were sliced.
                unsafe { simd.store_low_bytes(rounded, target) };
            }
            sums.set_row(simd, lane, sum);
        }
        sums.turn(simd);
        let mut sum = simd.splat_int(0);
        for column in 0..S::LANES {
            sum = simd.add_int(sum, sums.row(simd, column));
        }
        sum
    }
}

/// A vector of integers for each of `LANES` rows, zero at first.
#[repr(align(64))]
struct Square([f32; MAX_LANES * MAX_LANES]);

impl Square {
    #[inline(always)]
    fn new() -> Square {
        Square([0.0; MAX_LANES * MAX_LANES])
    }

    #[inline(always)]
    fn set_row<S: Simd>(&mut self, simd: S, row: usize, bits: S::I) {
        simd.store(simd.from_bits(bits), &mut self.0[row * S::LANES..]);
    }

    #[inline(always)]
    fn row<S: Simd>(&self, simd: S, row: usize) -> S::I {
        simd.bits(simd.load(&self.0[row * S::LANES..]))
    }

    /// Transposes the rows.
    #[inline(always)]
    fn turn<S: Simd>(&mut self, simd: S) {
        let rows = Square(self.0);
        let starts: [*const f32; MAX_LANES] =
            std::array::from_fn(|row| rows.0.as_ptr().wrapping_add(row % S::LANES * S::LANES));
        let block = Interleave {
            rows: &starts[..S::LANES],
            column: 0,
            panel_rows: S::LANES,
            out: self.0.as_mut_ptr(),
        };
        // SAFETY: both squares hold `LANES` rows of `LANES` elements.
        unsafe { simd.interleave(block) };
    }
}

/// How many vectors of channels are copied at a time.
const TOGETHER: usize = 4;

/// Copies values as groups of four bytes of neighbouring keys, in panels of `LANES` channels: `[panel][group][LANES]`. A last group and
/// a last panel are filled up with zeros.
pub(super) struct ByteValues<'a> {
    /// The stride is that of the panels.
    pub(super) copies: RowCopies<'a>,
    /// The scale of each channel; whole vectors.
    pub(super) scales: &'a mut [f32],
}

impl Kernel for ByteValues<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let width = self.copies.width();
        let mut first = 0;
        while first + TOGETHER * S::LANES <= width {
            self.copy::<S, TOGETHER>(simd, first);
            first += TOGETHER * S::LANES;
        }
        while first < width {
            self.copy::<S, 1>(simd, first);
            first += S::LANES;
        }
    }
}

impl ByteValues<'_> {
    /// Copies `PARTS` vectors of channels from `first` on.
    #[inline(always)]
    fn copy<S: Simd, const PARTS: usize>(&mut self, simd: S, first: usize) {
        let count = self.copies.count();
        let mut largest = [simd.splat_int(0); PARTS];
        for number in 0..count {
            let row = self.copies.row(number);
            for (part, largest) in largest.iter_mut().enumerate() {
                let value = load_row(simd, row, first + part * S::LANES);
                *largest = simd.max_int(*largest, magnitude_bits(simd, value));
            }
        }
        let mut inverses = [simd.splat(0.0); PARTS];
        for (part, inverse) in inverses.iter_mut().enumerate() {
            let (scale, factor) = lane_scales(simd, simd.from_bits(largest[part]));
            simd.store(scale, &mut self.scales[first + part * S::LANES..]);
            *inverse = factor;
        }
        for group in 0..count / 4 {
            self.copy_group::<S, PARTS, 4>(simd, (first, group), &inverses);
        }
        let whole = count / 4;
        match count % 4 {
            0 => {}
            1 => self.copy_group::<S, PARTS, 1>(simd, (first, whole), &inverses),
            2 => self.copy_group::<S, PARTS, 2>(simd, (first, whole), &inverses),
            _ => self.copy_group::<S, PARTS, 3>(simd, (first, whole), &inverses),
        }
    }

    /// Copies a group of `KEYS` keys.
    #[inline(always)]
    fn copy_group<S: Simd, const PARTS: usize, const KEYS: usize>(
        &mut self,
        simd: S,
        (first, group): (usize, usize),
        inverses: &[S::F; PARTS],
    ) {
        let rows: [&[f32]; KEYS] = std::array::from_fn(|key| self.copies.row(4 * group + key));
        for (part, &inverse) in inverses.iter().enumerate() {
            let channel = first + part * S::LANES;
            let mut numbers = [simd.splat_int(0); 4];
            for (number, row) in numbers.iter_mut().zip(rows) {
                *number = simd.to_int(simd.mul(load_row(simd, row, channel), inverse));
            }
            let word = simd.from_bits(join_bytes(simd, numbers));
            simd.store(word, &mut self.copies.out(channel / S::LANES)[group * S::LANES..]);
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
