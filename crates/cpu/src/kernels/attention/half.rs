//! Copies of queries, keys and values in bf16.
//!
//! A product of pairs adds two steps of a sum at once: scores pair the channels of a head, weighted values pair the keys. A pair is
//! kept in the 32 bits of an `f32`, so that copies lie in the same scratch memory and are addressed alike.

use half::bf16;

use crate::simd::{Kernel, Simd};

/// Replaces `width` rows of a panel of queries, `[rows][stride]`, by their pairs, `[rows / 2][stride]`.
pub(super) struct PairPanel<'a> {
    /// Its rows from `width` to the next multiple of `LANES` are zero.
    pub(super) panel: &'a mut [f32],
    pub(super) width: usize,
    /// Whole vectors.
    pub(super) stride: usize,
}

impl Kernel for PairPanel<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let PairPanel { panel, width, stride } = self;
        for pair in 0..width.div_ceil(2) {
            for column in (0..stride).step_by(S::LANES) {
                let low = simd.load(&panel[2 * pair * stride + column..]);
                let high = simd.load(&panel[(2 * pair + 1) * stride + column..]);
                let words = simd.from_bits(simd.pair_bf16(low, high));
                simd.store(words, &mut panel[pair * stride + column..]);
            }
        }
    }
}

/// Rows of `width` elements in the inputs or in scratch memory, and their copies, `stride` elements apart.
pub(super) struct RowCopies<'a> {
    rows: &'a [*const f32],
    width: usize,
    stride: usize,
    out: &'a mut [f32],
}

impl<'a> RowCopies<'a> {
    /// # Safety
    /// Each row has `width` readable elements, none of them in `out`.
    pub(super) unsafe fn new(
        rows: &'a [*const f32],
        [width, stride]: [usize; 2],
        out: &'a mut [f32],
    ) -> Self {
        RowCopies { rows, width, stride, out }
    }

    /// Number of rows.
    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    /// Elements of a row.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// A row of the copies, which may be made of several rows.
    #[inline(always)]
    pub(super) fn out(&mut self, number: usize) -> &mut [f32] {
        &mut self.out[number * self.stride..][..self.stride]
    }

    /// The copies from a row on.
    #[inline(always)]
    pub(super) fn out_from(&mut self, number: usize) -> &mut [f32] {
        &mut self.out[number * self.stride..]
    }

    /// A row.
    #[inline(always)]
    pub(super) fn row(&self, number: usize) -> &'a [f32] {
        // SAFETY: the contract of `new` vouches for `width` elements outside of `out`.
        unsafe { std::slice::from_raw_parts(self.rows[number], self.width) }
    }
}

/// A vector of a row from element `first` on; zero in the lanes beyond the row.
#[inline(always)]
pub(super) fn load_row<S: Simd>(simd: S, row: &[f32], first: usize) -> S::F {
    let rest = &row[first..];
    if rest.len() >= S::LANES { simd.load(rest) } else { simd.load_partial(rest) }
}

/// Copies rows rounded to bf16 and kept as `f32`, each padded with zeros to `stride` elements.
pub(super) struct RoundRows<'a>(pub(super) RowCopies<'a>);

impl Kernel for RoundRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let RowCopies { width, stride, .. } = self.0;
        for number in 0..self.0.rows.len() {
            let row = self.0.row(number);
            let out = &mut self.0.out[number * stride..][..stride];
            for first in (0..width).step_by(S::LANES) {
                let value = simd.round_bf16(simd.load_partial(&row[first..]));
                simd.store_partial(value, &mut out[first..width]);
            }
            out[width..].fill(0.0);
        }
    }
}

/// Copies rows as pairs of neighbouring elements, `stride` pairs each; pairs beyond the last element are zero.
pub(super) struct PairElements<'a>(pub(super) RowCopies<'a>);

impl Kernel for PairElements<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let RowCopies { width, stride, .. } = self.0;
        let whole = width - width % (2 * S::LANES);
        for number in 0..self.0.rows.len() {
            let row = self.0.row(number);
            let out = &mut self.0.out[number * stride..][..stride];
            let out: &mut [bf16] = bytemuck::cast_slice_mut(out);
            for first in (0..whole).step_by(2 * S::LANES) {
                let (low, high) = (simd.load(&row[first..]), simd.load(&row[first + S::LANES..]));
                let target = out[first..][..2 * S::LANES].as_mut_ptr();
                // SAFETY: `2 * LANES` elements were sliced.
                unsafe { simd.store_bf16(low, high, target) };
            }
            for (target, &value) in out[whole..].iter_mut().zip(&row[whole..]) {
                *target = bf16::from_f32(value);
            }
            out[width..].fill(bf16::ZERO);
        }
    }
}

/// Copies neighbouring rows as pairs, element by element: `out[pair][i] = (rows[2 * pair][i], rows[2 * pair + 1][i])`, padded with
/// zeros to `stride` pairs. A last row without a neighbour is paired with zeros.
pub(super) struct PairRows<'a>(pub(super) RowCopies<'a>);

impl Kernel for PairRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let RowCopies { width, stride, .. } = self.0;
        for pair in 0..self.0.rows.len().div_ceil(2) {
            let low = self.0.row(2 * pair);
            let high =
                if 2 * pair + 1 < self.0.rows.len() { self.0.row(2 * pair + 1) } else { &[] };
            let out = &mut self.0.out[pair * stride..][..stride];
            for first in (0..width).step_by(S::LANES) {
                let low = simd.load_partial(&low[first..]);
                let high = simd.load_partial(high.get(first..).unwrap_or_default());
                let words = simd.from_bits(simd.pair_bf16(low, high));
                simd.store_partial(words, &mut out[first..width]);
            }
            out[width..].fill(0.0);
        }
    }
}

/// How many vectors of channels are copied at a time.
const TOGETHER: usize = 4;

/// Copies values as pairs of neighbouring keys, in panels of `LANES` channels: `[panel][pair][LANES]`. A last key without a neighbour is
/// paired with zeros, and a last panel is filled up with zeros. The stride of the copies is that of the panels.
pub(super) struct PairValues<'a>(pub(super) RowCopies<'a>);

impl Kernel for PairValues<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let width = self.0.width;
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

impl PairValues<'_> {
    /// Copies `PARTS` vectors of channels from `first` on.
    #[inline(always)]
    fn copy<S: Simd, const PARTS: usize>(&mut self, simd: S, first: usize) {
        let count = self.0.count();
        for pair in 0..count.div_ceil(2) {
            let low = self.0.row(2 * pair);
            let neighbour = 2 * pair + 1 < count;
            let second = if neighbour { self.0.row(2 * pair + 1) } else { low };
            for part in 0..PARTS {
                let channel = first + part * S::LANES;
                let low = load_row(simd, low, channel);
                let mut high = simd.splat(0.0);
                if neighbour {
                    high = load_row(simd, second, channel);
                }
                let words = simd.from_bits(simd.pair_bf16(low, high));
                simd.store(words, &mut self.0.out(channel / S::LANES)[pair * S::LANES..]);
            }
        }
    }
}
