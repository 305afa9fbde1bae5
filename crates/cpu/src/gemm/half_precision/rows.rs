//! Rows of the left operand, rounded to bf16.

use std::ops::Range;

use half::bf16;

use crate::gemm::left::{LeftSource, PanelBlock, RowMajor};
use crate::gemm::word_rows::{LINE, WordRows};
use crate::simd::{Isa, Kernel, Simd, dispatch, dispatch_dots};

/// Rows that are read at a time where they are not in memory as they are.
pub(super) const GATHERED_ROWS: usize = 8;

/// Rows rounded to bf16, as pairs of depths.
#[derive(Clone, Copy)]
pub(super) struct RoundedRows {
    pub(super) isa: Isa,
    pub(super) layout: WordRows,
}

impl RoundedRows {
    /// Rounds a block of the left operand into `out`. Pairs beyond the last depth are zero; `gathered` has room for
    /// [`GATHERED_ROWS`] rows.
    pub(super) fn round(
        &self,
        left: &dyn LeftSource,
        (rows, depth): (Range<usize>, Range<usize>),
        out: &mut [f32],
        gathered: &mut [f32],
    ) {
        if let Some(matrix) = left.in_place() {
            let rows = matrix.block(rows, depth);
            dispatch_dots(self.isa, RoundBlock { rows, layout: self.layout, first: 0, out });
            return;
        }
        let start = rows.start;
        for first in rows.clone().step_by(GATHERED_ROWS) {
            let block = first..rows.end.min(first + GATHERED_ROWS);
            let count = block.len();
            let block =
                PanelBlock { isa: self.isa, rows: block, depth: depth.clone(), panel_rows: 1 };
            let gathered = &mut gathered[..block.len()];
            left.pack(&block, gathered);
            let rows = RowMajor::new(gathered, count, depth.len(), depth.len());
            let (layout, first) = (self.layout, first - start);
            dispatch_dots(self.isa, RoundBlock { rows, layout, first, out: &mut *out });
        }
    }
}

/// Rounds rows and pads them with zeros.
struct RoundBlock<'a> {
    rows: RowMajor<'a>,
    layout: WordRows,
    /// Number of the first row in the layout.
    first: usize,
    out: &'a mut [f32],
}

impl Kernel for RoundBlock<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let RoundBlock { rows, layout, first, out } = self;
        let depth = rows.depth();
        for row in 0..rows.rows() {
            round_row(simd, rows.part(row, 0..depth), layout.row(out, first + row));
        }
    }
}

/// Rounds a row to lines of `LINE` words and pads it with zeros.
#[inline(always)]
fn round_row<'m, S: Simd>(simd: S, source: &[f32], mut lines: impl Iterator<Item = &'m mut [f32]>) {
    let mut whole = source.chunks_exact(2 * LINE);
    for (source, line) in whole.by_ref().zip(lines.by_ref()) {
        round_line(simd, source, line);
    }
    let rest = whole.remainder();
    if !rest.is_empty() {
        let mut padded = [0.0; 2 * LINE];
        padded[..rest.len()].copy_from_slice(rest);
        let line = lines.next().expect("the layout has room for the row");
        round_line(simd, &padded, line);
    }
    lines.for_each(|line| line.fill(0.0));
}

/// Rounds the numbers of a line.
#[inline(always)]
fn round_line<S: Simd>(simd: S, source: &[f32], line: &mut [f32]) {
    for (source, line) in source.chunks_exact(2 * S::LANES).zip(line.chunks_exact_mut(S::LANES)) {
        let (low, high) = (simd.load(source), simd.load(&source[S::LANES..]));
        // SAFETY: `LANES` words are `2 * LANES` elements.
        unsafe { simd.store_bf16(low, high, line.as_mut_ptr().cast()) };
    }
}

/// A left operand whose elements are rounded to bf16 and kept as `f32`.
pub struct Rounded<'a>(pub &'a dyn LeftSource);

impl LeftSource for Rounded<'_> {
    fn rows(&self) -> usize {
        self.0.rows()
    }

    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn pack(&self, block: &PanelBlock, out: &mut [f32]) {
        self.0.pack(block, out);
        dispatch(block.isa, RoundInPlace(out));
    }
}

/// Rounds elements to bf16 and keeps them as `f32`.
pub(crate) struct RoundInPlace<'a>(pub(crate) &'a mut [f32]);

impl Kernel for RoundInPlace<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut vectors = self.0.chunks_exact_mut(S::LANES);
        for vector in &mut vectors {
            simd.store(simd.round_bf16(simd.load(vector)), vector);
        }
        for value in vectors.into_remainder() {
            *value = bf16::from_f32(*value).to_f32();
        }
    }
}
