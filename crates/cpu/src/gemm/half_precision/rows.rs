//! Rows of the left operand, rounded to bf16.

use std::ops::Range;

use half::bf16;

use crate::gemm::left::{LeftSource, PanelBlock, row_stride};
use crate::simd::{Isa, Kernel, Simd, dispatch, dispatch_dots};

/// Rows that are read at a time where they are not in memory as they are.
pub(super) const GATHERED_ROWS: usize = 8;

/// Rows rounded to bf16, one after the other.
#[derive(Clone, Copy)]
pub(super) struct RowLayout {
    pub(super) isa: Isa,
    /// Pairs of depths from one row to the next.
    pub(super) stride: usize,
}

impl RowLayout {
    /// The layout of rows of `pairs` pairs, each in cache lines of its own.
    pub(super) fn new(isa: Isa, pairs: usize) -> RowLayout {
        RowLayout { isa, stride: row_stride(pairs) }
    }

    /// Rounds a block of the left operand into `out`, `[row][stride]` pairs. Pairs beyond the last depth are zero; `gathered` has
    /// room for [`GATHERED_ROWS`] rows.
    pub(super) fn round(
        &self,
        left: &dyn LeftSource,
        (rows, depth): (Range<usize>, Range<usize>),
        out: &mut [f32],
        gathered: &mut [f32],
    ) {
        let length = depth.len();
        let mut out = out.chunks_exact_mut(self.stride);
        if let Some(matrix) = left.in_place() {
            for row in rows {
                let source = matrix.part(row, depth.clone());
                self.round_row(source, out.next());
            }
            return;
        }
        for first in rows.clone().step_by(GATHERED_ROWS) {
            let rows = first..rows.end.min(first + GATHERED_ROWS);
            let block = PanelBlock { isa: self.isa, rows, depth: depth.clone(), panel_rows: 1 };
            let gathered = &mut gathered[..block.len()];
            left.pack(&block, gathered);
            for source in gathered.chunks_exact(length.max(1)) {
                self.round_row(source, out.next());
            }
        }
    }

    fn round_row(&self, source: &[f32], out: Option<&mut [f32]>) {
        let out = out.expect("the scratch memory has room for the rows of a task");
        dispatch_dots(self.isa, RoundRow { source, out: bytemuck::cast_slice_mut(out) });
    }
}

/// Rounds a row and pads it with zeros.
struct RoundRow<'a> {
    source: &'a [f32],
    out: &'a mut [bf16],
}

impl Kernel for RoundRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let RoundRow { source, out } = self;
        let length = source.len();
        assert!(length <= out.len());
        let whole = length - length % (2 * S::LANES);
        let mut index = 0;
        while index < whole {
            let (low, high) = (simd.load(&source[index..]), simd.load(&source[index + S::LANES..]));
            let target = out[index..][..2 * S::LANES].as_mut_ptr();
            // SAFETY: `2 * LANES` elements were sliced.
            unsafe { simd.store_bf16(low, high, target) };
            index += 2 * S::LANES;
        }
        for (target, &value) in out[whole..].iter_mut().zip(&source[whole..]) {
            *target = bf16::from_f32(value);
        }
        out[length..].fill(bf16::ZERO);
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
