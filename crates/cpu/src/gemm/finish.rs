//! What happens to a tile of sums before it is stored.

use std::mem::MaybeUninit;

use crate::gemm::{Activation, Groups};
use crate::simd::{Kernel, Simd};
use crate::vecmath;

/// How sums become outputs: `activation(scale * (sum + partial) + bias) + residual`.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    /// The first element of the output.
    pub(super) output: *mut f32,
    /// Elements from one row of the output to the next.
    pub(super) output_stride: usize,
    /// Where rows of the output and of the residual are further apart.
    pub(super) row_groups: Groups,
    /// The same for columns; groups are whole vectors.
    pub(super) column_groups: Groups,
    /// Whether the output holds the sums over the depths before these.
    pub(super) partial: bool,
    /// Whether to store past the caches. Demands an aligned output and stride.
    pub(super) streaming: bool,
    /// Factor of the sums.
    pub(super) scale: f32,
    /// One element per column, or null.
    pub(super) bias: *const f32,
    /// Applied to the biased sums.
    pub(super) activation: Activation,
    /// A matrix of the output's shape, or null. May be the output itself.
    pub(super) residual: *const f32,
    /// Elements from one row of the residual to the next.
    pub(super) residual_stride: usize,
}

// SAFETY: whoever shares a `Finish` between threads sees to it that they write disjoint parts of the output.
unsafe impl Sync for Finish {}
// SAFETY: as above.
unsafe impl Send for Finish {}

/// Where a tile lies in the output, and how much of it is inside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Finish {
    /// Whether the tile's values can be finished in registers, without a loop over the tile.
    fn is_light(&self) -> bool {
        match self.activation {
            Activation::Identity | Activation::Relu => true,
            Activation::Gelu | Activation::Sigmoid => false,
        }
    }

    /// Whether nothing but a bias and an activation changes the sums.
    fn is_plain(&self) -> bool {
        !self.partial && self.scale == 1.0 && self.residual.is_null() && !self.streaming
    }

    /// Where element (row, column) of a tile lies in the output.
    #[inline(always)]
    fn output_at(&self, place: &Place, row: usize, column: usize) -> *mut f32 {
        let column = self.column_groups.start(place.column + column, 1);
        self.output
            .wrapping_add(self.row_groups.start(place.row + row, self.output_stride) + column)
    }

    /// Where element (row, column) of a tile lies in the residual.
    #[inline(always)]
    fn residual_at(&self, place: &Place, row: usize, column: usize) -> *const f32 {
        let column = self.column_groups.start(place.column + column, 1);
        self.residual
            .wrapping_add(self.row_groups.start(place.row + row, self.residual_stride) + column)
    }

    /// Whether parts of a tile are further apart than others.
    #[inline(always)]
    fn divides(&self, place: &Place) -> bool {
        self.row_groups.divide(place.row, place.rows)
            || self.column_groups.divide(place.column, place.columns)
    }

    /// Finishes and stores a tile of sums.
    ///
    /// # Safety
    /// The part of the output that `place` names is writable and belongs to this call alone; the bias and the residual, where
    /// there are any, are readable for it.
    #[inline(always)]
    pub(super) unsafe fn store<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &self,
        simd: S,
        sums: [[S::F; VECTORS]; ROWS],
        place: &Place,
    ) {
        let whole = place.rows == ROWS && place.columns == VECTORS * S::LANES;
        if whole && self.is_light() && !self.divides(place) {
            // SAFETY: the caller vouches for the memory; the tile is whole and all of a piece.
            unsafe { self.store_whole(simd, sums, place) };
            return;
        }
        assert!(ROWS * VECTORS * S::LANES <= MAX_TILE, "a tile has a place in the buffer");
        let mut tile = TileBuffer::new();
        for (row, vectors) in sums.into_iter().enumerate() {
            for (index, sum) in vectors.into_iter().enumerate() {
                let place = (row * VECTORS + index) * S::LANES;
                // SAFETY: the buffer holds `ROWS * VECTORS` vectors, as asserted above.
                unsafe { simd.store_pointer(sum, tile.start().wrapping_add(place)) };
            }
        }
        if whole && self.is_plain() && !self.divides(place) {
            // SAFETY: the tile was written above, and the caller vouches for the output and the bias.
            let rows = unsafe { ActivateRows::<VECTORS>::new(self, tile.at(0), place) };
            simd.vectorize(rows);
            return;
        }
        let stride = VECTORS * S::LANES;
        // SAFETY: `ROWS` rows of `stride` elements were written above; the caller vouches for the rest.
        simd.vectorize(unsafe { StoreRows::new(self, &tile, stride, place) });
    }

    /// Finishes and stores a tile of sums from memory, `[ROWS][VECTORS * LANES]`.
    ///
    /// Panics if the tile has fewer.
    ///
    /// # Safety
    /// As for [`Finish::store`].
    #[inline(always)]
    pub(super) unsafe fn store_tile<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &self,
        simd: S,
        tile: &[f32],
        place: &Place,
    ) {
        assert!(tile.len() >= ROWS * VECTORS * S::LANES && place.rows <= ROWS);
        let whole = place.columns == VECTORS * S::LANES;
        if whole && !self.is_light() && self.is_plain() && !self.divides(place) {
            // SAFETY: the tile was measured above, and the caller vouches for the output and the bias.
            let rows = unsafe { ActivateRows::<VECTORS>::new(self, tile.as_ptr(), place) };
            simd.vectorize(rows);
            return;
        }
        let mut sums = [[simd.splat(0.0); VECTORS]; ROWS];
        for (sum, values) in sums.as_flattened_mut().iter_mut().zip(tile.chunks_exact(S::LANES)) {
            *sum = simd.load(values);
        }
        // SAFETY: the caller vouches for the memory.
        unsafe { self.store(simd, sums, place) };
    }

    /// Finishes a whole tile in registers.
    ///
    /// # Safety
    /// As for [`Finish::store`], with `place` a whole tile in one group of rows and of columns.
    #[inline(always)]
    unsafe fn store_whole<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &self,
        simd: S,
        mut sums: [[S::F; VECTORS]; ROWS],
        place: &Place,
    ) {
        if self.partial {
            // SAFETY: inside the output, for which the caller vouches.
            unsafe { add_matrix(simd, &mut sums, self.output_at(place, 0, 0), self.output_stride) };
        }
        if self.scale != 1.0 {
            let scale = simd.splat(self.scale);
            for sum in sums.as_flattened_mut() {
                *sum = simd.mul(*sum, scale);
            }
        }
        if !self.bias.is_null() {
            for index in 0..VECTORS {
                let source = self.bias.wrapping_add(place.column + index * S::LANES);
                // SAFETY: the bias has an element for each column of the output.
                let bias = unsafe { simd.load_pointer(source) };
                for row in &mut sums {
                    row[index] = simd.add(row[index], bias);
                }
            }
        }
        if self.activation == Activation::Relu {
            for sum in sums.as_flattened_mut() {
                *sum = simd.max(simd.splat(0.0), *sum);
            }
        }
        if !self.residual.is_null() {
            let residual = self.residual_at(place, 0, 0);
            // SAFETY: inside the residual, for which the caller vouches.
            unsafe { add_matrix(simd, &mut sums, residual, self.residual_stride) };
        }
        let output = self.output_at(place, 0, 0);
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

/// A tile of sums in memory. Nothing is written that the tile does not have.
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
    fn at(&self, place: usize) -> *const f32 {
        self.0.as_ptr().cast::<f32>().wrapping_add(place)
    }
}

/// Finishes whole rows of a tile from memory that have a bias and an activation and nothing else: in a loop over the rows, in
/// which what the activation is made of stays in registers.
struct ActivateRows<'a, const VECTORS: usize> {
    finish: &'a Finish,
    /// `[rows][VECTORS * LANES]`.
    tile: *const f32,
    place: &'a Place,
}

impl<'a, const VECTORS: usize> ActivateRows<'a, VECTORS> {
    /// # Safety
    /// As for [`Finish::store`], with a `place` of `VECTORS` vectors in one group of rows and of columns, whose sums are at `tile`.
    #[inline(always)]
    unsafe fn new(finish: &'a Finish, tile: *const f32, place: &'a Place) -> Self {
        ActivateRows { finish, tile, place }
    }

    #[inline(always)]
    fn with<S: Simd, A: Function>(&self, simd: S, _function: A) {
        let ActivateRows { finish, tile, place } = *self;
        let mut bias = [simd.splat(0.0); VECTORS];
        if !finish.bias.is_null() {
            for (index, bias) in bias.iter_mut().enumerate() {
                let source = finish.bias.wrapping_add(place.column + index * S::LANES);
                // SAFETY: the bias has an element for each column of the output.
                *bias = unsafe { simd.load_pointer(source) };
            }
        }
        let output = finish.output_at(place, 0, 0);
        for row in 0..place.rows {
            let target = output.wrapping_add(row * finish.output_stride);
            for (index, &bias) in bias.iter().enumerate() {
                let source = tile.wrapping_add((row * VECTORS + index) * S::LANES);
                // SAFETY: by the contract of `new` these sums are there.
                let sum = unsafe { simd.load_pointer(source) };
                let value = A::apply(simd, simd.add(sum, bias));
                // SAFETY: by the contract of `new` the rows are inside the output.
                unsafe { simd.store_pointer(value, target.wrapping_add(index * S::LANES)) };
            }
        }
    }
}

impl<const VECTORS: usize> Kernel for ActivateRows<'_, VECTORS> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.finish.activation {
            Activation::Identity => self.with(simd, Identity),
            Activation::Relu => self.with(simd, Relu),
            Activation::Gelu => self.with(simd, Gelu),
            Activation::Sigmoid => self.with(simd, Sigmoid),
        }
    }
}

/// An activation that is known at compile time. Implementations are `#[inline(always)]`.
trait Function {
    fn apply<S: Simd>(simd: S, value: S::F) -> S::F;
}

/// Types for [`Activation`]'s variants.
macro_rules! functions {
    ($($name:ident: |$simd:ident, $x:ident| $value:expr;)*) => {$(
        struct $name;

        impl Function for $name {
            #[inline(always)]
            fn apply<S: Simd>($simd: S, $x: S::F) -> S::F {
                $value
            }
        }
    )*};
}

functions! {
    Identity: |_simd, x| x;
    Relu: |simd, x| simd.max(simd.splat(0.0), x);
    Gelu: |simd, x| vecmath::gelu(simd, x);
    Sigmoid: |simd, x| vecmath::sigmoid(simd, x);
}

#[inline(always)]
fn activate<S: Simd>(simd: S, activation: Activation, value: S::F) -> S::F {
    match activation {
        Activation::Identity => Identity::apply(simd, value),
        Activation::Relu => Relu::apply(simd, value),
        Activation::Gelu => Gelu::apply(simd, value),
        Activation::Sigmoid => Sigmoid::apply(simd, value),
    }
}

/// Finishes a tile from memory, row by row: the way for tiles at the edges and for what is seldom asked of a long activation.
struct StoreRows<'a> {
    finish: &'a Finish,
    tile: &'a TileBuffer,
    stride: usize,
    place: &'a Place,
}

impl<'a> StoreRows<'a> {
    /// # Safety
    /// As for [`Finish::store`]; the tile has the sums of the place's rows, `stride` elements apart and each a whole number of
    /// vectors.
    #[inline(always)]
    unsafe fn new(
        finish: &'a Finish,
        tile: &'a TileBuffer,
        stride: usize,
        place: &'a Place,
    ) -> Self {
        StoreRows { finish, tile, stride, place }
    }
}

impl Kernel for StoreRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for row in 0..self.place.rows {
            let mut column = 0;
            while column < self.place.columns {
                let rest = self.place.columns - column;
                let source = self.tile.at(row * self.stride + column);
                // SAFETY: by the contract of `new` the tile has these sums.
                let sum = unsafe { simd.load_pointer(source) };
                let at = Offset { row, column, count: rest.min(S::LANES) };
                if rest >= S::LANES {
                    // SAFETY: by the contract of `new` these elements are inside the output.
                    unsafe { self.finish.store_vector::<S, true>(simd, sum, self.place, at) };
                } else {
                    // SAFETY: by the contract of `new` these elements are inside the output.
                    unsafe { self.finish.store_vector::<S, false>(simd, sum, self.place, at) };
                }
                column += S::LANES;
            }
        }
    }
}

/// Elements of a row of a tile.
#[derive(Clone, Copy)]
struct Offset {
    row: usize,
    column: usize,
    count: usize,
}

impl Finish {
    /// Finishes and stores the elements `at` of the tile at `place`; a `WHOLE` vector of them or fewer.
    ///
    /// # Safety
    /// As for [`Finish::store`].
    #[inline(always)]
    unsafe fn store_vector<S: Simd, const WHOLE: bool>(
        &self,
        simd: S,
        sum: S::F,
        place: &Place,
        at: Offset,
    ) {
        let mut value = sum;
        let target = self.output_at(place, at.row, at.column);
        if self.partial {
            // SAFETY: inside the output, for which the caller vouches.
            value = simd.add(value, unsafe { load::<S, WHOLE>(simd, target, at.count) });
        }
        value = simd.mul(value, simd.splat(self.scale));
        if !self.bias.is_null() {
            let bias = self.bias.wrapping_add(place.column + at.column);
            // SAFETY: the bias has an element for each column of the output.
            value = simd.add(value, unsafe { load::<S, WHOLE>(simd, bias, at.count) });
        }
        value = activate(simd, self.activation, value);
        if !self.residual.is_null() {
            let residual = self.residual_at(place, at.row, at.column);
            // SAFETY: inside the residual, for which the caller vouches.
            value = simd.add(value, unsafe { load::<S, WHOLE>(simd, residual, at.count) });
        }
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
