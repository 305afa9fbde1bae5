//! Large products with seven multiplications where eight are usual (Strassen 1969), very large ones with 49 for 64.
//!
//! Both sides and the output are cut into halves both ways, `C = A · B` with
//!
//! ```text
//! | C0 C1 |   | A0 A1 |   | B0 B1 |
//! | C2 C3 | = | A2 A3 | · | B2 B3 |
//! ```
//!
//! and each of seven products multiplies a sum of blocks of `A` with a sum of blocks of `B` and adds the result to blocks of
//! `C` (`scheme`). Each of the seven can be cut in the same way again: a second level. Sums in memory would cost more than the
//! eighth multiplication, so the halves are chosen such that everything but the right sums stays in a core's caches: the rows
//! of `A` are those of one task, the columns of `B` a group of neighbouring panels, and the depths those of one block.
//!
//! 1. For some columns and depths the sums of right panels are made, once for all rows, as many as the shared cache holds.
//! 2. A task packs its rows, makes their sums, and multiplies them group by group of panels; the outputs of a group are summed
//!    in tiles that stay in the first two caches, and finished from there.
//!
//! Rounding errors of one level are up to a half larger than those of the usual sums, those of two levels up to
//! 1.4 times larger (root mean square; a test holds that). What is not finite in a row of the left side spreads to up to three other
//! rows of the same task, in a column of the right side to three other columns. Like everywhere, bits depend on the shape alone.

mod scheme;

use std::ops::Range;

use cutout_parallel::{Pool, with_scratch};
#[cfg(test)]
pub(super) use scheme::MAX_LEVELS;
use scheme::Scheme;

use crate::gemm::driver::{LeftRows, TaskRows, blocks};
use crate::gemm::kernel::{FloatProduct, for_each_tile};
use crate::gemm::left::{LeftSource, PanelBlock};
use crate::gemm::pack::{PackedWeights, RightPanels};
use crate::gemm::split::{Shape, even_blocks};
use crate::gemm::terms::{MultiplyInto, StoreTile};
use crate::gemm::tile::Tile;
use crate::gemm::writer::{OutputWriter, TileBounds};
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// Bytes of right panels and their sums that are multiplied with all rows before the next: a part of a shared cache.
const RIGHT_BYTES: usize = 12 << 20;
/// Bytes of left panels and their sums of a task: half of a second-level cache of 1 MiB.
const LEFT_BYTES: usize = 520 << 10;
/// Most depths per block.
const MAX_DEPTH: usize = 1024;
/// Below these sizes making sums costs more than they save, and there are too few tasks: by number of levels, less one.
const LEAST: [Shape; scheme::MAX_LEVELS] = [
    Shape { rows: 3072, columns: 256, depth: 256 },
    Shape { rows: 3072, columns: 768, depth: 768 },
];
/// What depths are a multiple of: all parts then fill whole turns of the inner loop.
const DEPTH_UNIT: usize = 16;

/// How a product is cut.
#[derive(Clone, Copy)]
pub(super) struct Strassen {
    pub(super) shape: Shape,
    pub(super) tile: Tile,
    /// How often everything is halved.
    pub(super) levels: usize,
    /// Rows of a task: whole groups of left panels, except at the end.
    pub(super) row_block: usize,
    /// Depths whose sums stay in registers, one part of them at a time.
    pub(super) depth_block: usize,
    /// Groups of right panels whose sums are made at a time.
    pub(super) group_block: usize,
}

impl Strassen {
    /// The cut of a product, if it is large enough to gain by it and its depths can be halved.
    pub(super) fn new(shape: Shape, tile: Tile) -> Option<Strassen> {
        let large = |least: &&Shape| {
            shape.rows >= least.rows && shape.columns >= least.columns && shape.depth >= least.depth
        };
        let levels = LEAST.iter().take_while(large).count();
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

    /// Into how many parts rows, depths and groups of columns are cut.
    fn parts(&self) -> usize {
        1 << self.levels
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
        writer: &OutputWriter<'_>,
    ) {
        let panels = self.shape.columns.div_ceil(self.tile.columns());
        let all = panels / self.parts();
        let scheme = Scheme::of(self.levels);
        for groups in blocks(all, self.group_block) {
            // Last panels that fill no group are multiplied as usual, beside the last groups.
            let end = if groups.end == all { panels } else { groups.end * self.parts() };
            let others = groups.end * self.parts()..end;
            for depth in blocks(self.shape.depth, self.depth_block) {
                let writer = writer.for_depths(&depth, self.shape.depth);
                let (groups, others) = (groups.clone(), others.clone());
                let part = Part { whole: self, scheme, weights, writer, groups, depth, others };
                part.run(pool, left);
            }
        }
    }
}

/// The products of all rows with some groups of panels over some depths.
struct Part<'a> {
    whole: &'a Strassen,
    scheme: &'static Scheme,
    weights: &'a PackedWeights,
    writer: OutputWriter<'a>,
    groups: Range<usize>,
    depth: Range<usize>,
    /// Panels that are multiplied as usual.
    others: Range<usize>,
}

impl Part<'_> {
    fn run(&self, pool: &Pool, left: &dyn LeftSource) {
        with_scratch(self.groups.len() * self.group_size(), |right| {
            pool.for_chunks(right, self.group_size(), &|group, right| {
                self.make_right(self.groups.start + group, right);
            });
            self.multiply(pool, left, right);
        });
    }

    /// Blocks of each side and of the output.
    fn blocks(&self) -> usize {
        self.whole.parts() * self.whole.parts()
    }

    /// Elements that are made of a group of right panels: the operands of all products.
    fn group_size(&self) -> usize {
        self.scheme.right.operands() * self.right_size()
    }

    fn multiply(&self, pool: &Pool, left: &dyn LeftSource, right: &[f32]) {
        let Strassen { tile, shape, row_block, .. } = *self.whole;
        let depth = self.depth.len();
        let packed = row_block * depth;
        let operands = self.scheme.left.operands() * packed / self.blocks();
        let before = self.scheme.left.before() * self.part_depth() * tile.rows;
        let tiles = row_block * self.whole.parts() * tile.columns();
        let tasks = shape.rows.div_ceil(row_block);
        pool.run_with_scratch(tasks, packed + operands + tiles.max(before), &|task, scratch| {
            let (packed, scratch) = scratch.split_at_mut(packed);
            let (operands, rest) = scratch.split_at_mut(operands);
            let rows = task * row_block..shape.rows.min((task + 1) * row_block);
            let panels = self.pack_left(left, &rows, packed, (operands, rest));
            let work = Work { part: self, rows, panels, packed, left: operands, right };
            dispatch(tile.isa, GroupProducts { work: &work, tiles: rest });
            self.multiply_others(&work);
        });
    }

    /// Depths of a block.
    fn part_depth(&self) -> usize {
        self.depth.len() / self.whole.parts()
    }

    /// Elements of a block of a right panel.
    fn right_size(&self) -> usize {
        self.part_depth() * self.whole.tile.columns()
    }

    /// The right panel and the depths of block `block` (part of the depths, panel) of a group.
    fn right_place(&self, group: usize, block: usize) -> (usize, Range<usize>) {
        let parts = self.whole.parts();
        let start = self.depth.start + block / parts * self.part_depth();
        (parts * group + block % parts, start..start + self.part_depth())
    }

    /// The operands of a group of right panels.
    fn make_right(&self, group: usize, out: &mut [f32]) {
        let size = self.right_size();
        let widened = if self.weights.whole().is_some() { 0 } else { self.blocks() * size };
        let before = self.scheme.right.before() * size;
        with_scratch(widened + before, |scratch| {
            let (widened, before) = scratch.split_at_mut(widened);
            for (block, out) in widened.chunks_exact_mut(size).enumerate() {
                let (panel, depth) = self.right_place(group, block);
                self.weights.panel(panel, depth, out);
            }
            let widened = &*widened;
            let block = |block: usize| match self.weights.whole() {
                None => &widened[block * size..][..size],
                Some(_) => {
                    let (panel, depth) = self.right_place(group, block);
                    self.weights.panel(panel, depth, &mut [])
                }
            };
            self.scheme.right.make(self.whole.tile.isa, out, before, block);
        });
    }

    /// Packs rows into panels and makes the operands of them, by way of the second slice; returns the number of panels of each part of the rows.
    fn pack_left(
        &self,
        left: &dyn LeftSource,
        rows: &Range<usize>,
        packed: &mut [f32],
        (operands, before): (&mut [f32], &mut [f32]),
    ) -> usize {
        let Tile { isa, rows: height, .. } = self.whole.tile;
        let parts = self.whole.parts();
        let block =
            PanelBlock { isa, rows: rows.clone(), depth: self.depth.clone(), panel_rows: height };
        let panels = rows.len().div_ceil(parts * height);
        let (inside, missing) =
            packed[..parts * panels * height * self.depth.len()].split_at_mut(block.len());
        left.pack(&block, inside);
        missing.fill(0.0);
        let size = height * self.part_depth();
        let made = self.scheme.left.operands() * size;
        for (panel, operands) in operands.chunks_exact_mut(made).take(panels).enumerate() {
            let source = |block: usize| {
                let start = (block / parts * panels + panel) * parts + block % parts;
                &packed[start * size..][..size]
            };
            self.scheme.left.make(isa, operands, before, source);
        }
        panels
    }

    /// The usual product with the panels that fill no group.
    fn multiply_others(&self, work: &Work<'_>) {
        if self.others.is_empty() {
            return;
        }
        let rows = TaskRows {
            tile: self.whole.tile,
            left: LeftRows::Packed(work.packed),
            rows: work.rows.clone(),
            writer: &self.writer,
            columns: self.whole.shape.columns,
        };
        rows.multiply(&RightPanels::new(self.weights), self.depth.clone(), self.others.clone());
    }
}

/// The rows of a task, ready to multiply.
struct Work<'a> {
    part: &'a Part<'a>,
    rows: Range<usize>,
    /// Left panels in each part of the rows.
    panels: usize,
    packed: &'a [f32],
    /// The operands of the rows, `[panel][product]`.
    left: &'a [f32],
    /// The operands of the part's groups of right panels, `[group][product]`.
    right: &'a [f32],
}

/// The products of a task's rows with all groups.
struct GroupProducts<'a> {
    work: &'a Work<'a>,
    /// Output tiles of one group, `[block][panel]`.
    tiles: &'a mut [f32],
}

impl Kernel for GroupProducts<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Part { whole, writer, .. } = self.work.part;
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
        for group in 0..work.part.groups.len() {
            for (number, uses) in work.part.scheme.uses.iter().enumerate() {
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
            work.store::<S, ROWS, VECTORS>(simd, work.part.groups.start + group, tiles);
        }
    }
}

impl Work<'_> {
    /// Stores the tiles of a group.
    #[inline(always)]
    fn store<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &self,
        simd: S,
        group: usize,
        tiles: &[f32],
    ) {
        let width = VECTORS * S::LANES;
        let columns = self.part.whole.shape.columns;
        let parts = self.part.whole.parts();
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
            let writer = &self.part.writer;
            simd.vectorize(StoreTile::<ROWS, VECTORS> { tile, writer, bounds: &bounds });
        }
    }

    /// A product of a group (counted from the part's first), with its right panel 0.
    fn product(&self, group: usize, number: usize) -> FloatProduct {
        let Part { whole, scheme, .. } = *self.part;
        let depth = self.part.part_depth();
        let size = depth * whole.tile.rows;
        let left = self.left[number * size..].as_ptr();
        let left_stride = scheme.left.operands() * size;
        let start = group * self.part.group_size() + number * self.part.right_size();
        let right = self.right[start..][..self.part.right_size()].as_ptr();
        FloatProduct { left, left_stride, right, right_stride: 0, depth }
    }
}
