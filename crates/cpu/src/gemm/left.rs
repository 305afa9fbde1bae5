//! The left operand of a product: rows that are packed into panels by the task that multiplies them.

use std::ops::Range;

use crate::simd::{Interleave, Isa, Kernel, MAX_LANES, Simd, dispatch};

/// A matrix that can be copied into panels, block by block. Linear layers, convolutions and window partitions differ only in
/// their source.
pub trait LeftSource: Sync {
    /// Rows of the matrix.
    fn rows(&self) -> usize;
    /// Columns of the matrix: the depth of the product.
    fn depth(&self) -> usize;
    /// Fills `out` with a block of the matrix, as [`PanelBlock`] lays it out.
    fn pack(&self, block: &PanelBlock, out: &mut [f32]);
    /// The matrix in memory, if its rows are contiguous.
    fn in_place(&self) -> Option<RowMajor<'_>> {
        None
    }
    /// Appends the parts of a row that are contiguous in memory to `runs`, in order. The length of each but the last is a multiple of
    /// [`RUN_UNIT`]. A source without such parts appends nothing for any row: its rows must be packed.
    fn runs<'a>(&'a self, _row: usize, _runs: &mut Vec<&'a [f32]>) {}
}

/// Elements that fill a cache line once they are bytes.
pub const RUN_UNIT: usize = 64;

/// Words of 32 bits in the sets of a way of the L1 cache: rows at multiples of this distance evict each other.
const CACHE_WAY: usize = 1 << 10;

/// Distance, in words of 32 bits, of rows of `words` words in scratch memory: whole cache lines, and no large power of two.
pub(super) fn row_stride(words: usize) -> usize {
    let stride = words.next_multiple_of(16);
    let conflicts = stride.is_multiple_of(CACHE_WAY / 4);
    stride + if conflicts { 16 } else { 0 }
}

/// A block of a left operand, and the layout of its panels.
///
/// Panels hold `panel_rows` rows each; in a panel, the elements of one depth are adjacent. Row `r` and depth `d`, both
/// counted from the block's start, are at `(r / panel_rows) * depth.len() * panel_rows + d * panel_rows + r % panel_rows`.
/// Rows of the last panel beyond the last row are zero. With `panel_rows == 1` the block is plain rows, one after the other.
#[derive(Clone, Debug)]
pub struct PanelBlock {
    /// The instruction set to pack with.
    pub isa: Isa,
    /// The block's rows.
    pub rows: Range<usize>,
    /// The block's columns.
    pub depth: Range<usize>,
    /// Rows per panel, at most `isa.lanes()`.
    pub panel_rows: usize,
}

impl PanelBlock {
    /// Elements of the packed block.
    pub fn len(&self) -> usize {
        self.rows.len().next_multiple_of(self.panel_rows) * self.depth.len()
    }

    /// Whether the block has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The block's panels: the rows of each, and its range in the packed block.
    pub fn panels(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + use<> {
        let (rows, panel_rows) = (self.rows.clone(), self.panel_rows);
        let size = panel_rows * self.depth.len();
        (0..rows.len().div_ceil(panel_rows)).map(move |panel| {
            let first = rows.start + panel * panel_rows;
            (first..rows.end.min(first + panel_rows), panel * size..(panel + 1) * size)
        })
    }
}

/// Interleaves at most `panel_rows` rows of equal length into one panel: `out[d * panel_rows + r] = rows[r][d]`, and
/// zero for the missing rows.
///
/// Panics unless the rows have the same length, `panel_rows <= isa.lanes()` and `out` holds exactly the panel.
pub fn interleave_rows(isa: Isa, panel_rows: usize, rows: &[&[f32]], out: &mut [f32]) {
    let isa = isa.or_available();
    assert!(rows.len() <= panel_rows && panel_rows <= isa.lanes());
    let depth = out.len() / panel_rows;
    assert_eq!(out.len(), depth * panel_rows);
    dispatch(isa, InterleaveRows::new(panel_rows, depth, rows, out));
}

/// Transposes rows into columns that are `stride` elements apart.
pub(super) struct InterleaveRows<'a> {
    stride: usize,
    depth: usize,
    rows: &'a [&'a [f32]],
    out: &'a mut [f32],
}

impl<'a> InterleaveRows<'a> {
    /// Fills the first `min(LANES, stride)` elements of each column, with zero for missing rows.
    ///
    /// Panics if there are more rows than that, if a row does not have `depth` elements, or if `out` is too short.
    pub(super) fn new(
        stride: usize,
        depth: usize,
        rows: &'a [&'a [f32]],
        out: &'a mut [f32],
    ) -> InterleaveRows<'a> {
        assert!(rows.iter().all(|row| row.len() == depth));
        assert!(rows.len() <= stride.min(MAX_LANES));
        InterleaveRows { stride, depth, rows, out }
    }
}

impl Kernel for InterleaveRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let InterleaveRows { stride, depth, rows, out } = self;
        let width = stride.min(S::LANES);
        assert!(rows.len() <= width);
        let mut starts = [std::ptr::null(); MAX_LANES];
        for (start, row) in starts.iter_mut().zip(rows) {
            *start = row.as_ptr();
        }
        let starts = &starts[..rows.len()];
        let whole = depth - depth % S::LANES;
        let mut column = 0;
        while column < whole {
            let out = out[column * stride..][..(S::LANES - 1) * stride + width].as_mut_ptr();
            let block = Interleave { rows: starts, column, panel_rows: stride, out };
            // SAFETY: `new` checked the rows' number and length; `out` was sliced to the extent of the block.
            unsafe { simd.interleave(block) };
            column += S::LANES;
        }
        for column in whole..depth {
            let target = &mut out[column * stride..][..width];
            for (index, element) in target.iter_mut().enumerate() {
                *element = rows.get(index).map_or(0.0, |row| row[column]);
            }
        }
    }
}

/// A matrix in memory, one row after the other.
#[derive(Clone, Copy, Debug)]
pub struct RowMajor<'a> {
    data: &'a [f32],
    rows: usize,
    depth: usize,
    row_stride: usize,
}

impl<'a> RowMajor<'a> {
    /// A matrix of `rows` rows of `depth` elements, `row_stride` elements apart. Rows may overlap; with stride zero all rows are
    /// the same memory.
    ///
    /// Panics if `data` is too short.
    pub fn new(data: &'a [f32], rows: usize, depth: usize, row_stride: usize) -> RowMajor<'a> {
        let needed = if rows == 0 { 0 } else { (rows - 1) * row_stride + depth };
        assert!(data.len() >= needed, "{needed} elements needed, {} given", data.len());
        RowMajor { data, rows, depth, row_stride }
    }

    /// Elements from one row to the next.
    pub(super) fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// A range of depths of a row.
    pub(super) fn part(&self, row: usize, depth: Range<usize>) -> &'a [f32] {
        assert!(row < self.rows && depth.end <= self.depth);
        &self.data[row * self.row_stride..][depth]
    }

    /// A block of the matrix.
    pub(super) fn block(&self, rows: Range<usize>, depth: Range<usize>) -> RowMajor<'a> {
        assert!(rows.end <= self.rows && depth.end <= self.depth);
        let data = self.data.get(rows.start * self.row_stride + depth.start..).unwrap_or_default();
        RowMajor::new(data, rows.len(), depth.len(), self.row_stride)
    }

    /// Address of an element.
    pub(super) fn at(&self, row: usize, depth: usize) -> *const f32 {
        assert!(row < self.rows && depth <= self.depth);
        self.data[row * self.row_stride + depth..].as_ptr()
    }
}

impl LeftSource for RowMajor<'_> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn in_place(&self) -> Option<RowMajor<'_>> {
        Some(*self)
    }

    fn runs<'a>(&'a self, row: usize, runs: &mut Vec<&'a [f32]>) {
        runs.push(self.part(row, 0..self.depth));
    }

    fn pack(&self, block: &PanelBlock, out: &mut [f32]) {
        let row = |index: usize| {
            &self.data[index * self.row_stride..][block.depth.start..block.depth.end]
        };
        if block.panel_rows == 1 {
            for (index, target) in
                block.rows.clone().zip(out.chunks_exact_mut(block.depth.len().max(1)))
            {
                target.copy_from_slice(row(index));
            }
            return;
        }
        for (rows, range) in block.panels() {
            let mut slices: [&[f32]; MAX_LANES] = [&[]; MAX_LANES];
            for (slice, index) in slices.iter_mut().zip(rows.clone()) {
                *slice = row(index);
            }
            interleave_rows(block.isa, block.panel_rows, &slices[..rows.len()], &mut out[range]);
        }
    }
}
