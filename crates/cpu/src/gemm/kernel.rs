//! The micro-kernel, and the loop over the tiles of a block.

use std::ops::Range;

use crate::gemm::tile::Tile;
use crate::gemm::writer::{OutputWriter, TileBounds};
use crate::simd::{Isa, Kernel, Simd};

/// The product of a left panel and a right panel: the only part in which `f32` and `int8` differ.
pub(super) trait Product: Copy + Send + Sync {
    /// Whether the tiles are those of [`Tile::choose_int8`] with scales per block, which keep two accumulators per output.
    const BLOCKED: bool;

    /// The sums of a tile: `ROWS` rows of the left panel, which is `PANEL` rows high, by `VECTORS` vectors.
    ///
    /// # Safety
    /// The panels named by `panels` (left, right) exist and have the height and width of the tile.
    unsafe fn sums<S: Simd, const ROWS: usize, const PANEL: usize, const VECTORS: usize>(
        self,
        simd: S,
        panels: (usize, usize),
    ) -> [[S::F; VECTORS]; ROWS];
}

/// Panels of `f32`.
#[derive(Clone, Copy)]
pub(super) struct FloatProduct {
    /// Left panels, `[panel][depth][PANEL]`.
    pub(super) left: *const f32,
    /// Elements from one left panel to the next.
    pub(super) left_stride: usize,
    /// Right panels, `[panel][depth][VECTORS * LANES]`.
    pub(super) right: *const f32,
    /// Elements from one right panel to the next; panels may be deeper than `depth`.
    pub(super) right_stride: usize,
    /// Length of the sums.
    pub(super) depth: usize,
}

// SAFETY: the panels are only read.
unsafe impl Send for FloatProduct {}
// SAFETY: the panels are only read.
unsafe impl Sync for FloatProduct {}

/// Depths by which the right panel is prefetched: it comes from the L2 cache.
const PREFETCH: usize = 16;
/// Depths per iteration of the inner loop.
const UNROLL: usize = 4;
/// Elements of a cache line. The rows of the next panel are prefetched once per line: the hardware prefetcher cannot predict them.
const LINE: usize = 16;

impl Product for FloatProduct {
    const BLOCKED: bool = false;

    #[inline(always)]
    unsafe fn sums<S: Simd, const ROWS: usize, const PANEL: usize, const VECTORS: usize>(
        self,
        simd: S,
        panels: (usize, usize),
    ) -> [[S::F; VECTORS]; ROWS] {
        let mut left = self.left.wrapping_add(panels.0 * self.left_stride);
        let mut right = self.right.wrapping_add(panels.1 * self.right_stride);
        let mut sums = [[simd.splat(0.0); VECTORS]; ROWS];
        for _ in 0..self.depth / UNROLL {
            for step in 0..UNROLL {
                let left = left.wrapping_add(step * PANEL);
                let right = right.wrapping_add(step * VECTORS * S::LANES);
                // SAFETY: the iteration covers `UNROLL` depths of the panels.
                unsafe { multiply_add(simd, &mut sums, consecutive(left), right) };
            }
            left = left.wrapping_add(UNROLL * PANEL);
            right = right.wrapping_add(UNROLL * VECTORS * S::LANES);
        }
        for _ in 0..self.depth % UNROLL {
            // SAFETY: one of the remaining depths of the panels.
            unsafe { multiply_add(simd, &mut sums, consecutive(left), right) };
            left = left.wrapping_add(PANEL);
            right = right.wrapping_add(VECTORS * S::LANES);
        }
        sums
    }
}

/// Rows in place (not packed) by right panels.
#[derive(Clone, Copy)]
pub(super) struct RowProduct {
    /// The first row; panel `p` starts at row `p * PANEL`.
    pub(super) left: *const f32,
    /// Elements from one row to the next.
    pub(super) row_stride: usize,
    /// The last row. Panel rows beyond it read it again; their sums are not stored.
    pub(super) last_row: usize,
    /// Right panels, `[panel][depth][VECTORS * LANES]`.
    pub(super) right: *const f32,
    /// Elements from one right panel to the next.
    pub(super) right_stride: usize,
    /// Length of the sums.
    pub(super) depth: usize,
}

// SAFETY: rows and panels are only read.
unsafe impl Send for RowProduct {}
// SAFETY: rows and panels are only read.
unsafe impl Sync for RowProduct {}

impl Product for RowProduct {
    const BLOCKED: bool = false;

    #[inline(always)]
    unsafe fn sums<S: Simd, const ROWS: usize, const PANEL: usize, const VECTORS: usize>(
        self,
        simd: S,
        panels: (usize, usize),
    ) -> [[S::F; VECTORS]; ROWS] {
        let mut rows = [self.left; ROWS];
        for (index, row) in rows.iter_mut().enumerate() {
            let number = (panels.0 * PANEL + index).min(self.last_row);
            *row = self.left.wrapping_add(number * self.row_stride);
        }
        let mut right = self.right.wrapping_add(panels.1 * self.right_stride);
        let mut sums = [[simd.splat(0.0); VECTORS]; ROWS];
        for _ in 0..self.depth / LINE {
            for row in &mut rows {
                simd.prefetch(row.wrapping_add(PANEL * self.row_stride));
            }
            for _ in 0..LINE / UNROLL {
                for step in 0..UNROLL {
                    let elements = advanced(rows, step);
                    let right = right.wrapping_add(step * VECTORS * S::LANES);
                    // SAFETY: the iteration covers `UNROLL` depths of the rows and of the panel.
                    unsafe { multiply_add(simd, &mut sums, elements, right) };
                }
                rows = advanced(rows, UNROLL);
                right = right.wrapping_add(UNROLL * VECTORS * S::LANES);
            }
        }
        for _ in 0..self.depth % LINE {
            // SAFETY: one of the remaining depths of the rows and of the panel.
            unsafe { multiply_add(simd, &mut sums, rows, right) };
            rows = advanced(rows, 1);
            right = right.wrapping_add(VECTORS * S::LANES);
        }
        sums
    }
}

/// Adds the outer product of the elements `left` and `VECTORS` vectors of `right`.
///
/// # Safety
/// All of them are readable.
#[inline(always)]
unsafe fn multiply_add<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    sums: &mut [[S::F; VECTORS]; ROWS],
    left: [*const f32; ROWS],
    right: *const f32,
) {
    let mut columns = [simd.splat(0.0); VECTORS];
    for (index, column) in columns.iter_mut().enumerate() {
        // SAFETY: the caller vouches for `VECTORS` vectors.
        *column = unsafe { simd.load_pointer(right.wrapping_add(index * S::LANES)) };
        simd.prefetch(right.wrapping_add((index + PREFETCH * VECTORS) * S::LANES));
    }
    for (row, element) in sums.iter_mut().zip(left) {
        // SAFETY: the caller vouches for the element.
        let element = simd.splat(unsafe { element.read() });
        for (sum, &column) in row.iter_mut().zip(&columns) {
            *sum = simd.fma(element, column, *sum);
        }
    }
}

/// The addresses, each advanced by `by` elements.
#[inline(always)]
pub(super) fn advanced<T, const ROWS: usize>(
    mut elements: [*const T; ROWS],
    by: usize,
) -> [*const T; ROWS] {
    for element in &mut elements {
        *element = element.wrapping_add(by);
    }
    elements
}

/// Addresses of `ROWS` consecutive elements.
#[inline(always)]
fn consecutive<const ROWS: usize>(first: *const f32) -> [*const f32; ROWS] {
    let mut elements = [first; ROWS];
    for (index, element) in elements.iter_mut().enumerate() {
        *element = first.wrapping_add(index);
    }
    elements
}

/// Calls a method with the rows and vectors of a tile as constants: `for_each_tile!(tile, S, self.method(simd))`. The
/// instruction set and the product are known at compile time, so only their own tiles are compiled.
macro_rules! for_each_tile {
    ($tile:expr, $simd:ident, $self:ident.$method:ident($argument:expr)) => {
        for_each_tile!($tile, $simd, false, $self.$method($argument))
    };
    ($tile:expr, $simd:ident, $blocked:expr, $self:ident.$method:ident($argument:expr)) => {
        match ($simd::LANES, $tile.rows, $tile.vectors) {
            (16, 7, 2) if $blocked => $self.$method::<$simd, 7, 2>($argument),
            (8, 6, 1) if $blocked || $simd::ISA == Isa::Portable => {
                $self.$method::<$simd, 6, 1>($argument)
            }
            (16, 9, 3) if !$blocked => $self.$method::<$simd, 9, 3>($argument),
            (16, 6, 4) if !$blocked => $self.$method::<$simd, 6, 4>($argument),
            (16, 14, 2) if !$blocked => $self.$method::<$simd, 14, 2>($argument),
            (16, 14, 1) if !$blocked => $self.$method::<$simd, 14, 1>($argument),
            (8, 6, 2) if !$blocked => $self.$method::<$simd, 6, 2>($argument),
            (8, 4, 3) if !$blocked => $self.$method::<$simd, 4, 3>($argument),
            (8, 8, 1) if !$blocked => $self.$method::<$simd, 8, 1>($argument),
            (lanes, rows, vectors) => unreachable!("no tile of {rows} by {vectors} x {lanes}"),
        }
    };
}
pub(super) use for_each_tile;

/// A block of the output: all tiles of some packed rows by some right panels.
pub(super) struct Block<'a, P> {
    pub(super) tile: Tile,
    pub(super) product: P,
    pub(super) writer: &'a OutputWriter<'a>,
    /// The block's first row in the output.
    pub(super) first_row: usize,
    /// Rows of the block, packed from panel 0 on.
    pub(super) rows: usize,
    /// The output's column where right panel 0 starts.
    pub(super) first_column: usize,
    /// The right panels to multiply with.
    pub(super) panels: Range<usize>,
    /// Columns of the whole output.
    pub(super) columns: usize,
}

impl<P: Product> Kernel for Block<'_, P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for_each_tile!(self.tile, S, P::BLOCKED, self.tiles(simd));
        if self.writer.streaming {
            simd.fence();
        }
    }
}

impl<P: Product> Block<'_, P> {
    #[inline(always)]
    fn tiles<S: Simd, const PANEL: usize, const VECTORS: usize>(&self, simd: S) {
        let width = VECTORS * S::LANES;
        for right in self.panels.clone() {
            let column = self.first_column + right * width;
            let columns = width.min(self.columns - column);
            for left in 0..self.rows.div_ceil(PANEL) {
                let first = left * PANEL;
                let rows = PANEL.min(self.rows - first);
                let bounds = TileBounds { row: self.first_row + first, column, rows, columns };
                self.tile::<S, PANEL, VECTORS>(simd, (left, right), &bounds);
            }
        }
    }

    /// Computes one tile, with the smallest kernel that has enough rows.
    #[inline(always)]
    fn tile<S: Simd, const PANEL: usize, const VECTORS: usize>(
        &self,
        simd: S,
        panels: (usize, usize),
        bounds: &TileBounds,
    ) {
        let (product, writer) = (self.product, self.writer);
        let call = TileCall::<P, PANEL, PANEL, VECTORS> { product, writer, panels, bounds };
        match bounds.rows {
            rows if rows == PANEL => simd.vectorize(call),
            1 => simd.vectorize(call.with_rows::<1>()),
            2 => simd.vectorize(call.with_rows::<2>()),
            3..=4 => simd.vectorize(call.with_rows::<4>()),
            5..=6 => simd.vectorize(call.with_rows::<6>()),
            // Mask decoders have products of 7 and 8 rows (tokens).
            7 => simd.vectorize(call.with_rows::<7>()),
            8 => simd.vectorize(call.with_rows::<8>()),
            _ => simd.vectorize(call),
        }
    }
}

/// One call of the micro-kernel.
struct TileCall<'a, P, const ROWS: usize, const PANEL: usize, const VECTORS: usize> {
    product: P,
    writer: &'a OutputWriter<'a>,
    panels: (usize, usize),
    bounds: &'a TileBounds,
}

impl<'a, P, const ROWS: usize, const PANEL: usize, const VECTORS: usize>
    TileCall<'a, P, ROWS, PANEL, VECTORS>
{
    #[inline(always)]
    fn with_rows<const FEWER: usize>(self) -> TileCall<'a, P, FEWER, PANEL, VECTORS> {
        let TileCall { product, writer, panels, bounds } = self;
        TileCall { product, writer, panels, bounds }
    }
}

impl<P: Product, const ROWS: usize, const PANEL: usize, const VECTORS: usize> Kernel
    for TileCall<'_, P, ROWS, PANEL, VECTORS>
{
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.writer.prefetch_residual::<S, VECTORS>(simd, self.bounds);
        // SAFETY: the driver made the panels for this tile and covers the block with them.
        let sums = unsafe { self.product.sums::<S, ROWS, PANEL, VECTORS>(simd, self.panels) };
        // SAFETY: the driver gives each block its own part of the output.
        unsafe { self.writer.store(simd, sums, self.bounds) };
    }
}
