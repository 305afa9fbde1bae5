//! Tiles of the GEMM kernel, and the choice between them.
//!
//! Shapes of the published models are in a table of what was fastest on an H200; other shapes go by a cost model.

/// A consumer's tile and how the two consumers of a block share work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Name in kernel names.
    pub name: &'static str,
    /// Rows of a consumer's tile.
    pub rows: usize,
    /// Columns of a tile.
    pub columns: usize,
    /// Whether each consumer has a tile of its own ("ping-pong"); else both work on one of twice the rows.
    pub ping_pong: bool,
    /// Blocks of a cluster.
    pub cluster: usize,
    /// Stages of the pipeline.
    pub stages: usize,
    /// Rate with enough work, in percent of the best tile's.
    pub rate: usize,
}

const fn tile(name: &'static str, [rows, columns]: [usize; 2], stages: usize, rate: usize) -> Tile {
    let ping_pong = name.as_bytes()[0] == b'p';
    let cluster = if name.as_bytes()[name.len() - 2] == b'c' { 2 } else { 1 };
    Tile { name, rows, columns, ping_pong, cluster, stages, rate }
}

/// Tiles of plain products.
pub const TILES: [Tile; 13] = [
    tile("p128x192", [128, 192], 4, 100),
    tile("p128x160", [128, 160], 5, 98),
    tile("k256x160", [128, 160], 3, 97),
    tile("k128x256", [64, 256], 4, 96),
    tile("p128x144", [128, 144], 5, 95),
    tile("p128x128", [128, 128], 5, 93),
    tile("k256x128", [128, 128], 3, 92),
    tile("k128x192", [64, 192], 4, 92),
    tile("p128x96", [128, 96], 6, 82),
    tile("p64x256", [64, 256], 4, 82),
    tile("p64x144", [64, 144], 6, 74),
    tile("p64x128", [64, 128], 6, 70),
    tile("p64x96", [64, 96], 6, 62),
];

/// Tiles with swapped operands: the weight has the rows.
pub const SWAPPED: [Tile; 2] =
    [tile("p128x160c2", [128, 160], 5, 98), tile("p128x160", [128, 160], 5, 96)];

/// Tiles of products of bytes.
pub const BYTE_TILES: [Tile; 4] = [
    tile("p128x192", [128, 192], 4, 100),
    tile("p128x160", [128, 160], 5, 98),
    tile("k128x256", [64, 256], 4, 95),
    tile("p128x128", [128, 128], 5, 92),
];

/// Tiles of convolutions.
pub const CONVOLUTION_TILES: [Tile; 6] = [
    tile("k256x128", [128, 128], 3, 100),
    tile("k128x256", [64, 256], 4, 98),
    tile("p128x128", [128, 128], 5, 88),
    tile("p64x128", [64, 128], 6, 75),
    tile("k256x64", [128, 64], 4, 60),
    tile("k256x32", [128, 32], 5, 35),
];

/// Bytes of shared memory for stages and slots: what a block may have, less room to align it and for barriers.
const SHARED: usize = 224 * 1024;

/// Lengths of a product as its operands have them: rows of A, rows of B, depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Rows of A.
    pub rows: usize,
    /// Rows of B.
    pub columns: usize,
    /// Elements of a row of either.
    pub depth: usize,
}

impl Extent {
    /// The same product with its operands exchanged.
    pub fn swapped(self) -> Extent {
        Extent { rows: self.columns, columns: self.rows, ..self }
    }
}

impl Tile {
    /// Rows of a block's tile.
    pub fn block_rows(&self) -> usize {
        if self.ping_pong { self.rows } else { 2 * self.rows }
    }

    /// Tiles along rows and columns.
    pub fn grid(&self, extent: Extent) -> [usize; 2] {
        [extent.rows.div_ceil(self.block_rows()), extent.columns.div_ceil(self.columns)]
    }

    /// Columns (swapped: tokens) of a result in halves that the epilogue stages at a time.
    pub fn chunk_columns(&self, swapped: bool) -> usize {
        match self.columns {
            _ if swapped => 32,
            columns if columns.is_multiple_of(64) => 64,
            columns if columns.is_multiple_of(32) => 32,
            _ => 16,
        }
    }

    /// Columns (swapped: tokens) of a result in f32 that a slot of shared memory holds.
    pub fn slot_columns(&self) -> usize {
        if self.columns.is_multiple_of(32) { 32 } else { 16 }
    }

    fn stage_bytes(&self) -> usize {
        (self.block_rows() + self.columns) * 128
    }

    fn slot_bytes(&self) -> usize {
        self.block_rows() * self.slot_columns() * 4
    }

    /// Stages and slots of a kernel whose result is f32. With fewer slots than these, the residual would come late; they are worth a stage.
    pub fn single_stages(&self) -> [usize; 2] {
        let slots = self.columns / self.slot_columns();
        let fitting = |stages: usize| {
            (SHARED.saturating_sub(stages * self.stage_bytes()) / self.slot_bytes()).min(slots)
        };
        let enough = if self.ping_pong { 4 } else { 2 };
        let spare = usize::from(fitting(self.stages) < enough.min(slots));
        [self.stages - spare, fitting(self.stages - spare)]
    }

    /// Dynamic shared memory of a kernel, with room to align it.
    pub fn shared_bytes(&self, [swapped, half_output]: [bool; 2]) -> usize {
        if !half_output {
            let [stages, slots] = self.single_stages();
            return stages * self.stage_bytes() + slots * self.slot_bytes() + 1024;
        }
        let chunk =
            if swapped { self.rows * 64 } else { self.rows * self.chunk_columns(false) * 2 };
        self.stages * self.stage_bytes() + 4 * chunk + 1024
    }

    /// Estimated time in nanoseconds on `multiprocessors` multiprocessors, for elements of `size` bytes.
    pub fn cost(&self, extent: Extent, size: usize, multiprocessors: usize) -> u64 {
        let [rows, columns] = self.grid(extent);
        let clusters = rows.div_ceil(self.cluster) * columns;
        let rounds = clusters.div_ceil(multiprocessors / self.cluster) as u64;
        // One multiprocessor at the best tile's rate, in multiply-adds a nanosecond: 2650 of halves, 4700 of bytes.
        let speed = if size == 1 { 4700 } else { 2650 } * self.rate as u64;
        let depth = extent.depth.next_multiple_of(128 / size) as u64;
        let work = (self.block_rows() * self.columns) as u64 * depth * 100 / speed;
        // Filling the pipeline, and the last epilogue, which nothing hides.
        let ends = 1500 + (self.rows * self.columns) as u64 / 20;
        rounds * work + ends
    }
}

/// A choice for one shape: tokens, depth, outputs, f32 output, tile, swapped.
type Measured = (usize, usize, usize, bool, &'static str, bool);

/// The fastest tiles of the published models' shapes, as measured with their epilogues. Single pictures at full size.
#[rustfmt::skip]
const MEASURED: [Measured; 47] = [
    (4096, 768, 2304, false, "p128x192", false), (4096, 768, 768, true, "p128x96", false), (4096, 768, 3072, false, "p128x192", false),
    (4096, 3072, 768, true, "k128x192", false), (4096, 1024, 3072, false, "p128x192", false), (4096, 1024, 1024, true, "p128x128", false),
    (4096, 1024, 4096, false, "k128x256", false), (4096, 4096, 1024, true, "k128x256", false), (4096, 1280, 3840, false, "p128x192", false),
    (4096, 1280, 1280, true, "p128x160", true), (4096, 1280, 5120, false, "p128x160", false), (4096, 5120, 1280, true, "p128x160c2", true),
    (4096, 1280, 256, false, "p64x128", false), (5184, 1024, 3072, false, "p128x192", false), (5184, 1024, 1024, true, "p128x160", true),
    (5184, 1024, 4736, false, "p128x192", false), (5184, 4736, 1024, true, "p128x160c2", true), (5184, 256, 512, false, "p128x160", true),
    (5184, 256, 256, true, "p64x96", false), (5184, 256, 2048, false, "p128x128", false), (5184, 2048, 256, true, "p128x96", false),
    (65536, 96, 288, false, "k256x128", false), (65536, 96, 96, true, "p128x96", false), (65536, 96, 384, false, "p128x192", false),
    (65536, 384, 96, true, "p64x96", false), (16384, 192, 576, false, "p128x96", false), (16384, 192, 768, false, "p128x192", false),
    (16384, 768, 192, true, "p128x96", false), (4096, 384, 1152, false, "p128x160", false), (4096, 384, 384, true, "p64x96", false),
    (4096, 384, 1536, false, "p128x192", false), (4096, 1536, 384, true, "p128x96", false), (1024, 3072, 768, true, "p64x96", false),
    (65536, 144, 432, false, "k256x128", false), (65536, 144, 144, true, "k256x160", false), (65536, 144, 576, false, "p128x192", false),
    (65536, 576, 144, true, "p64x144", false), (16384, 288, 864, false, "p128x192", false), (16384, 288, 288, true, "p128x144", false),
    (16384, 288, 1152, false, "p128x192", false), (16384, 1152, 288, true, "p128x144", false), (4096, 576, 1728, false, "p128x144", false),
    (4096, 576, 576, true, "p64x144", false), (4096, 576, 2304, false, "p128x192", false), (4096, 2304, 576, true, "p128x144", false),
    (1024, 1152, 3456, false, "k128x256", false), (1024, 4608, 1152, true, "p64x144", false),
];

/// The tile for a product of halves with `extent.rows` tokens, and whether its operands are swapped.
///
/// `single` says that the result is f32; `swappable` that swapped kernels exist for the epilogue.
pub fn choose(
    extent: Extent,
    multiprocessors: usize,
    [single, swappable]: [bool; 2],
) -> (Tile, bool) {
    let Extent { rows, columns, depth } = extent;
    let known = MEASURED.iter().find(|&&(m, k, n, f32_output, ..)| {
        (m, k, n, f32_output) == (rows, depth, columns, single)
    });
    if let Some(&(.., name, swapped)) = known
        && (swappable || !swapped)
        && multiprocessors == 132
    {
        let tiles: &[Tile] = if swapped { &SWAPPED } else { &TILES };
        if let Some(&tile) = tiles.iter().find(|tile| tile.name == name) {
            return (tile, swapped);
        }
    }
    let plain = TILES.iter().map(|tile| (tile.cost(extent, 2, multiprocessors), *tile, false));
    let swapped = SWAPPED
        .iter()
        .filter(|_| swappable)
        .map(|tile| (tile.cost(extent.swapped(), 2, multiprocessors), *tile, true));
    let best = plain.chain(swapped).min_by_key(|&(cost, ..)| cost);
    best.map_or((TILES[0], false), |(_, tile, swapped)| (tile, swapped))
}

/// The tile for a product of bytes whose result is f32, and whether its operands are swapped.
pub fn choose_bytes(extent: Extent, multiprocessors: usize) -> Option<(Tile, bool)> {
    let of = |tiles: &[Tile], extent, swapped| {
        let tile = cheapest(tiles, extent, 1, multiprocessors)?;
        Some((tile.cost(extent, 1, multiprocessors), tile, swapped))
    };
    let both = [of(&BYTE_TILES, extent, false), of(&SWAPPED, extent.swapped(), true)];
    let best = both.into_iter().flatten().min_by_key(|&(cost, ..)| cost);
    best.map(|(_, tile, swapped)| (tile, swapped))
}

/// The cheapest of some tiles by the cost model.
pub fn cheapest(
    tiles: &[Tile],
    extent: Extent,
    size: usize,
    multiprocessors: usize,
) -> Option<Tile> {
    tiles.iter().copied().min_by_key(|tile| tile.cost(extent, size, multiprocessors))
}
