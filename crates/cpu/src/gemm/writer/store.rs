//! Stores one tile: in registers if it is whole and its epilogue is light, else from memory.

use std::mem::MaybeUninit;

use super::{OutputWriter, TileBounds};
use crate::gemm::epilogue::{Function, Gelu, Identity, Relu, Sigmoid};
use crate::gemm::{Activation, Residual};
use crate::simd::{Kernel, Simd};

impl OutputWriter<'_> {
    /// Whether the epilogue can be applied in registers, without a loop over the tile.
    fn is_light(&self) -> bool {
        match self.epilogue.activation {
            Activation::Identity | Activation::Relu => true,
            Activation::Gelu | Activation::Sigmoid => false,
        }
    }

    /// Whether the epilogue has at most a bias and an activation.
    fn is_plain(&self) -> bool {
        let plain = self.epilogue.scale == 1.0 && matches!(self.epilogue.residual, Residual::None);
        plain && !self.partial
    }

    /// Prefetches the residual of a tile, a row of `VECTORS` vectors at a time.
    #[inline(always)]
    pub(in crate::gemm) fn prefetch_residual<S: Simd, const VECTORS: usize>(
        &self,
        simd: S,
        bounds: &TileBounds,
    ) {
        let Some((residual, stride)) = self.residual_at(bounds, 0, 0) else { return };
        for row in 0..bounds.rows {
            for vector in 0..VECTORS {
                simd.prefetch(residual.wrapping_add(row * stride + vector * S::LANES));
            }
        }
    }

    /// Offset of element (row, column) of a tile in a matrix with the groups of the output.
    #[inline(always)]
    fn offset(&self, tile: &TileBounds, row: usize, column: usize, stride: usize) -> usize {
        let column = self.column_groups.start(tile.column + column, 1);
        self.row_groups.start(tile.row + row, stride) + column
    }

    /// Address of element (row, column) of a tile in the output.
    #[inline(always)]
    fn output_at(&self, tile: &TileBounds, row: usize, column: usize) -> *mut f32 {
        self.output.wrapping_add(self.offset(tile, row, column, self.output_stride))
    }

    /// Address of element (row, column) of a tile in the residual, and the stride of its rows.
    #[inline(always)]
    fn residual_at(
        &self,
        tile: &TileBounds,
        row: usize,
        column: usize,
    ) -> Option<(*const f32, usize)> {
        let (start, stride) = match self.epilogue.residual {
            Residual::None => return None,
            Residual::Rows { data, row_stride } => (data.as_ptr(), row_stride),
            Residual::Output => (self.output.cast_const(), self.output_stride),
        };
        Some((start.wrapping_add(self.offset(tile, row, column, stride)), stride))
    }

    /// Whether a gap between groups runs through a tile.
    #[inline(always)]
    fn divides(&self, bounds: &TileBounds) -> bool {
        self.row_groups.divide(bounds.row, bounds.rows)
            || self.column_groups.divide(bounds.column, bounds.columns)
    }

    /// Applies the epilogue to a tile of sums in registers and stores it.
    ///
    /// # Safety
    /// The part of the output inside `bounds` is writable and belongs to this call alone; the bias and the residual, if any, are
    /// readable for it.
    #[inline(always)]
    pub(in crate::gemm) unsafe fn store<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &self,
        simd: S,
        sums: [[S::F; VECTORS]; ROWS],
        bounds: &TileBounds,
    ) {
        let whole = bounds.rows == ROWS && bounds.columns == VECTORS * S::LANES;
        if whole && self.is_light() && !self.divides(bounds) {
            // SAFETY: the caller vouches for the memory; the tile is whole and no gap runs through it.
            unsafe { self.store_whole(simd, sums, bounds) };
            return;
        }
        assert!(ROWS * VECTORS * S::LANES <= MAX_TILE, "a tile fits the buffer");
        let mut tile = TileBuffer::new();
        for (row, vectors) in sums.into_iter().enumerate() {
            for (index, sum) in vectors.into_iter().enumerate() {
                let offset = (row * VECTORS + index) * S::LANES;
                // SAFETY: the buffer holds `ROWS * VECTORS` vectors, as asserted above.
                unsafe { simd.store_pointer(sum, tile.start().wrapping_add(offset)) };
            }
        }
        if whole && self.is_plain() && !self.divides(bounds) {
            // SAFETY: the tile was written above, and the caller vouches for the output and the bias.
            let rows = unsafe { ActivateRows::<VECTORS>::new(self, tile.at(0), bounds) };
            simd.vectorize(rows);
            return;
        }
        let stride = VECTORS * S::LANES;
        // SAFETY: `ROWS` rows of `stride` elements were written above; the caller vouches for the rest.
        simd.vectorize(unsafe { StoreRows::new(self, &tile, stride, bounds) });
    }

    /// Applies the epilogue to a tile of sums in memory, `[ROWS][VECTORS * LANES]`, and stores it.
    ///
    /// Panics if the tile has fewer elements.
    ///
    /// # Safety
    /// As for [`OutputWriter::store`].
    #[inline(always)]
    pub(in crate::gemm) unsafe fn store_tile<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &self,
        simd: S,
        tile: &[f32],
        bounds: &TileBounds,
    ) {
        assert!(tile.len() >= ROWS * VECTORS * S::LANES && bounds.rows <= ROWS);
        let whole = bounds.columns == VECTORS * S::LANES;
        if whole && !self.is_light() && self.is_plain() && !self.divides(bounds) {
            // SAFETY: the tile was measured above, and the caller vouches for the output and the bias.
            let rows = unsafe { ActivateRows::<VECTORS>::new(self, tile.as_ptr(), bounds) };
            simd.vectorize(rows);
            return;
        }
        let mut sums = [[simd.splat(0.0); VECTORS]; ROWS];
        for (sum, values) in sums.as_flattened_mut().iter_mut().zip(tile.chunks_exact(S::LANES)) {
            *sum = simd.load(values);
        }
        // SAFETY: the caller vouches for the memory.
        unsafe { self.store(simd, sums, bounds) };
    }

    /// Stores a whole tile whose epilogue fits registers.
    ///
    /// # Safety
    /// As for [`OutputWriter::store`], for a whole tile in one group of rows and of columns.
    #[inline(always)]
    unsafe fn store_whole<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &self,
        simd: S,
        mut sums: [[S::F; VECTORS]; ROWS],
        bounds: &TileBounds,
    ) {
        if self.partial {
            // SAFETY: inside the output, for which the caller vouches.
            unsafe {
                add_matrix(simd, &mut sums, self.output_at(bounds, 0, 0), self.output_stride)
            };
        }
        if self.epilogue.scale != 1.0 {
            let scale = simd.splat(self.epilogue.scale);
            for sum in sums.as_flattened_mut() {
                *sum = simd.mul(*sum, scale);
            }
        }
        if let Some(bias) = self.epilogue.bias {
            for index in 0..VECTORS {
                let source = bias.as_ptr().wrapping_add(bounds.column + index * S::LANES);
                // SAFETY: the bias has an element for each column of the output.
                let bias = unsafe { simd.load_pointer(source) };
                for row in &mut sums {
                    row[index] = simd.add(row[index], bias);
                }
            }
        }
        if self.epilogue.activation == Activation::Relu {
            for sum in sums.as_flattened_mut() {
                *sum = simd.max(simd.splat(0.0), *sum);
            }
        }
        if let Some((residual, stride)) = self.residual_at(bounds, 0, 0) {
            // SAFETY: inside the residual, for which the caller vouches.
            unsafe { add_matrix(simd, &mut sums, residual, stride) };
        }
        let output = self.output_at(bounds, 0, 0);
        for (row, values) in sums.into_iter().enumerate() {
            let mut target = output.wrapping_add(row * self.output_stride);
            for value in values {
                if self.streaming {
                    // SAFETY: inside the output; tiles start at multiples of the lanes, and so do the output and its rows.
                    unsafe { simd.store_streaming(value, target) };
                } else {
                    // SAFETY: inside the output, for which the caller vouches.
                    unsafe { simd.store_pointer(value, target) };
                }
                target = target.wrapping_add(S::LANES);
            }
        }
    }
}

/// Adds a matrix in memory to a tile.
///
/// # Safety
/// The matrix is readable for as many rows and columns as the tile has.
#[inline(always)]
unsafe fn add_matrix<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    sums: &mut [[S::F; VECTORS]; ROWS],
    matrix: *const f32,
    row_stride: usize,
) {
    for (row, sums) in sums.iter_mut().enumerate() {
        let mut source = matrix.wrapping_add(row * row_stride);
        for sum in sums {
            // SAFETY: the caller vouches for the matrix.
            *sum = simd.add(*sum, unsafe { simd.load_pointer(source) });
            source = source.wrapping_add(S::LANES);
        }
    }
}

/// Elements of the largest tile: 14 by 32.
const MAX_TILE: usize = 448;

/// A tile of sums in memory, not initialised beyond the sums stored in it.
#[repr(align(64))]
struct TileBuffer(MaybeUninit<[f32; MAX_TILE]>);

impl TileBuffer {
    #[inline(always)]
    fn new() -> TileBuffer {
        TileBuffer(MaybeUninit::uninit())
    }

    #[inline(always)]
    fn start(&mut self) -> *mut f32 {
        self.0.as_mut_ptr().cast()
    }

    #[inline(always)]
    fn at(&self, offset: usize) -> *const f32 {
        self.0.as_ptr().cast::<f32>().wrapping_add(offset)
    }
}

/// Stores whole rows of a tile in memory whose epilogue is a bias and an activation: a loop over the rows that keeps the
/// constants of the activation in registers.
struct ActivateRows<'a, const VECTORS: usize> {
    writer: &'a OutputWriter<'a>,
    /// `[rows][VECTORS * LANES]`.
    tile: *const f32,
    bounds: &'a TileBounds,
}

impl<'a, const VECTORS: usize> ActivateRows<'a, VECTORS> {
    /// # Safety
    /// As for [`OutputWriter::store`]. The sums are at `tile`; `bounds` is `VECTORS` vectors wide, in one group of rows and of columns.
    #[inline(always)]
    unsafe fn new(writer: &'a OutputWriter<'a>, tile: *const f32, bounds: &'a TileBounds) -> Self {
        ActivateRows { writer, tile, bounds }
    }

    #[inline(always)]
    fn with<S: Simd, A: Function>(&self, simd: S, _function: A) {
        if self.writer.streaming {
            self.rows::<S, A, true>(simd);
        } else {
            self.rows::<S, A, false>(simd);
        }
    }

    #[inline(always)]
    fn rows<S: Simd, A: Function, const STREAMING: bool>(&self, simd: S) {
        let ActivateRows { writer, tile, bounds } = *self;
        let mut bias = [simd.splat(0.0); VECTORS];
        if let Some(source) = writer.epilogue.bias {
            for (index, bias) in bias.iter_mut().enumerate() {
                let source = source.as_ptr().wrapping_add(bounds.column + index * S::LANES);
                // SAFETY: the bias has an element for each column of the output.
                *bias = unsafe { simd.load_pointer(source) };
            }
        }
        let output = writer.output_at(bounds, 0, 0);
        for row in 0..bounds.rows {
            let target = output.wrapping_add(row * writer.output_stride);
            for (index, &bias) in bias.iter().enumerate() {
                let source = tile.wrapping_add((row * VECTORS + index) * S::LANES);
                // SAFETY: by the contract of `new` these sums are there.
                let sum = unsafe { simd.load_pointer(source) };
                let value = A::apply(simd, simd.add(sum, bias));
                let target = target.wrapping_add(index * S::LANES);
                if STREAMING {
                    // SAFETY: by the contract of `new` the rows are inside the output, which is aligned if it is streamed to.
                    unsafe { simd.store_streaming(value, target) };
                } else {
                    // SAFETY: by the contract of `new` the rows are inside the output.
                    unsafe { simd.store_pointer(value, target) };
                }
            }
        }
    }
}

impl<const VECTORS: usize> Kernel for ActivateRows<'_, VECTORS> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.writer.epilogue.activation {
            Activation::Identity => self.with(simd, Identity),
            Activation::Relu => self.with(simd, Relu),
            Activation::Gelu => self.with(simd, Gelu),
            Activation::Sigmoid => self.with(simd, Sigmoid),
        }
    }
}

/// Stores a tile in memory vector by vector: the general case, for tiles at the edges and rare epilogues.
struct StoreRows<'a> {
    writer: &'a OutputWriter<'a>,
    tile: &'a TileBuffer,
    stride: usize,
    bounds: &'a TileBounds,
}

impl<'a> StoreRows<'a> {
    /// # Safety
    /// As for [`OutputWriter::store`]; rows of the tile are `stride` elements apart and a whole number of vectors long.
    #[inline(always)]
    unsafe fn new(
        writer: &'a OutputWriter<'a>,
        tile: &'a TileBuffer,
        stride: usize,
        bounds: &'a TileBounds,
    ) -> Self {
        StoreRows { writer, tile, stride, bounds }
    }
}

impl Kernel for StoreRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for row in 0..self.bounds.rows {
            let mut column = 0;
            while column < self.bounds.columns {
                let rest = self.bounds.columns - column;
                let source = self.tile.at(row * self.stride + column);
                // SAFETY: by the contract of `new` the tile has these sums.
                let sum = unsafe { simd.load_pointer(source) };
                let at = Offset { row, column, count: rest.min(S::LANES) };
                if rest >= S::LANES {
                    // SAFETY: by the contract of `new` these elements are inside the output.
                    unsafe { self.writer.store_vector::<S, true>(simd, sum, self.bounds, at) };
                } else {
                    // SAFETY: by the contract of `new` these elements are inside the output.
                    unsafe { self.writer.store_vector::<S, false>(simd, sum, self.bounds, at) };
                }
                column += S::LANES;
            }
        }
    }
}

/// Consecutive elements of a row of a tile.
#[derive(Clone, Copy)]
struct Offset {
    row: usize,
    column: usize,
    count: usize,
}

impl OutputWriter<'_> {
    /// Applies the epilogue to the elements `at` of a tile and stores them: a `WHOLE` vector of them or fewer.
    ///
    /// # Safety
    /// As for [`OutputWriter::store`].
    #[inline(always)]
    unsafe fn store_vector<S: Simd, const WHOLE: bool>(
        &self,
        simd: S,
        sum: S::F,
        bounds: &TileBounds,
        at: Offset,
    ) {
        let mut value = sum;
        let target = self.output_at(bounds, at.row, at.column);
        if self.partial {
            // SAFETY: inside the output, for which the caller vouches.
            value = simd.add(value, unsafe { load::<S, WHOLE>(simd, target, at.count) });
        }
        let mut bias = None;
        if let Some(elements) = self.epilogue.bias {
            let source = elements.as_ptr().wrapping_add(bounds.column + at.column);
            // SAFETY: the bias has an element for each column of the output.
            bias = Some(unsafe { load::<S, WHOLE>(simd, source, at.count) });
        }
        let mut residual = None;
        if let Some((source, _)) = self.residual_at(bounds, at.row, at.column) {
            // SAFETY: inside the residual, for which the caller vouches.
            residual = Some(unsafe { load::<S, WHOLE>(simd, source, at.count) });
        }
        value = self.epilogue.apply(simd, value, bias, residual);
        if !WHOLE {
            // SAFETY: inside the output, for which the caller vouches.
            unsafe { simd.store_partial_pointer(value, target, at.count) };
        } else if self.streaming {
            // SAFETY: inside the output; tiles start at multiples of the lanes, and so do the output and its rows.
            unsafe { simd.store_streaming(value, target) };
        } else {
            // SAFETY: inside the output, for which the caller vouches.
            unsafe { simd.store_pointer(value, target) };
        }
    }
}

/// Loads a `WHOLE` vector or `count` elements of one.
///
/// # Safety
/// That many elements are readable.
#[inline(always)]
unsafe fn load<S: Simd, const WHOLE: bool>(simd: S, source: *const f32, count: usize) -> S::F {
    if WHOLE {
        // SAFETY: the caller vouches for a whole vector.
        unsafe { simd.load_pointer(source) }
    } else {
        // SAFETY: the caller vouches for `count` elements.
        unsafe { simd.load_partial_pointer(source, count) }
    }
}
