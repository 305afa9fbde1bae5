//! Splits an attention into tasks and blocks, by shape alone, never by thread count.

use std::ops::Range;

use cutout_graph::ops::{Attention, BiasForm};
use cutout_tensor::Shape;

use super::grid::{Grid, Region};
use super::operands::HeadIndex;
use crate::gemm::{Arithmetic, HalfUnit};
use crate::simd::Isa;
use crate::tiles::ROWS;

/// Most keys of a block.
pub(super) const MOST_KEYS: usize = 128;
/// Most vectors of queries that a tile holds.
pub(super) const MOST_VECTORS: usize = 3;
/// Most rows of a tile. Values that are not copied have a width that is a multiple of it.
pub(super) const MOST_ROWS: usize = 8;
/// Most units of a task. A unit is a panel of one head.
pub(super) const MOST_UNITS: usize = 32;
/// Most panels of one head in a task.
const MOST_PANELS: usize = 16;
/// The same where keys and values are copied for each task.
const MOST_COPY_PANELS: usize = MOST_UNITS;
/// Widest heads of which a task takes several: their tokens are a few cache lines each, adjacent in memory.
const NARROW: usize = 32;
/// Most bytes of keys and values of a block: a quarter of a 1 MiB L2 cache.
const BLOCK_BYTES: usize = 256 << 10;
/// Most bytes of packed queries and sums of a task: about half of that cache.
const QUERY_BYTES: usize = 512 << 10;
/// Least number of tasks of a large attention, so that all threads finish at about the same time.
const ENOUGH_TASKS: usize = 32;
/// Most tasks of a group, which one thread runs one after the other.
const MOST_GROUPED: usize = 8;
/// Least number of panels that share keys, if there are as many.
const ENOUGH_PANELS: usize = 2;
/// The same for dot products, where there are keys enough for [`ENOUGH_TASKS`]: copying the keys for one panel takes longer than the products.
const ENOUGH_COPY_PANELS: usize = 8;
/// With fewer tasks than this, the keys are divided into parts whose results are merged at the end.
const FEW_TASKS: usize = 16;
/// Least number of keys of a part, so that the cost of merging is small.
const ENOUGH_KEYS: usize = 512;

/// The positional bias of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct BiasPlan {
    pub(super) form: BiasForm,
    /// `[height, width]` of the keys.
    pub(super) grid: [usize; 2],
    /// Rows and columns of a packed table.
    pub(super) lengths: [usize; 2],
}

impl BiasPlan {
    /// Whether the tables hold all rows and columns. Then they are packed once per task.
    pub(super) fn is_whole(&self) -> bool {
        self.lengths == self.grid
    }
}

/// How both products of an attention are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Products {
    /// In `f32`.
    Single,
    /// In `f32`, of queries, keys and values rounded to bf16.
    Rounded,
    /// By dot products of pairs of bf16 numbers; the weights are rounded too.
    Pairs,
    /// As [`Products::Pairs`], on tile registers.
    Tiles,
    /// As [`Products::Tiles`], on their twin in plain Rust.
    TileTwin,
    /// By dot products of four bytes.
    Bytes,
}

impl Products {
    /// The products on a unit. On tiles, a vector of queries is a tile's row: narrower vectors multiply rounded numbers in `f32`.
    fn new(arithmetic: Arithmetic, isa: Isa) -> Products {
        match arithmetic.half {
            _ if arithmetic.byte_attention => Products::Bytes,
            None => Products::Single,
            Some(HalfUnit::Dots) => Products::Pairs,
            Some(HalfUnit::Tiles) if isa.lanes() == ROWS => Products::Tiles,
            Some(HalfUnit::TileTwin) if isa.lanes() == ROWS => Products::TileTwin,
            Some(HalfUnit::Tiles | HalfUnit::TileTwin | HalfUnit::Widened) => Products::Rounded,
        }
    }

    /// Whether the operands are tiles.
    pub(super) fn on_tiles(self) -> bool {
        matches!(self, Products::Tiles | Products::TileTwin)
    }
}

/// The tasks and blocks of an attention of known shape.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The instruction set: narrower than the machine's if there are few queries.
    pub(super) isa: Isa,
    pub(super) products: Products,
    pub(super) heads: usize,
    pub(super) width: usize,
    pub(super) value_width: usize,
    /// Factor of the queries, or of their scales as bytes: the op's scale times log2(e), or 1 if the scores are scaled.
    pub(super) query_scale: f32,
    /// Factor of the scores, in bf16: the numbers that are rounded are the inputs themselves.
    pub(super) score_scale: Option<f32>,
    /// With causal order, how many more keys than queries there are.
    pub(super) causal: Option<usize>,
    /// Keys at the end of each image that are not rotated.
    pub(super) key_tail: usize,
    pub(super) bias: Option<BiasPlan>,
    /// Whether queries and keys are rotated.
    pub(super) rotates: bool,
    /// Keys of a block, at most.
    pub(super) key_block: usize,
    pub(super) batch: usize,
    queries: Grid,
    keys: Grid,
    /// Vectors of queries in a panel.
    pub(super) panel_vectors: usize,
    /// Vectors of queries in a task, at most.
    pub(super) task_vectors: usize,
    /// Heads in a task.
    pub(super) task_heads: usize,
    /// Tasks of one window and head.
    blocks: usize,
    /// Number of parts that the keys of each task are divided into.
    pub(super) key_parts: usize,
}

/// The queries and keys of one task.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The image and the first head.
    pub(super) head: HeadIndex,
    /// The window of the queries.
    pub(super) queries: Region,
    /// The window of the keys.
    pub(super) keys: Region,
    /// The task's first query, counted in its window.
    pub(super) first: usize,
    /// The task's queries.
    pub(super) count: usize,
    /// Indices of the task's keys in their window.
    pub(super) key_range: Range<usize>,
}

impl Plan {
    /// The plan of an op for the shapes of its queries, keys and values.
    pub(super) fn new(
        op: &Attention,
        [query, key, value]: [&Shape; 3],
        arithmetic: Arithmetic,
    ) -> Plan {
        let (queries, keys) = grids(op, query[1], key[1]);
        let most_queries = (queries.window[0] * queries.window[1]).min(query[1]);
        let mut isa = arithmetic.isa.or_available();
        let products = Products::new(arithmetic, isa);
        let of_singles = matches!(products, Products::Single | Products::Rounded);
        if isa == Isa::Avx512 && of_singles && most_queries <= Isa::Avx2.lanes() {
            // Vectors of half the width have the same throughput here, with fewer idle lanes.
            isa = Isa::Avx2.or_available();
        }
        let lanes = isa.lanes();
        let [width, value_width] = [query[2] / op.heads, value[2] / op.heads];
        let [padded_width, padded_values] =
            [width, value_width].map(|width| width.next_multiple_of(lanes));
        let padded = padded_width + padded_values;
        let key_block = (BLOCK_BYTES / 4 / padded / lanes * lanes).clamp(lanes, MOST_KEYS);
        let panel_vectors = panel_vectors(isa);
        let vectors = most_queries.div_ceil(lanes).max(1);
        let panels = vectors.div_ceil(panel_vectors);
        let windows = query[0] * queries.window_count();
        let copies = op.rope.is_some()
            || !value_width.is_multiple_of(MOST_ROWS)
            || products != Products::Single;
        let joined = !copies && width.max(value_width) <= NARROW;
        let task_heads = if joined { heads_of_task(op.heads, windows * panels) } else { 1 };
        let window_heads = windows * (op.heads / task_heads);
        let key_positions = keys.window[0] * keys.window[1];
        let split = Split {
            dots: matches!(products, Products::Pairs | Products::Bytes),
            panels,
            // Queries are kept as words, sums of values as numbers.
            panel_bytes: match products {
                Products::Pairs => 4 * (padded_width / 2 + padded_values),
                Products::Bytes => 4 * (padded_width / 4 + padded_values),
                Products::Single | Products::Rounded | Products::Tiles | Products::TileTwin => {
                    4 * padded
                }
            } * lanes
                * panel_vectors
                * task_heads,
            most: MOST_UNITS / task_heads,
            window_heads: window_heads.max(1),
            key_parts: (key_positions / ENOUGH_KEYS).max(1),
        };
        let (task_panels, key_parts) = split.choose();
        let blocks = panels.div_ceil(task_panels);
        let scale = op.scale * std::f32::consts::LOG2_E;
        let scales_queries = matches!(products, Products::Single | Products::Bytes);
        Plan {
            isa,
            products,
            heads: op.heads,
            width,
            value_width,
            query_scale: if scales_queries { scale } else { 1.0 },
            score_scale: (!scales_queries).then_some(scale),
            causal: op.causal.then(|| key[1] - query[1]),
            key_tail: op.rope.map_or(0, |rope| rope.key_tail),
            bias: op.bias.map(|bias| {
                let lengths = bias.grid.map(|length| length.min(key_block));
                BiasPlan { form: bias.form, grid: bias.grid, lengths }
            }),
            rotates: op.rope.is_some(),
            key_block,
            batch: query[0],
            queries,
            keys,
            panel_vectors,
            task_vectors: (task_panels * panel_vectors).min(vectors),
            task_heads,
            blocks,
            key_parts,
        }
    }

    /// Number of tasks; the parts of one task count once.
    pub(super) fn tasks(&self) -> usize {
        self.batch * self.queries.window_count() * (self.heads / self.task_heads) * self.blocks
    }

    /// Tasks of a group, which one thread runs one after the other. While it computes one, it prefetches the inputs of the next:
    /// small tasks (windows of a few tokens) would otherwise wait for memory.
    pub(super) fn group(&self) -> usize {
        (self.tasks() / ENOUGH_TASKS).clamp(1, MOST_GROUPED)
    }

    /// Steps of the sums of a score.
    pub(super) fn score_steps(&self) -> usize {
        match self.products {
            Products::Single | Products::Rounded => self.width,
            Products::Pairs => self.width.div_ceil(2),
            Products::Tiles | Products::TileTwin => self.width.div_ceil(2).next_multiple_of(ROWS),
            Products::Bytes => self.width.div_ceil(4),
        }
    }

    /// Elements of a panel of copied values: words of `LANES` channels.
    pub(super) fn value_panel(&self) -> usize {
        let keys = if self.products == Products::Bytes { 4 } else { 2 };
        self.key_block.div_ceil(keys) * self.isa.lanes()
    }

    /// Whether values are copied, because their width is not a multiple of a tile's rows.
    pub(super) fn pads_values(&self) -> bool {
        !self.value_width.is_multiple_of(MOST_ROWS)
    }

    /// Part `part` of task `number`; `None` if its window has too few queries.
    pub(super) fn job(&self, number: usize, part: usize) -> Option<Job> {
        let (number, block) = (number / self.blocks, number % self.blocks);
        let groups = self.heads / self.task_heads;
        let (number, group) = (number / groups, number % groups);
        let windows = self.queries.window_count();
        let (image, window) = (number / windows, number % windows);
        let queries = self.queries.region(window);
        let first = block * self.task_vectors * self.isa.lanes();
        let count = queries.tokens().checked_sub(first).filter(|&count| count > 0)?;
        let keys = self.keys.region(window);
        let border = |part: usize| keys.positions() * part / self.key_parts;
        Some(Job {
            head: HeadIndex { image, head: group * self.task_heads },
            queries,
            keys,
            key_range: border(part)..border(part + 1),
            first,
            count: count.min(self.task_vectors * self.isa.lanes()),
        })
    }
}

/// What decides how many panels a task has, and how many parts its keys.
pub(super) struct Split {
    /// Whether the products are dot products of copies in vectors.
    pub(super) dots: bool,
    /// Panels of a window and head.
    pub(super) panels: usize,
    /// Bytes of a panel's queries and sums, in all heads of a task.
    pub(super) panel_bytes: usize,
    /// Most panels of a task.
    pub(super) most: usize,
    /// Windows times groups of heads.
    pub(super) window_heads: usize,
    /// Most parts of the keys.
    pub(super) key_parts: usize,
}

impl Split {
    /// The panels of a task and the parts of its keys.
    pub(super) fn choose(&self) -> (usize, usize) {
        let Split { dots, panels, window_heads, .. } = *self;
        let most_panels = if dots { MOST_COPY_PANELS } else { MOST_PANELS };
        let most = (QUERY_BYTES / self.panel_bytes).min(most_panels).min(self.most).max(1);
        let least_tasks = window_heads * panels.div_ceil(ENOUGH_COPY_PANELS);
        let copies_few = dots && least_tasks * self.key_parts >= ENOUGH_TASKS;
        let enough = if copies_few { ENOUGH_COPY_PANELS } else { ENOUGH_PANELS };
        let wanted = ENOUGH_TASKS.div_ceil(window_heads);
        let task_panels = (panels / wanted).max(enough).min(most);
        let blocks = panels.div_ceil(task_panels);
        let tasks = window_heads * blocks;
        let key_parts = if copies_few && panels > ENOUGH_COPY_PANELS {
            ENOUGH_TASKS.div_ceil(tasks)
        } else {
            FEW_TASKS / tasks
        };
        (panels.div_ceil(blocks), key_parts.clamp(1, self.key_parts))
    }
}

/// Number of heads of a task, given the heads and the tasks of each head: as many as leave enough tasks.
fn heads_of_task(heads: usize, others: usize) -> usize {
    let enough =
        |&taken: &usize| heads.is_multiple_of(taken) && heads / taken * others >= ENOUGH_TASKS / 2;
    (1..=heads.min(MOST_UNITS)).rev().find(enough).unwrap_or(1)
}

/// The grids of queries and keys. With a bias, positions in the window of the keys are its rows and columns; with a relative
/// bias, those of the queries are too.
fn grids(op: &Attention, queries: usize, keys: usize) -> (Grid, Grid) {
    if let Some(windows) = op.windows {
        let queries = Grid { size: windows.query_grid, window: windows.query_window };
        return (queries, Grid { size: windows.key_grid, window: windows.key_window });
    }
    let line = |tokens| Grid::whole([1, tokens]);
    match op.bias {
        None => (line(queries), line(keys)),
        Some(bias) => match bias.form {
            BiasForm::Absolute => (line(queries), Grid::whole(bias.grid)),
            BiasForm::Relative => (Grid::whole(bias.grid), Grid::whole(bias.grid)),
        },
    }
}

/// Vectors of queries in a panel: as many as the registers hold for a tile of a few keys.
fn panel_vectors(isa: Isa) -> usize {
    match isa {
        Isa::Avx512 | Isa::Avx2 => MOST_VECTORS,
        // A vector takes two registers, of which x86-64 has 16 and AArch64 has 32.
        Isa::Portable if cfg!(target_arch = "aarch64") => 2,
        Isa::Portable => 1,
    }
}
