//! Splits a product into tasks and blocks, by shape alone, never by thread count.

use std::ops::Range;

use crate::gemm::tile::Tile;
use crate::tiles::{ROWS, SUM_COLUMNS, SUM_ROWS};

/// A product's shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) depth: usize,
}

/// Block sizes of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// Rows of a task: whole panels, except at the end.
    pub(super) row_block: usize,
    /// Right panels of a task.
    pub(super) panel_block: usize,
    /// Depths whose sums stay in registers.
    pub(super) depth_block: usize,
}

/// Bytes of packed left panels of a task: half of a 1 MiB L2 cache. A right panel and the output pass through the other half.
const LEFT_BYTES: usize = 448 << 10;
/// Most depths per block: a right panel of 48 columns then takes 192 KiB.
const MAX_DEPTH: usize = 1024;
/// Most rows of a task.
const MAX_ROWS: usize = 288;
/// Least number of tasks of a large product, so that all threads finish at about the same time.
const ENOUGH_TASKS: usize = 32;
/// Least number of rows of a task, if the product has as many, to reuse each right panel.
const ENOUGH_ROWS: usize = 64;
/// Least number of multiply-adds of a task, so that the cost of starting it is small.
const ENOUGH_WORK: usize = 400_000;

/// Size of the blocks of `0..total`: at most `limit`, all of about the same size, a multiple of `unit`.
pub(super) fn even_blocks(total: usize, limit: usize, unit: usize) -> usize {
    let blocks = total.div_ceil(limit.max(unit)).max(1);
    total.div_ceil(blocks).next_multiple_of(unit).max(unit)
}

impl Split {
    /// The blocks of a product with `f32` panels.
    pub(super) fn new(shape: Shape, tile: Tile) -> Split {
        let depth_block = even_blocks(shape.depth, MAX_DEPTH, 16);
        Split::with_depth_block(shape, tile, depth_block)
    }

    /// The blocks of a product, given the block of depths.
    pub(super) fn with_depth_block(shape: Shape, tile: Tile, depth_block: usize) -> Split {
        let fitting = (LEFT_BYTES / 4 / depth_block.max(1)).min(MAX_ROWS);
        let limit = fitting.min((shape.rows / ENOUGH_TASKS).max(ENOUGH_ROWS));
        let row_block = even_blocks(shape.rows, limit.max(tile.rows), tile.rows);
        let panels = shape.columns.div_ceil(tile.columns());
        let row_tasks = shape.rows.div_ceil(row_block).max(1);
        let panel_work = row_block.min(shape.rows) * shape.depth * tile.columns();
        let useful = (panels * panel_work / ENOUGH_WORK).clamp(1, ENOUGH_TASKS.div_ceil(row_tasks));
        Split { row_block, panel_block: panels.div_ceil(useful).max(1), depth_block }
    }
}

/// Bytes of rows of a task on tile registers: cores that have them have 2 MiB of second-level cache.
const TILE_LEFT_BYTES: usize = 1400 << 10;
/// Most rows of a task on tile registers.
const MOST_TILE_ROWS: usize = 480;
/// Least number of tasks of rows on tile registers: each reads all weights from the third-level cache or memory.
const ENOUGH_TILE_TASKS: usize = 16;

impl Split {
    /// The blocks of a product on tile registers whose rows have `words` words in a block of depths.
    pub(super) fn on_tiles(shape: Shape, words: usize) -> Split {
        let fitting = (TILE_LEFT_BYTES / 4 / words.max(1)).min(MOST_TILE_ROWS);
        let limit = fitting.min((shape.rows / ENOUGH_TILE_TASKS).max(ENOUGH_ROWS));
        let row_block = even_tiles(shape.rows, limit);
        let panels = shape.columns.div_ceil(SUM_COLUMNS);
        let row_tasks = shape.rows.div_ceil(row_block).max(1);
        let panel_work = row_block.min(shape.rows) * shape.depth * SUM_COLUMNS;
        let most = ENOUGH_TILE_TASKS.div_ceil(row_tasks);
        let useful = (panels * panel_work / ENOUGH_WORK).clamp(1, most);
        Split { row_block, panel_block: panels.div_ceil(useful).max(1), depth_block: words.max(1) }
    }
}

/// Rows of equal tasks of about `limit` rows, at most: whole tiles, and whole blocks of sums if that leaves the tasks equal.
fn even_tiles(rows: usize, limit: usize) -> usize {
    let most = (limit / ROWS).max(1);
    let least = (most * 2).div_ceil(3);
    // What a block of sums of fewer rows costs, in tiles: the columns are loaded for fewer products.
    let cost = |tiles: usize| {
        let tasks = rows.div_ceil(tiles * ROWS);
        let partial = usize::from(!(tiles * ROWS).is_multiple_of(SUM_ROWS));
        (2 * tasks * tiles + tasks * partial, most - tiles)
    };
    (least..=most).min_by_key(|&tiles| cost(tiles)).map_or(ROWS, |tiles| tiles * ROWS)
}

/// The tasks of a product: row blocks by groups of right panels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tasks {
    rows: usize,
    panels: usize,
    split: Split,
}

impl Tasks {
    pub(super) fn new(shape: Shape, tile: Tile, split: Split) -> Tasks {
        Tasks { rows: shape.rows, panels: shape.columns.div_ceil(tile.columns()), split }
    }

    /// Number of tasks.
    pub(super) fn count(&self) -> usize {
        self.rows.div_ceil(self.split.row_block) * self.panels.div_ceil(self.split.panel_block)
    }

    /// The rows and the right panels of a task.
    pub(super) fn get(&self, task: usize) -> (Range<usize>, Range<usize>) {
        let groups = self.panels.div_ceil(self.split.panel_block);
        let row = task / groups * self.split.row_block;
        let panel = task % groups * self.split.panel_block;
        let rows = row..self.rows.min(row + self.split.row_block);
        (rows, panel..self.panels.min(panel + self.split.panel_block))
    }
}
