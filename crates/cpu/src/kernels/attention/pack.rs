//! Rows of memory, side by side in the lanes of vectors.

use crate::simd::{Interleave, Kernel, Simd};

/// No vector has more lanes.
pub(super) const MOST_LANES: usize = 16;

/// Transposes rows into columns of `LANES` elements: `out[i * stride + lane] = rows[lane][i]`, and zero for the lanes without
/// a row. Columns from `width` to the next multiple of `LANES` are zero.
pub(super) struct PackRows<'a> {
    /// At most `LANES`, each of `width` readable elements.
    rows: &'a [*const f32],
    width: usize,
    columns: Columns<'a>,
}

/// Columns of `LANES` elements, `stride` elements apart. There are as many as a whole number of vectors has lanes.
pub(super) struct Columns<'a> {
    pub(super) out: &'a mut [f32],
    pub(super) stride: usize,
}

impl<'a> PackRows<'a> {
    /// # Safety
    /// Each row has `width` readable elements, none of them in `out`.
    pub(super) unsafe fn new(rows: &'a [*const f32], width: usize, columns: Columns<'a>) -> Self {
        PackRows { rows, width, columns }
    }
}

impl Kernel for PackRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let PackRows { rows, width, columns: Columns { out, stride } } = self;
        assert!(rows.len() <= S::LANES && stride >= S::LANES);
        let extent = (S::LANES - 1) * stride + S::LANES;
        let whole = width - width % S::LANES;
        let mut column = 0;
        while column < whole {
            let out = out[column * stride..][..extent].as_mut_ptr();
            let block = Interleave { rows, column, panel_rows: stride, out };
            // SAFETY: the rows reach to `width` by the contract of `new`; `out` was sliced to the extent of the block.
            unsafe { simd.interleave(block) };
            column += S::LANES;
        }
        if whole < width {
            let mut ends = [0.0; MOST_LANES * MOST_LANES];
            let mut starts = [std::ptr::null(); MOST_LANES];
            for (lane, &row) in rows.iter().enumerate() {
                let row = row.wrapping_add(whole);
                // SAFETY: these are the last elements of the row, for which the contract of `new` vouches.
                let end = unsafe { simd.load_partial_pointer(row, width - whole) };
                let copy = &mut ends[lane * S::LANES..][..S::LANES];
                simd.store(end, copy);
                starts[lane] = copy.as_ptr();
            }
            let out = out[whole * stride..][..extent].as_mut_ptr();
            let rows = &starts[..rows.len()];
            let block = Interleave { rows, column: 0, panel_rows: stride, out };
            // SAFETY: each copy has `LANES` elements; `out` was sliced to the extent of the block.
            unsafe { simd.interleave(block) };
        }
    }
}

/// Multiplies every element of whole vectors.
pub(super) struct Scale<'a> {
    pub(super) factor: f32,
    pub(super) values: &'a mut [f32],
}

impl Kernel for Scale<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let factor = simd.splat(self.factor);
        for vector in self.values.chunks_exact_mut(S::LANES) {
            simd.store(simd.mul(simd.load(vector), factor), vector);
        }
    }
}

/// Turns the pairs of channels of packed tokens: `(a, b) -> (a·cos - b·sin, a·sin + b·cos)`.
pub(super) struct Rotate<'a> {
    /// Packed cosines and sines, `[pairs][LANES]`.
    pub(super) rotations: [&'a [f32]; 2],
    /// How many pairs there are.
    pub(super) pairs: usize,
    /// Packed tokens, two columns for each pair.
    pub(super) tokens: Columns<'a>,
    /// The first lanes, so many, are rotated.
    pub(super) rotated: usize,
}

impl Kernel for Rotate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let last = simd.splat(self.rotated as f32);
        let rotated = simd.less(simd.load(&LANE_NUMBERS), last);
        let [cosines, sines] = self.rotations;
        let Columns { out, stride } = self.tokens;
        for pair in 0..self.pairs {
            let (first, second) = out[2 * pair * stride..].split_at_mut(stride);
            let (a, b) = (simd.load(first), simd.load(second));
            let cos = simd.load(&cosines[pair * S::LANES..]);
            let sin = simd.load(&sines[pair * S::LANES..]);
            let turned =
                [simd.fma(a, cos, simd.neg(simd.mul(b, sin))), simd.fma(a, sin, simd.mul(b, cos))];
            simd.store(simd.select(rotated, turned[0], a), first);
            simd.store(simd.select(rotated, turned[1], b), second);
        }
    }
}

/// Copies values into groups of `LANES` channels: `out[(group * keys + key) * LANES + i] = rows[key][group * LANES + i]`, and
/// zero beyond the last channel.
pub(super) struct PackValues<'a> {
    rows: &'a [*const f32],
    width: usize,
    out: &'a mut [f32],
}

impl<'a> PackValues<'a> {
    /// # Safety
    /// Each row has `width` readable elements, none of them in `out`.
    pub(super) unsafe fn new(rows: &'a [*const f32], width: usize, out: &'a mut [f32]) -> Self {
        PackValues { rows, width, out }
    }
}

impl Kernel for PackValues<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let group_stride = self.rows.len() * S::LANES;
        let groups = self.width.div_ceil(S::LANES);
        assert!(self.out.len() >= groups * group_stride);
        for (key, &row) in self.rows.iter().enumerate() {
            for group in 0..groups {
                let channel = group * S::LANES;
                let count = S::LANES.min(self.width - channel);
                // SAFETY: the contract of `new` vouches for `width` elements, of which these are the next.
                let vector = unsafe { simd.load_partial_pointer(row.wrapping_add(channel), count) };
                simd.store(vector, &mut self.out[group * group_stride + key * S::LANES..]);
            }
        }
    }
}

/// `0, 1, 2, ...`: the number of each lane.
pub(super) static LANE_NUMBERS: [f32; MOST_LANES] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
