//! Several products summed into four outputs, as in a Winograd convolution that computes 2 by 2 pixels at a time.

use std::ops::Range;

use cutout_parallel::Pool;

use crate::gemm::kernel::{RowProduct, for_each_tile};
use crate::gemm::pack::PackedWeights;
use crate::gemm::split::{Shape, even_blocks};
use crate::gemm::terms::{MultiplyInto, StoreTile, Use};
use crate::gemm::tile::Tile;
use crate::gemm::writer::{OutputWriter, TileBounds};
use crate::gemm::{Epilogue, Groups, Output, Residual};
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// The left operands of all products.
pub trait LeftOperands: Sync {
    /// Rows of each operand.
    fn rows(&self) -> usize;
    /// Columns of each operand: the depth of the products.
    fn depth(&self) -> usize;
    /// Fills `out` with some rows of all operands, `[term][row][depth]`; terms are `term_stride` elements apart.
    fn fill(&self, isa: Isa, rows: Range<usize>, term_stride: usize, out: &mut [f32]);
}

/// A product and how it contributes to the outputs.
pub struct Term<'a> {
    /// The right operand.
    pub weights: &'a PackedWeights,
    /// Its contribution to each output that has it as a term.
    pub uses: &'a [Use],
}

/// An image `[.., width, channels]` that is written in blocks of 2 by 2 pixels: output `2 * i + j` is pixel `(i, j)` of every
/// block, row by row.
pub struct Quarters<'a> {
    /// The pixels of an even number of rows.
    pub data: &'a mut [f32],
    /// Pixels of a row, an even number.
    pub width: usize,
}

/// Outputs of [`Quarters`].
const OUTPUTS: usize = 4;

/// Bytes of left panels of a task, all terms together: half of a 1 MiB L2 cache.
const LEFT_BYTES: usize = 480 << 10;
/// Padding elements between two terms. One row is written for all terms at a time; at a power-of-two distance those writes would
/// evict each other from the L1 cache.
const TERM_PADDING: usize = 16;

/// `output = activation(scale * (± left · weights^T ± …) + bias) + residual` for each of the four outputs, over the terms whose
/// `uses` name it. A residual has the shape of the whole image.
///
/// The result has the same bits for any number of threads.
///
/// Panics unless the terms have one shape, with a row for each block of the image and a column for each channel, or if the
/// residual or the bias is too short.
pub fn combined_gemm(
    pool: &Pool,
    left: &dyn LeftOperands,
    terms: &[Term<'_>],
    epilogue: &Epilogue<'_>,
    image: Quarters<'_>,
) {
    let Some(first) = terms.first() else { panic!("a sum has terms") };
    let shape = Shape { rows: left.rows(), columns: first.weights.outputs(), depth: left.depth() };
    let tile = first.weights.tile();
    for term in terms {
        let weights = (term.weights.outputs(), term.weights.depth(), term.weights.tile());
        assert_eq!(weights, (shape.columns, shape.depth, tile), "right operand");
    }
    if shape.rows == 0 || shape.columns == 0 {
        return;
    }
    let writers = writers(shape, epilogue, image);
    let bytes = terms.len() * shape.depth.max(1) * size_of::<f32>();
    let row_block = even_blocks(shape.rows, (LEFT_BYTES / bytes).max(tile.rows), tile.rows);
    let term_stride = row_block * shape.depth + TERM_PADDING;
    let filled = terms.len() * term_stride;
    let tiles = OUTPUTS * row_block * tile.columns();
    pool.run_with_scratch(shape.rows.div_ceil(row_block), filled + tiles, &|task, scratch| {
        let (filled, tiles) = scratch.split_at_mut(filled);
        let rows = task * row_block..shape.rows.min((task + 1) * row_block);
        left.fill(tile.isa, rows.clone(), term_stride, filled);
        let writers = &writers;
        dispatch(tile.isa, Task { tile, shape, terms, writers, rows, filled, tiles });
    });
}

/// The writer of each output.
fn writers<'a>(
    shape: Shape,
    epilogue: &Epilogue<'a>,
    image: Quarters<'_>,
) -> [OutputWriter<'a>; OUTPUTS] {
    let Quarters { data, width } = image;
    let columns = shape.columns;
    assert!(width.is_multiple_of(2) && width > 0, "rows of {width} pixels");
    assert!(shape.rows.is_multiple_of(width / 2), "{} blocks in rows of {width}", shape.rows);
    let elements = OUTPUTS * shape.rows * columns;
    assert_eq!(data.len(), elements, "elements of the image");
    let offset = |output: usize| (output / 2 * width + output % 2) * columns;
    // The outputs differ only in where they start, so memory that suffices for the first without the largest offset suffices for
    // all.
    let inside = elements - offset(OUTPUTS - 1);
    let mut epilogue = *epilogue;
    if let Residual::Rows { data, row_stride } = epilogue.residual {
        assert_eq!((data.len(), row_stride), (elements, columns), "residual");
        epilogue.residual = Residual::Rows { data, row_stride: 2 * columns };
    }
    let rows = Groups { length: width / 2, gap: width * columns };
    let output = Output::grouped(&mut data[..inside], 2 * columns, rows, Groups::NONE);
    let writer = OutputWriter::new(shape, &epilogue, output);
    [0, 1, 2, 3].map(|output| writer.shifted(offset(output)))
}

/// A block of rows of all outputs.
struct Task<'a> {
    tile: Tile,
    shape: Shape,
    terms: &'a [Term<'a>],
    writers: &'a [OutputWriter<'a>; OUTPUTS],
    rows: Range<usize>,
    /// Rows of the left operands, `[term][row][depth]`, with as many rows as a task has at most, plus [`TERM_PADDING`].
    filled: &'a [f32],
    /// Tiles of sums, `[output][panel]`.
    tiles: &'a mut [f32],
}

impl Kernel for Task<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let tile = self.tile;
        for_each_tile!(tile, S, self.products(simd));
        simd.fence();
    }
}

impl Task<'_> {
    #[inline(always)]
    fn products<S: Simd, const ROWS: usize, const VECTORS: usize>(mut self, simd: S) {
        let width = VECTORS * S::LANES;
        for right in 0..self.shape.columns.div_ceil(width) {
            for term in 0..self.terms.len() {
                self.multiply::<S, ROWS, VECTORS>(simd, term, right);
            }
            self.store::<S, ROWS, VECTORS>(simd, right * width);
        }
    }

    #[inline(always)]
    fn multiply<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &mut self,
        simd: S,
        term: usize,
        right: usize,
    ) {
        let panels = self.rows.len().div_ceil(ROWS);
        let depth = self.shape.depth;
        let Term { weights, uses, .. } = self.terms[term];
        let filled = &self.filled[self.filled.len() / self.terms.len() * term..];
        // The last panel may reach beyond the rows; those sums are not stored.
        assert!(filled.len() >= panels * ROWS * depth);
        let whole = weights.whole().expect("terms are packed from single precision");
        let product = RowProduct {
            left: filled.as_ptr(),
            row_stride: depth,
            last_row: panels * ROWS - 1,
            right: whole.as_ptr(),
            right_stride: weights.stride(),
            depth,
        };
        for panel in 0..panels {
            let tiles = &mut *self.tiles;
            let call = MultiplyInto::<RowProduct, ROWS, VECTORS> {
                product,
                right,
                uses,
                panel,
                panels,
                tiles,
            };
            simd.vectorize(call);
        }
    }

    #[inline(always)]
    fn store<S: Simd, const ROWS: usize, const VECTORS: usize>(&self, simd: S, column: usize) {
        let width = VECTORS * S::LANES;
        let panels = self.rows.len().div_ceil(ROWS);
        for (index, tile) in
            self.tiles.chunks_exact(ROWS * width).take(OUTPUTS * panels).enumerate()
        {
            let row = index % panels * ROWS;
            let bounds = TileBounds {
                row: self.rows.start + row,
                column,
                rows: ROWS.min(self.rows.len() - row),
                columns: width.min(self.shape.columns - column),
            };
            let writer = &self.writers[index / panels];
            simd.vectorize(StoreTile::<ROWS, VECTORS> { tile, writer, bounds: &bounds });
        }
    }
}
