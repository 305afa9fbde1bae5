//! Products of rows with a weight: `sm90/gemm.cu`.

use cutout_graph::ops::Activation;
use cutout_tensor::DType;

use super::operand::{Matrix, count, half_name, swizzle_of};
use super::tiles::{BYTE_TILES, Extent, TILES, Tile, cheapest, choose, choose_bytes};
use crate::launch::{Argument, KernelName, Launch, Place, TensorMap};
use crate::lower::Target;
use crate::variants::Family;

/// `epilogue(a · weightᵀ)`.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// The rows, `[tokens, depth]`, of halves or bytes.
    pub a: Matrix,
    /// The weight, `[outputs, depth]`, of the same type.
    pub weight: Matrix,
    /// `f32[outputs]`.
    pub bias: Option<Place>,
    /// For bytes: the scale of each row of `a` and of each output, `f32`.
    pub scales: Option<[Place; 2]>,
    /// What follows the bias.
    pub finish: Finish,
    /// The result, `[tokens, outputs]`: halves of the type of `a` (of f16 for bytes), or f32.
    pub out: Matrix,
}

/// What follows the bias, and in which type the result is written.
#[derive(Clone, Copy, Debug)]
pub enum Finish {
    /// Halves of `activation(x)`.
    Half(Activation),
    /// Halves of the rotated result.
    Rotated(Rotation),
    /// f32, with a residual `f32[tokens, outputs]` added if there is one. It may be the output itself.
    Single(Option<Matrix>),
}

/// Rotation of neighbouring pairs in the first columns of a result.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// Cosines `f32[positions, head / 2]`.
    pub cos: Place,
    /// Sines, likewise.
    pub sin: Place,
    /// Columns that are rotated, whole heads.
    pub columns: usize,
    /// Channels of a head.
    pub head: usize,
    /// Tokens of a picture; rows are tokens of picture after picture.
    pub tokens: usize,
    /// Width of the grid that the tokens of a picture lie on.
    pub grid: usize,
    /// Side of the square windows that positions count in; the grid's width where it is one window.
    pub window: usize,
}

/// Parameters of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Parameters {
    pub(super) rows: i32,
    pub(super) columns: i32,
    pub(super) depth: i32,
    pub(super) row_tiles: i32,
    pub(super) column_tiles: i32,
    pub(super) bias_mask: i32,
    pub(super) residual_mask: i32,
    pub(super) rope_columns: i32,
    pub(super) rope_tokens: i32,
    pub(super) rope_grid: i32,
    pub(super) rope_window: i32,
    pub(super) height: i32,
    pub(super) width: i32,
    pub(super) tiles_x: i32,
    pub(super) tiles_y: i32,
    pub(super) box_x_log2: i32,
    pub(super) channels: i32,
    pub(super) taps: i32,
    pub(super) shuffle: i32,
}

const _: () = assert!(size_of::<Parameters>() == 76);

/// -1 where an operand is present, as the kernel masks pointers.
pub(super) fn mask(operand: Option<Place>) -> i32 {
    if operand.is_some() { -1 } else { 0 }
}

pub(super) fn read(place: Option<Place>) -> Argument {
    place.map_or(Argument::Null, Argument::Read)
}

/// A map that the kernel stores through.
pub(super) fn written(map: TensorMap) -> TensorMap {
    TensorMap { writes: true, ..map }
}

/// Channels of the heads that products of bytes rotate.
const BYTE_HEAD: usize = 64;

/// Tiles of products of bytes that rotate: whole heads.
pub(super) const ROTATED_BYTES: [&str; 3] = ["p128x192", "k128x256", "p128x128"];

/// Tiles of products of bytes with ReLU.
pub(super) const RELU_BYTES: [&str; 2] = ["k128x256", "p128x128"];

/// Ending of the kernel's name for what follows the bias; `None` for what no kernel does.
pub(super) fn ending(finish: &Finish) -> Option<String> {
    Some(match finish {
        Finish::Half(Activation::Identity) => "half".to_owned(),
        Finish::Half(Activation::Gelu) => "gelu".to_owned(),
        Finish::Half(Activation::Relu) => "relu".to_owned(),
        Finish::Half(Activation::Sigmoid) => return None,
        Finish::Rotated(rotation) => format!("rope{}", rotation.head),
        Finish::Single(_) => "f32".to_owned(),
    })
}

/// The launch of a product, if a kernel takes it.
pub fn product(product: &Product, target: Target) -> Option<Launch> {
    if target.family != Family::Sm90a || !fits(product) {
        return None;
    }
    let (kind, tile, swapped) = tile_of(product, target.multiprocessors)?;
    let name = format!(
        "gemm_{kind}_{}_{}{}",
        tile.name,
        ending(&product.finish)?,
        if swapped { "_swap" } else { "" }
    );
    let half = !matches!(product.finish, Finish::Single(_));
    let arguments = arguments(product, tile, swapped)?;
    let extent = extent_of(product, swapped);
    let [row_tiles, column_tiles] = tile.grid(extent);
    let clusters = row_tiles.div_ceil(tile.cluster) * column_tiles;
    let blocks = clusters.min(target.multiprocessors / tile.cluster) * tile.cluster;
    let shared = tile.shared_bytes([swapped, half]);
    (shared <= target.shared_bytes).then(|| Launch {
        kernel: KernelName::from(name),
        grid: [blocks as u32, 1, 1],
        block: 384,
        shared_bytes: shared as u32,
        arguments,
    })
}

/// Whether types, strides and lengths suit the kernels.
fn fits(product: &Product) -> bool {
    let Product { a, weight, scales, finish, out, .. } = product;
    let bytes = a.stored == DType::I8;
    let typed = a.stored == weight.stored
        && (bytes || half_name(a.stored).is_some())
        && bytes == scales.is_some();
    let lengths = a.columns == weight.columns
        && out.rows == a.rows
        && out.columns == weight.rows
        && out.columns.is_multiple_of(8);
    let result = match finish {
        Finish::Half(_) | Finish::Rotated(_) => {
            out.stored == if bytes { DType::F16 } else { a.stored }
        }
        Finish::Single(residual) => {
            out.stored == DType::F32 && residual.is_none_or(|residual| fits_single(&residual, out))
        }
    };
    let rotation = match finish {
        Finish::Rotated(rotation) => {
            rotation.is_supported(out) && (!bytes || rotation.head == BYTE_HEAD)
        }
        Finish::Half(_) | Finish::Single(_) => true,
    };
    let tma = [a, weight, out].iter().all(|matrix| matrix.takes_tma());
    typed && lengths && result && rotation && tma
}

fn fits_single(residual: &Matrix, out: &Matrix) -> bool {
    residual.stored == DType::F32
        && [residual.rows, residual.columns] == [out.rows, out.columns]
        && residual.takes_tma()
}

impl Rotation {
    fn is_supported(&self, out: &Matrix) -> bool {
        [64, 256].contains(&self.head)
            && self.columns <= out.columns
            && self.columns.is_multiple_of(self.head)
            && out.columns.is_multiple_of(self.head)
            && self.tokens > 0
            && self.grid > 0
            && self.window > 0
            && self.tokens.is_multiple_of(self.grid)
            && self.grid.is_multiple_of(self.window)
    }
}

fn extent_of(product: &Product, swapped: bool) -> Extent {
    let Product { a, weight, .. } = product;
    let extent = Extent { rows: a.rows, columns: weight.rows, depth: a.columns };
    if swapped { extent.swapped() } else { extent }
}

/// Type in the kernel's name, tile, and whether the operands are swapped.
fn tile_of(product: &Product, multiprocessors: usize) -> Option<(&'static str, Tile, bool)> {
    let extent = extent_of(product, false);
    let named =
        |names: &[&str]| TILES.into_iter().filter(|t| names.contains(&t.name)).collect::<Vec<_>>();
    let among = |tiles: &[Tile]| cheapest(tiles, extent, 2, multiprocessors);
    let bytes_among = |names: &[&str]| {
        let tiles: Vec<Tile> =
            BYTE_TILES.into_iter().filter(|tile| names.contains(&tile.name)).collect();
        cheapest(&tiles, extent, 1, multiprocessors)
    };
    let kind = if product.a.stored == DType::I8 { "s8" } else { half_name(product.a.stored)? };
    let tile = match (product.finish, kind) {
        (Finish::Half(Activation::Identity), "s8") => {
            cheapest(&BYTE_TILES[1..], extent, 1, multiprocessors)
        }
        (Finish::Half(Activation::Gelu), "s8") => cheapest(&BYTE_TILES, extent, 1, multiprocessors),
        (Finish::Single(_), "s8") => {
            let (tile, swapped) = choose_bytes(extent, multiprocessors)?;
            return Some((kind, tile, swapped));
        }
        (Finish::Half(Activation::Relu), "s8") => bytes_among(&RELU_BYTES),
        (Finish::Rotated(_), "s8") => bytes_among(&ROTATED_BYTES),
        (_, "s8") => None,
        (Finish::Half(Activation::Relu), _) => among(&named(&["p128x192", "p128x128", "p64x128"])),
        (Finish::Rotated(rotation), _) if rotation.head == 256 => among(&named(&["p64x128"])),
        (Finish::Rotated(_), _) => among(&named(&["p128x192", "p128x128"])),
        (Finish::Half(_), _) => {
            let (tile, swapped) = choose(extent, multiprocessors, [false, true]);
            return Some((kind, tile, swapped));
        }
        (Finish::Single(_), _) => {
            let (tile, swapped) = choose(extent, multiprocessors, [true, true]);
            return Some((kind, tile, swapped));
        }
    };
    Some((kind, tile?, false))
}

fn arguments(product: &Product, tile: Tile, swapped: bool) -> Option<Vec<Argument>> {
    let Product { a, weight, bias, scales, finish, out } = product;
    let line = 128 / a.stored.size();
    let (first, second) = if swapped { (weight, a) } else { (a, weight) };
    let a_map = first.map([tile.block_rows(), line], swizzle_of(128));
    let b_map = second.map([tile.columns / tile.cluster, line], swizzle_of(128));
    let chunk = tile.chunk_columns(swapped);
    let (residual, half) = match finish {
        Finish::Single(residual) => (*residual, false),
        Finish::Half(_) | Finish::Rotated(_) => (None, true),
    };
    let slot = tile.slot_columns();
    let single_box = |matrix: &Matrix| {
        let lengths = if swapped { [slot, 32] } else { [tile.rows, slot] };
        matrix.map(lengths, swizzle_of(4 * lengths[1]))
    };
    let out_map = match (half, swapped) {
        (false, _) => written(single_box(out)),
        (true, true) => written(out.map([32, 64], swizzle_of(128))),
        (true, false) => written(out.map([tile.rows, chunk], swizzle_of(2 * chunk))),
    };
    let residual_map = residual.map_or_else(|| a_map.clone(), |residual| single_box(&residual));
    let [rows_scale, columns_scale] = match scales {
        Some([rows, outputs]) if swapped => [Some(*outputs), Some(*rows)],
        Some([rows, outputs]) => [Some(*rows), Some(*outputs)],
        None => [None, None],
    };
    let rotation = match finish {
        Finish::Rotated(rotation) => Some(rotation),
        Finish::Half(_) | Finish::Single(_) => None,
    };
    Some(vec![
        Argument::TensorMap(a_map),
        Argument::TensorMap(b_map),
        Argument::TensorMap(out_map),
        Argument::TensorMap(residual_map),
        read(*bias),
        read(rows_scale),
        read(columns_scale),
        read(rotation.map(|rotation| rotation.cos)),
        read(rotation.map(|rotation| rotation.sin)),
        Argument::of(&parameters(product, (tile, swapped), residual)?),
    ])
}

fn parameters(
    product: &Product,
    (tile, swapped): (Tile, bool),
    residual: Option<Matrix>,
) -> Option<Parameters> {
    let extent = extent_of(product, swapped);
    let [row_tiles, column_tiles] = tile.grid(extent);
    let mut parameters = Parameters {
        rows: count(extent.rows)?,
        columns: count(extent.columns)?,
        depth: count(extent.depth)?,
        row_tiles: count(row_tiles)?,
        column_tiles: count(column_tiles)?,
        bias_mask: mask(product.bias),
        residual_mask: mask(residual.map(|residual| residual.place)),
        rope_tokens: 1,
        rope_grid: 1,
        rope_window: 1,
        ..Parameters::default()
    };
    if let Finish::Rotated(rotation) = &product.finish {
        parameters.rope_columns = count(rotation.columns)?;
        parameters.rope_tokens = count(rotation.tokens)?;
        parameters.rope_grid = count(rotation.grid)?;
        parameters.rope_window = count(rotation.window)?;
    }
    Some(parameters)
}
