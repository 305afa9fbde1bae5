//! Strassen's algorithm (1969): large products with seven multiplications instead of eight, very large ones with 49 instead of 64.
//!
//! Both operands and the output are halved in both directions, `C = A · B` with
//!
//! ```text
//! | C0 C1 |   | A0 A1 |   | B0 B1 |
//! | C2 C3 | = | A2 A3 | · | B2 B3 |
//! ```
//!
//! and each of seven products multiplies a sum of blocks of `A` by a sum of blocks of `B` and adds the result to blocks of
//! `C` (`scheme`). A second level applies the same to each of the seven. Sums in main memory would cost more than the eighth
//! multiplication, so the blocks are chosen such that everything but the right sums stays in a core's caches: the rows of `A`
//! are those of one task, the columns of `B` a group of adjacent panels, and the depths those of one block.
//!
//! 1. The sums of right panels are computed once for all rows, for as many columns and depths as the shared cache holds.
//! 2. A task packs its rows, computes their sums, and multiplies them with one group of panels after the other. The outputs of a
//!    group are accumulated in tiles that stay in the L1 and L2 caches, and stored from there.
//!
//! Rounding errors (root mean square) are up to 1.5 times those of plain sums with one level and up to 2.4 times with two; a test
//! checks this. A task whose rows have a NaN or an infinity multiplies them without Strassen, so that it stays in its row; a `B` with
//! one is never multiplied so. Bits depend on the shape and on this alone.

mod rule;
mod scheme;

use std::ops::Range;

use cutout_parallel::{Pool, with_scratch};
pub(super) use rule::Rule;
pub use rule::strassen_rule;
#[cfg(test)]
pub(super) use scheme::MAX_LEVELS;
use scheme::Scheme;

use crate::gemm::driver::{LeftRows, RowBlock, blocks};
use crate::gemm::kernel::{FloatProduct, for_each_tile};
use crate::gemm::left::{LeftSource, PanelBlock};
use crate::gemm::pack::{PackedWeights, RightPanels};
use crate::gemm::split::{Shape, even_blocks};
use crate::gemm::terms::{MultiplyInto, StoreTile};
use crate::gemm::tile::Tile;
use crate::gemm::writer::{OutputWriter, TileBounds};
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// Bytes of right panels and their sums that are multiplied with all rows before the next ones: a part of a shared L3 cache.
const RIGHT_BYTES: usize = 12 << 20;
/// Bytes of left panels and their sums of a task: half of a 1 MiB L2 cache.
const LEFT_BYTES: usize = 520 << 10;
/// Most depths per block.
const MAX_DEPTH: usize = 1024;
/// Depths are a multiple of this, so that all blocks are whole iterations of the inner loop.
const DEPTH_UNIT: usize = 16;

/// Block sizes of a product that is computed by Strassen's algorithm.
#[derive(Clone, Copy)]
pub(super) struct Strassen {
    pub(super) shape: Shape,
    pub(super) tile: Tile,
    /// Levels of recursion.
    pub(super) levels: usize,
    /// Rows of a task: whole groups of left panels, except at the end.
    pub(super) row_block: usize,
    /// Depths of a block.
    pub(super) depth_block: usize,
    /// Groups of right panels whose sums are computed at a time.
    pub(super) group_block: usize,
}

impl Strassen {
    /// The blocks of a product, if it is large enough to gain and its depth can be halved.
    pub(super) fn new(shape: Shape, tile: Tile, rule: Rule) -> Option<Strassen> {
        let levels = rule.levels(shape);
        if levels == 0 || !shape.depth.is_multiple_of(DEPTH_UNIT) {
            return None;
        }
        let depth_block = even_blocks(shape.depth, MAX_DEPTH, DEPTH_UNIT);
        let parts = 1 << levels;
        let with_sums = |elements: usize| {
            elements * size_of::<f32>() * 7usize.pow(levels as u32) / (parts * parts)
        };
        let unit = parts * tile.rows;
        let row_block = even_blocks(shape.rows, LEFT_BYTES / with_sums(depth_block), unit);
        let groups = shape.columns.div_ceil(tile.columns()) / parts;
        let fitting = RIGHT_BYTES / with_sums(parts * tile.columns() * depth_block);
        let group_block = even_blocks(groups, fitting, 1);
        Some(Strassen { shape, tile, levels, row_block, depth_block, group_block })
    }

    /// Number of parts that rows, depths and groups of columns are divided into.
    fn parts(&self) -> usize {
        1 << self.levels
    }

    /// Whether the output holds partial sums between blocks of depths.
    pub(super) fn is_partial(&self) -> bool {
        self.depth_block < self.shape.depth
    }

    /// Multiplies.
    pub(super) fn run(
        &self,
        pool: &Pool,
        left: &dyn LeftSource,
        weights: &PackedWeights,
        writer: &OutputWriter<'_>,
    ) {
        let panels = self.shape.columns.div_ceil(self.tile.columns());
        let all = panels / self.parts();
        let scheme = Scheme::of(self.levels);
        for groups in blocks(all, self.group_block) {
            // The last panels, which do not fill a group, are multiplied without Strassen.
            let end = if groups.end == all { panels } else { groups.end * self.parts() };
            let others = groups.end * self.parts()..end;
            for depth in blocks(self.shape.depth, self.depth_block) {
                let writer = writer.for_depths(&depth, self.shape.depth);
                let (groups, others) = (groups.clone(), others.clone());
                let block =
                    GroupBlock { whole: self, scheme, weights, writer, groups, depth, others };
                block.run(pool, left);
            }
        }
    }
}

/// The products of all rows with a range of panel groups over a block of depths.
struct GroupBlock<'a> {
    whole: &'a Strassen,
    scheme: &'static Scheme,
    weights: &'a PackedWeights,
    writer: OutputWriter<'a>,
    groups: Range<usize>,
    depth: Range<usize>,
    /// Panels that are multiplied without Strassen.
    others: Range<usize>,
}

impl GroupBlock<'_> {
    fn run(&self, pool: &Pool, left: &dyn LeftSource) {
        with_scratch(self.groups.len() * self.group_size(), |right| {
            pool.for_chunks(right, self.group_size(), &|group, right| {
                self.right_operands(self.groups.start + group, right);
            });
            self.multiply(pool, left, right);
        });
    }

    /// Blocks of each matrix.
    fn blocks(&self) -> usize {
        self.whole.parts() * self.whole.parts()
    }

    /// Elements of the right operands of all products of one group.
    fn group_size(&self) -> usize {
        self.scheme.right.operands() * self.right_size()
    }

    fn multiply(&self, pool: &Pool, left: &dyn LeftSource, right: &[f32]) {
        let Strassen { tile, shape, row_block, .. } = *self.whole;
        let depth = self.depth.len();
        let packed = row_block * depth;
        let operands = self.scheme.left.operands() * packed / self.blocks();
        let intermediates = self.scheme.left.intermediates() * self.block_depth() * tile.rows;
        let tiles = row_block * self.whole.parts() * tile.columns();
        let tasks = shape.rows.div_ceil(row_block);
        pool.run_with_scratch(
            tasks,
            packed + operands + tiles.max(intermediates),
            &|task, scratch| {
                let (packed, scratch) = scratch.split_at_mut(packed);
                let (operands, rest) = scratch.split_at_mut(operands);
                let rows = task * row_block..shape.rows.min((task + 1) * row_block);
                let panels = self.pack_left(left, &rows, packed);
                if !dispatch(tile.isa, AllFinite(packed)) {
                    let parts = self.whole.parts();
                    let all = self.groups.start * parts..self.others.end;
                    return self.multiply_plainly(rows, packed, all);
                }
                self.left_operands(panels, packed, (operands, rest));
                let work = RowTask { block: self, rows, panels, left: operands, right };
                dispatch(tile.isa, GroupProducts { work: &work, tiles: rest });
                self.multiply_plainly(work.rows, packed, self.others.clone());
            },
        );
    }

    /// Depths of a block.
    fn block_depth(&self) -> usize {
        self.depth.len() / self.whole.parts()
    }

    /// Elements of a block of a right panel.
    fn right_size(&self) -> usize {
        self.block_depth() * self.whole.tile.columns()
    }

    /// The right panel and the depths of block `block` of a group; blocks are numbered `[part of the depths][panel]`.
    fn right_block(&self, group: usize, block: usize) -> (usize, Range<usize>) {
        let parts = self.whole.parts();
        let start = self.depth.start + block / parts * self.block_depth();
        (parts * group + block % parts, start..start + self.block_depth())
    }

    /// Computes the right operands of a group.
    fn right_operands(&self, group: usize, out: &mut [f32]) {
        let size = self.right_size();
        let widened = if self.weights.whole().is_some() { 0 } else { self.blocks() * size };
        let intermediates = self.scheme.right.intermediates() * size;
        with_scratch(widened + intermediates, |scratch| {
            let (widened, intermediates) = scratch.split_at_mut(widened);
            for (block, out) in widened.chunks_exact_mut(size).enumerate() {
                let (panel, depth) = self.right_block(group, block);
                self.weights.panel(panel, depth, out);
            }
            let widened = &*widened;
            let block = |block: usize| match self.weights.whole() {
                None => &widened[block * size..][..size],
                Some(_) => {
                    let (panel, depth) = self.right_block(group, block);
                    self.weights.panel(panel, depth, &mut [])
                }
            };
            self.scheme.right.compute(self.whole.tile.isa, out, intermediates, block);
        });
    }

    /// Packs rows into panels, padded to whole groups. Returns the number of panels in each part of the rows.
    fn pack_left(&self, left: &dyn LeftSource, rows: &Range<usize>, packed: &mut [f32]) -> usize {
        let Tile { isa, rows: height, .. } = self.whole.tile;
        let block =
            PanelBlock { isa, rows: rows.clone(), depth: self.depth.clone(), panel_rows: height };
        let panels = rows.len().div_ceil(self.whole.parts() * height);
        let (inside, missing) = packed.split_at_mut(block.len());
        left.pack(&block, inside);
        missing.fill(0.0);
        panels
    }

    /// Computes the left operands of packed rows.
    fn left_operands(
        &self,
        panels: usize,
        packed: &[f32],
        (operands, intermediates): (&mut [f32], &mut [f32]),
    ) {
        let Tile { isa, rows: height, .. } = self.whole.tile;
        let parts = self.whole.parts();
        let size = height * self.block_depth();
        let panel_operands = self.scheme.left.operands() * size;
        for (panel, operands) in operands.chunks_exact_mut(panel_operands).take(panels).enumerate()
        {
            let source = |block: usize| {
                let start = (block / parts * panels + panel) * parts + block % parts;
                &packed[start * size..][..size]
            };
            self.scheme.left.compute(isa, operands, intermediates, source);
        }
    }

    /// Multiplies packed rows with a range of panels without Strassen.
    fn multiply_plainly(&self, rows: Range<usize>, packed: &[f32], panels: Range<usize>) {
        if panels.is_empty() {
            return;
        }
        let rows = RowBlock {
            tile: self.whole.tile,
            left: LeftRows::Packed(packed),
            rows,
            writer: &self.writer,
            columns: self.whole.shape.columns,
        };
        rows.multiply(&RightPanels::new(self.weights), self.depth.clone(), panels);
    }
}

/// Whether no element is a NaN or an infinity.
struct AllFinite<'a>(&'a [f32]);

impl Kernel for AllFinite<'_> {
    type Output = bool;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> bool {
        // x - x is zero for finite numbers alone, and a sum of zeros and others is zero for zeros alone.
        let mut sums = [simd.splat(0.0); 4];
        let blocks = self.0.chunks_exact(4 * S::LANES);
        let rest = blocks.remainder();
        for block in blocks {
            for (sum, vector) in sums.iter_mut().zip(block.chunks_exact(S::LANES)) {
                let x = simd.load(vector);
                *sum = simd.add(*sum, simd.sub(x, x));
            }
        }
        let sum = sums.into_iter().reduce(|a, b| simd.add(a, b)).expect("four sums");
        simd.reduce_sum(sum) == 0.0 && rest.iter().all(|x| x.is_finite())
    }
}

/// The rows of a task, packed, with their operands.
struct RowTask<'a> {
    block: &'a GroupBlock<'a>,
    rows: Range<usize>,
    /// Left panels in each part of the rows.
    panels: usize,
    /// The operands of the rows, `[panel][product]`.
    left: &'a [f32],
    /// The operands of the groups of right panels, `[group][product]`.
    right: &'a [f32],
}

/// The products of a task's rows with all groups.
struct GroupProducts<'a> {
    work: &'a RowTask<'a>,
    /// Output tiles of one group, `[block][panel]`.
    tiles: &'a mut [f32],
}

impl Kernel for GroupProducts<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let GroupBlock { whole, writer, .. } = self.work.block;
        for_each_tile!(whole.tile, S, self.groups(simd));
        if writer.streaming {
            simd.fence();
        }
    }
}

impl GroupProducts<'_> {
    #[inline(always)]
    fn groups<S: Simd, const ROWS: usize, const VECTORS: usize>(self, simd: S) {
        let GroupProducts { work, tiles } = self;
        let panels = work.panels;
        for group in 0..work.block.groups.len() {
            for (number, uses) in work.block.scheme.uses.iter().enumerate() {
                let product = work.product(group, number);
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
            work.store::<S, ROWS, VECTORS>(simd, work.block.groups.start + group, tiles);
        }
    }
}

impl RowTask<'_> {
    /// Stores the tiles of a group.
    #[inline(always)]
    fn store<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &self,
        simd: S,
        group: usize,
        tiles: &[f32],
    ) {
        let width = VECTORS * S::LANES;
        let columns = self.block.whole.shape.columns;
        let parts = self.block.whole.parts();
        let count = parts * parts * self.panels;
        for (index, tile) in tiles.chunks_exact(ROWS * width).take(count).enumerate() {
            let (block, panel) = (index / self.panels, index % self.panels);
            let row = (block / parts * self.panels + panel) * ROWS;
            if row >= self.rows.len() {
                continue;
            }
            let column = (parts * group + block % parts) * width;
            let bounds = TileBounds {
                row: self.rows.start + row,
                column,
                rows: ROWS.min(self.rows.len() - row),
                columns: width.min(columns - column),
            };
            let writer = &self.block.writer;
            simd.vectorize(StoreTile::<ROWS, VECTORS> { tile, writer, bounds: &bounds });
        }
    }

    /// Product `number` of group `group` (counted from the first group of the block); its right operand is panel 0.
    fn product(&self, group: usize, number: usize) -> FloatProduct {
        let GroupBlock { whole, scheme, .. } = *self.block;
        let depth = self.block.block_depth();
        let size = depth * whole.tile.rows;
        let left = self.left[number * size..].as_ptr();
        let left_stride = scheme.left.operands() * size;
        let start = group * self.block.group_size() + number * self.block.right_size();
        let right = self.right[start..][..self.block.right_size()].as_ptr();
        FloatProduct { left, left_stride, right, right_stride: 0, depth }
    }
}
