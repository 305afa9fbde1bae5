//! Copies of inputs: transposed into the lanes of vectors, rotated, or padded.

use super::operands::Rotations;
use crate::simd::{Interleave, Kernel, Simd};

/// Transposes rows into columns of `LANES` elements: `out[i * stride + lane] = rows[lane][i]`, and zero for the lanes without
/// a row. Columns from `width` to the next multiple of `LANES` are zero.
pub(super) struct PackRows<'a> {
    /// At most `LANES`, each of `width` readable elements.
    rows: &'a [*const f32],
    width: usize,
    columns: Columns<'a>,
}

/// Columns of `LANES` elements, `stride` elements apart; their number is a multiple of `LANES`.
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
            let out = out[whole * stride..][..extent].as_mut_ptr();
            let block = Interleave { rows, column: whole, panel_rows: stride, out };
            // SAFETY: the rows reach to `width` by the contract of `new`; `out` was sliced to the extent of the block.
            unsafe { simd.interleave_partial(block, width - whole) };
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

/// Copies tokens row by row and rotates their pairs of channels: `(a, b) -> (a·cos - b·sin, a·sin + b·cos)`.
pub(super) struct RotateRows<'a> {
    rows: &'a [*const f32],
    table: &'a Rotations<'a>,
    /// Index in the window of each rotated token; the rows after them are only copied.
    indices: &'a [u32],
    out: &'a mut [f32],
}

impl<'a> RotateRows<'a> {
    /// # Safety
    /// Each row has two readable elements for each pair of the table, none of them in `out`.
    pub(super) unsafe fn new(
        rows: &'a [*const f32],
        table: &'a Rotations<'a>,
        indices: &'a [u32],
        out: &'a mut [f32],
    ) -> Self {
        RotateRows { rows, table, indices, out }
    }
}

impl Kernel for RotateRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let width = 2 * self.table.pairs;
        for (number, out) in self.out.chunks_exact_mut(width).enumerate().take(self.rows.len()) {
            // SAFETY: the contract of `new` vouches for `width` elements outside of `out`.
            let row = unsafe { std::slice::from_raw_parts(self.rows[number], width) };
            match self.indices.get(number) {
                Some(&index) => rotate_row(row, self.table.rows(index as usize), out),
                None => out.copy_from_slice(row),
            }
        }
    }
}

/// Rotates the pairs of one row. The compiler vectorises the plain loop.
#[inline(always)]
fn rotate_row(row: &[f32], [cos, sin]: [&[f32]; 2], out: &mut [f32]) {
    let pairs = row.chunks_exact(2).zip(cos.iter().zip(sin));
    for (out, (pair, (cos, sin))) in out.chunks_exact_mut(2).zip(pairs) {
        out[0] = pair[0] * cos - pair[1] * sin;
        out[1] = pair[0] * sin + pair[1] * cos;
    }
}

/// Copies rows of `width` elements, each padded with zeros to `stride` elements.
pub(super) struct PadRows<'a> {
    rows: &'a [*const f32],
    width: usize,
    stride: usize,
    out: &'a mut [f32],
}

impl<'a> PadRows<'a> {
    /// # Safety
    /// Each row has `width` readable elements, none of them in `out`.
    pub(super) unsafe fn new(
        rows: &'a [*const f32],
        [width, stride]: [usize; 2],
        out: &'a mut [f32],
    ) -> Self {
        PadRows { rows, width, stride, out }
    }
}

impl Kernel for PadRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (&row, out) in self.rows.iter().zip(self.out.chunks_exact_mut(self.stride)) {
            // SAFETY: the contract of `new` vouches for `width` elements outside of `out`.
            let row = unsafe { std::slice::from_raw_parts(row, self.width) };
            out[..self.width].copy_from_slice(row);
            out[self.width..].fill(0.0);
        }
    }
}
