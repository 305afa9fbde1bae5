//! Large products with seven multiplications where eight are usual (Strassen 1969).
//!
//! Both sides and the output are cut into halves both ways, `C = A · B` with
//!
//! ```text
//! | C0 C1 |   | A0 A1 |   | B0 B1 |
//! | C2 C3 | = | A2 A3 | · | B2 B3 |
//! ```
//!
//! and each of [`PRODUCTS`] multiplies a sum of blocks of `A` with a sum of blocks of `B` and adds the result to blocks of
//! `C`. Sums in memory would cost more than the eighth multiplication, so the halves are chosen such that everything but the
//! right sums stays in a core's caches: the rows of `A` are those of one task, the columns of `B` two neighbouring panels, and
//! the depths those of one block.
//!
//! 1. For some columns and depths the sums of right panels are made, once for all rows, as many as the shared cache holds.
//! 2. A task packs its rows, makes their sums, and multiplies them pair by pair of panels; the outputs of a pair are summed in
//!    tiles that stay in the first-level cache, and finished from there.
//!
//! Rounding errors are up to a half larger than those of the usual sums (root mean square; a test holds that). What is
//! not finite in a row of the left side spreads to one other row, in a column of the right side to one other column. Like
//! everywhere, bits depend on the shape alone.

use std::ops::Range;

use crate::execute::for_chunks;
use crate::gemm::driver::{LeftRows, TaskRows, blocks};
use crate::gemm::finish::{Finish, Place};
use crate::gemm::kernel::{FloatProduct, for_each_tile};
use crate::gemm::left::{LeftSource, PanelBlock};
use crate::gemm::pack::{PackedWeights, RightPanels};
use crate::gemm::split::{Shape, even_blocks};
use crate::gemm::terms::{FinishTile, MultiplyInto, Use};
use crate::gemm::tile::Tile;
use crate::pool::{Pool, with_scratch};
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// A block of the left or right side, or the sum or difference of two.
#[derive(Clone, Copy)]
enum Operand {
    /// The block itself.
    Block(usize),
    /// `first + second`.
    Sum(usize, usize),
    /// `first - second`.
    Difference(usize, usize),
}

use Operand::{Block as Plain, Difference, Sum};
use Use::{Added, Begins, Subtracted};

/// The seven products: left operand, right operand, and the blocks of the output they go to.
const PRODUCTS: [(Operand, Operand, &[Use]); 7] = [
    (Sum(0, 3), Sum(0, 3), &[Begins(0), Begins(3)]),
    (Sum(2, 3), Plain(0), &[Begins(2), Subtracted(3)]),
    (Plain(0), Difference(1, 3), &[Begins(1), Added(3)]),
    (Plain(3), Difference(2, 0), &[Added(0), Added(2)]),
    (Sum(0, 1), Plain(3), &[Subtracted(0), Added(1)]),
    (Difference(2, 0), Sum(0, 1), &[Added(3)]),
    (Difference(1, 3), Sum(2, 3), &[Added(0)]),
];

/// Of seven operands five are sums; two are blocks that are used where they are.
const SUMS: usize = 5;
/// Blocks of each side.
const BLOCKS: usize = 4;

/// Bytes of right panels and their sums that are multiplied with all rows before the next: a part of a shared cache.
const RIGHT_BYTES: usize = 12 << 20;
/// Bytes of left panels and their sums of a task: half of a second-level cache of 1 MiB.
const LEFT_BYTES: usize = 520 << 10;
/// Most depths per block.
const MAX_DEPTH: usize = 1024;
/// Below these sizes making sums costs more than they save, and there are too few tasks.
const LEAST: Shape = Shape { rows: 3072, columns: 256, depth: 256 };
/// What depths are a multiple of: both halves then fill whole turns of the inner loop.
const DEPTH_UNIT: usize = 16;

/// How a product is cut.
#[derive(Clone, Copy)]
pub(super) struct Strassen {
    pub(super) shape: Shape,
    pub(super) tile: Tile,
    /// Rows of a task: whole pairs of left panels, except at the end.
    pub(super) row_block: usize,
    /// Depths whose sums stay in registers, half of them at a time.
    pub(super) depth_block: usize,
    /// Pairs of right panels whose sums are made at a time.
    pub(super) pair_block: usize,
}

impl Strassen {
    /// The cut of a product, if it is large enough to gain by it and its depths can be halved.
    pub(super) fn new(shape: Shape, tile: Tile) -> Option<Strassen> {
        let large = shape.rows >= LEAST.rows
            && shape.columns >= LEAST.columns
            && shape.depth >= LEAST.depth;
        if !large || !shape.depth.is_multiple_of(DEPTH_UNIT) {
            return None;
        }
        let depth_block = even_blocks(shape.depth, MAX_DEPTH, DEPTH_UNIT);
        let with_sums = |elements: usize| elements * size_of::<f32>() * 7 / 4;
        let row_block = even_blocks(shape.rows, LEFT_BYTES / with_sums(depth_block), 2 * tile.rows);
        let pairs = shape.columns.div_ceil(tile.columns()) / 2;
        let fitting = RIGHT_BYTES / with_sums(2 * tile.columns() * depth_block);
        let pair_block = even_blocks(pairs, fitting, 1);
        Some(Strassen { shape, tile, row_block, depth_block, pair_block })
    }

    /// Whether the output holds partial sums on the way.
    pub(super) fn is_partial(&self) -> bool {
        self.depth_block < self.shape.depth
    }

    /// Multiplies.
    pub(super) fn run(
        &self,
        pool: &Pool,
        left: &dyn LeftSource,
        weights: &PackedWeights,
        finish: &Finish,
    ) {
        let panels = self.shape.columns.div_ceil(self.tile.columns());
        for pairs in blocks(panels / 2, self.pair_block) {
            // A last panel without another is multiplied as usual, beside the last pairs.
            let single = (pairs.end == panels / 2 && !panels.is_multiple_of(2)).then(|| panels - 1);
            for depth in blocks(self.shape.depth, self.depth_block) {
                let finish = finish.for_depths(&depth, self.shape.depth);
                let part =
                    Part { whole: self, weights, finish, pairs: pairs.clone(), depth, single };
                part.run(pool, left);
            }
        }
    }
}

/// The products of all rows with some pairs of panels over some depths.
struct Part<'a> {
    whole: &'a Strassen,
    weights: &'a PackedWeights,
    finish: Finish,
    pairs: Range<usize>,
    depth: Range<usize>,
    single: Option<usize>,
}

impl Part<'_> {
    fn run(&self, pool: &Pool, left: &dyn LeftSource) {
        with_scratch(self.pairs.len() * self.pair_size(), |right| {
            for_chunks(pool, right, self.pair_size(), &|pair, right| {
                self.sum_right(self.pairs.start + pair, right);
            });
            self.multiply(pool, left, right);
        });
    }

    /// Elements that are made of a pair of right panels: its sums, and its blocks where they must be widened.
    fn pair_size(&self) -> usize {
        let widened = if self.weights.whole().is_some() { 0 } else { BLOCKS };
        (SUMS + widened) * self.right_size()
    }

    fn multiply(&self, pool: &Pool, left: &dyn LeftSource, right: &[f32]) {
        let Strassen { tile, shape, row_block, .. } = *self.whole;
        let depth = self.depth.len();
        let packed = row_block * depth;
        let sums = SUMS * packed / 4;
        let tiles = row_block * 2 * tile.columns();
        let tasks = shape.rows.div_ceil(row_block);
        pool.run_with_scratch(tasks, packed + sums + tiles, &|task, scratch| {
            let (packed, scratch) = scratch.split_at_mut(packed);
            let (left_sums, tiles) = scratch.split_at_mut(sums);
            let rows = task * row_block..shape.rows.min((task + 1) * row_block);
            let panels = self.pack_left(left, &rows, packed, left_sums);
            let work = Work { part: self, rows, panels, packed, left_sums, right };
            dispatch(tile.isa, PairProducts { work: &work, tiles });
            self.multiply_single(&work);
        });
    }

    /// Elements of half a right panel.
    fn right_size(&self) -> usize {
        self.depth.len() / 2 * self.whole.tile.columns()
    }

    /// The depths and the right panel of block `block` (depth half, column half) of a pair.
    fn right_place(&self, pair: usize, block: usize) -> (usize, Range<usize>) {
        let half = self.depth.len() / 2;
        let start = self.depth.start + block / 2 * half;
        (2 * pair + block % 2, start..start + half)
    }

    /// A block of a pair of right panels, given the blocks that were widened.
    fn right_block<'a>(&'a self, pair: usize, block: usize, widened: &'a [f32]) -> &'a [f32] {
        let size = self.right_size();
        match self.weights.whole() {
            None => &widened[block * size..][..size],
            Some(_) => {
                let (panel, depth) = self.right_place(pair, block);
                self.weights.panel(panel, depth, &mut [])
            }
        }
    }

    /// The sums of a pair of right panels, in the order of the products, then the blocks that are widened.
    fn sum_right(&self, pair: usize, out: &mut [f32]) {
        let (sums, widened) = out.split_at_mut(SUMS * self.right_size());
        for (block, out) in widened.chunks_exact_mut(self.right_size()).enumerate() {
            let (panel, depth) = self.right_place(pair, block);
            self.weights.panel(panel, depth, out);
        }
        let operands = PRODUCTS.iter().map(|(_, right, _)| *right);
        let block = |block: usize| self.right_block(pair, block, widened);
        sum_blocks(self.whole.tile.isa, operands, sums, block);
    }

    /// Packs rows into panels and makes their sums; returns half the number of panels.
    fn pack_left(
        &self,
        left: &dyn LeftSource,
        rows: &Range<usize>,
        packed: &mut [f32],
        sums: &mut [f32],
    ) -> usize {
        let Tile { isa, rows: height, .. } = self.whole.tile;
        let block =
            PanelBlock { isa, rows: rows.clone(), depth: self.depth.clone(), panel_rows: height };
        let panels = rows.len().div_ceil(2 * height);
        let (inside, missing) =
            packed[..2 * panels * height * self.depth.len()].split_at_mut(block.len());
        left.pack(&block, inside);
        missing.fill(0.0);
        let half = height * self.depth.len() / 2;
        for panel in 0..panels {
            let source = |block: usize| {
                let start = 2 * (block / 2 * panels + panel) * half + block % 2 * half;
                &packed[start..][..half]
            };
            let operands = PRODUCTS.iter().map(|(left, ..)| *left);
            sum_blocks(isa, operands, &mut sums[panel * SUMS * half..][..SUMS * half], source);
        }
        panels
    }

    /// The usual product with the panel that has no neighbour.
    fn multiply_single(&self, work: &Work<'_>) {
        let Some(panel) = self.single else { return };
        let rows = TaskRows {
            tile: self.whole.tile,
            left: LeftRows::Packed(work.packed),
            rows: work.rows.clone(),
            finish: &self.finish,
            columns: self.whole.shape.columns,
        };
        rows.multiply(&RightPanels::new(self.weights), self.depth.clone(), panel..panel + 1);
    }
}

/// Fills `out` with the operands that are sums, one after the other.
fn sum_blocks<'a>(
    isa: Isa,
    operands: impl Iterator<Item = Operand>,
    out: &mut [f32],
    block: impl Fn(usize) -> &'a [f32],
) {
    let size = out.len() / SUMS;
    let sums = operands.filter_map(|operand| match operand {
        Operand::Block(_) => None,
        Sum(first, second) => Some((first, second, false)),
        Difference(first, second) => Some((first, second, true)),
    });
    for ((first, second, minus), out) in sums.zip(out.chunks_exact_mut(size)) {
        dispatch(isa, Add { first: block(first), second: block(second), minus, out });
    }
}

/// `out = first ± second`.
struct Add<'a> {
    first: &'a [f32],
    second: &'a [f32],
    minus: bool,
    out: &'a mut [f32],
}

impl Kernel for Add<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let pairs = self.first.iter().zip(self.second);
        if self.minus {
            for (out, (first, second)) in self.out.iter_mut().zip(pairs) {
                *out = first - second;
            }
        } else {
            for (out, (first, second)) in self.out.iter_mut().zip(pairs) {
                *out = first + second;
            }
        }
    }
}

/// The rows of a task, ready to multiply.
struct Work<'a> {
    part: &'a Part<'a>,
    rows: Range<usize>,
    /// Left panels in a half of the rows.
    panels: usize,
    packed: &'a [f32],
    left_sums: &'a [f32],
    /// What was made of the part's pairs of right panels.
    right: &'a [f32],
}

/// The products of a task's rows with all pairs.
struct PairProducts<'a> {
    work: &'a Work<'a>,
    /// Output tiles of one pair, `[block][panel]`.
    tiles: &'a mut [f32],
}

impl Kernel for PairProducts<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Part { whole, finish, .. } = self.work.part;
        for_each_tile!(whole.tile, S, self.pairs(simd));
        if finish.streaming {
            simd.fence();
        }
    }
}

impl PairProducts<'_> {
    #[inline(always)]
    fn pairs<S: Simd, const ROWS: usize, const VECTORS: usize>(self, simd: S) {
        let PairProducts { work, tiles } = self;
        let panels = work.panels;
        for pair in 0..work.part.pairs.len() {
            let products = work.products(pair, ROWS, VECTORS * S::LANES);
            for (product, (.., uses)) in products.into_iter().zip(&PRODUCTS) {
                for panel in 0..panels {
                    let tiles = &mut *tiles;
                    simd.vectorize(MultiplyInto::<FloatProduct, ROWS, VECTORS> {
                        product,
                        right: 0,
                        uses,
                        panel,
                        panels,
                        tiles,
                    });
                }
            }
            work.finish::<S, ROWS, VECTORS>(simd, work.part.pairs.start + pair, tiles);
        }
    }
}

impl Work<'_> {
    /// Finishes the tiles of a pair.
    #[inline(always)]
    fn finish<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &self,
        simd: S,
        pair: usize,
        tiles: &[f32],
    ) {
        let width = VECTORS * S::LANES;
        let columns = self.part.whole.shape.columns;
        for (index, tile) in tiles.chunks_exact(ROWS * width).take(BLOCKS * self.panels).enumerate()
        {
            let (block, panel) = (index / self.panels, index % self.panels);
            let row = (block / 2 * self.panels + panel) * ROWS;
            if row >= self.rows.len() {
                continue;
            }
            let column = (2 * pair + block % 2) * width;
            let place = Place {
                row: self.rows.start + row,
                column,
                rows: ROWS.min(self.rows.len() - row),
                columns: width.min(columns - column),
            };
            let finish = &self.part.finish;
            simd.vectorize(FinishTile::<ROWS, VECTORS> { tile, finish, place: &place });
        }
    }

    /// The seven products of a pair (counted from the part's first), with its right panel 0.
    fn products(&self, pair: usize, height: usize, width: usize) -> [FloatProduct; 7] {
        let part = self.part;
        let depth = part.depth.len() / 2;
        let made = &self.right[pair * part.pair_size()..][..part.pair_size()];
        let (mut left_sum, mut right_sum) = (0, 0);
        PRODUCTS.map(|(left, right, _)| {
            let (left, left_stride) = match left {
                Operand::Block(block) => {
                    let panel = block / 2 * self.panels;
                    let start = (2 * panel + block % 2) * depth * height;
                    (&self.packed[start..], 2 * depth * height)
                }
                Sum(..) | Difference(..) => {
                    left_sum += 1;
                    (&self.left_sums[(left_sum - 1) * depth * height..], SUMS * depth * height)
                }
            };
            let right = match right {
                Operand::Block(block) => {
                    let widened = &made[SUMS * depth * width..];
                    part.right_block(part.pairs.start + pair, block, widened)
                }
                Sum(..) | Difference(..) => {
                    right_sum += 1;
                    &made[(right_sum - 1) * depth * width..]
                }
            };
            let (left, right) = (left.as_ptr(), right.as_ptr());
            FloatProduct { left, left_stride, right, right_stride: 0, depth }
        })
    }
}
