//! Products of f32 numbers on the tensor cores: which kernel takes which.

use cutout_tensor::DType;

use super::product::{LARGE_TILES, Side, Sizes};

/// From this many columns on, 16 rows or fewer go to the tensor cores.
const MANY_COLUMNS: usize = 8192;

/// From this depth on, large tiles pay.
const LONG_DEPTH: usize = 192;

/// A kernel that multiplies f32 numbers on the tensor cores.
pub(super) struct TensorCores {
    pub(super) name: &'static str,
    /// Rows and columns of a block.
    pub(super) tile: [u32; 2],
    /// Threads of a block.
    pub(super) block: u32,
    /// Tiles of shared memory.
    pub(super) stages: u32,
}

/// From this depth on, products of few tiles are summed in parts.
const PARTED_DEPTH: usize = 512;

/// Depth of a part at least: as much as the stages of a tile hold.
const PART_DEPTH: usize = 64;

/// A product whose depth is split, so that there are blocks for every multiprocessor.
pub(super) struct Parts {
    pub(super) kernel: TensorCores,
    /// A power of two, which divides the depth into whole steps.
    pub(super) count: usize,
}

/// The kernel for parts of the depth, where the tiles of a product with a weight would leave most of the card idle.
pub(super) fn parts(sizes: Sizes, a: Side, b: Side, multiprocessors: usize) -> Option<Parts> {
    let Sizes { rows, columns, depth, batch } = sizes;
    let few = rows <= 16;
    let (name, [height, width]) =
        if few { ("product_tf32_16x128", [16, 128]) } else { ("product_tf32_32x64", [32, 64]) };
    let tiles = rows.div_ceil(height) * columns.div_ceil(width);
    let fits = a.is_wide() && b.is_wide() && columns.is_multiple_of(4) && batch == 1 && rows > 0;
    if !fits || depth < PARTED_DEPTH || 2 * tiles > multiprocessors {
        return None;
    }
    let suits = |count: &usize| {
        depth.is_multiple_of(count * PART_DEPTH) && tiles * count <= 2 * multiprocessors
    };
    let count = [2, 4, 8, 16, 32].into_iter().filter(suits).max()?;
    let tile = [height as u32, width as u32];
    Some(Parts { kernel: TensorCores { name, tile, block: 128, stages: 4 }, count })
}

/// The kernel on the tensor cores that takes a product of many rows, or of many columns.
pub(super) fn tensor_cores(
    sizes: Sizes,
    a: Side,
    b: Side,
    multiprocessors: usize,
) -> Option<TensorCores> {
    let batches = b.batch.strides.iter().all(|stride| stride % 4 == 0);
    let across = b.stored == DType::F32
        && b.row == 1
        && b.depth.is_multiple_of(4)
        && b.place.offset.is_multiple_of(16)
        && sizes.columns.is_multiple_of(4)
        && batches;
    let along = b.is_wide() && sizes.depth.is_multiple_of(4);
    let a_fits = a.is_wide() && sizes.depth.is_multiple_of(4);
    if !a_fits || !(along || across) || sizes.depth == 0 {
        return None;
    }
    let tiles = |side: [usize; 2]| {
        sizes.rows.div_ceil(side[0]) * sizes.columns.div_ceil(side[1]) * sizes.batch
    };
    let pick = |both: [&'static str; 2]| both[usize::from(!along)];
    if sizes.rows <= 16 {
        let many = along && sizes.columns * sizes.batch >= MANY_COLUMNS;
        let name = "product_tf32_16x128";
        return many.then_some(TensorCores { name, tile: [16, 128], block: 128, stages: 4 });
    }
    // Small tiles have three blocks on a multiprocessor, which hide the beginning and the end of each other's work.
    let long = sizes.depth >= LONG_DEPTH && sizes.columns > 64;
    Some(if long && tiles([128, 128]) >= LARGE_TILES {
        let name = pick(["product_tf32_128x128", "product_tf32_128x128_across"]);
        TensorCores { name, tile: [128, 128], block: 256, stages: 3 }
    } else if tiles([64, 64]) >= multiprocessors {
        let name = pick(["product_tf32_64x64", "product_tf32_64x64_across"]);
        TensorCores { name, tile: [64, 64], block: 128, stages: 4 }
    } else {
        let name = pick(["product_tf32_32x64", "product_tf32_32x64_across"]);
        TensorCores { name, tile: [32, 64], block: 128, stages: 4 }
    })
}
