//! Products of f32 rows with a weight, each number as the sum of two bf16: `sm90/gemm_split.cu`.

use cutout_graph::ops::Activation;
use cutout_tensor::DType;

use super::operand::{Matrix, count, swizzle_of};
use super::product::{mask, read};
use crate::launch::{Argument, KernelName, Launch, Place};
use crate::lower::Target;
use crate::variants::Family;

/// Numbers of a row in one stage; the depth of the weight is padded to a multiple.
pub const DEPTH: usize = 32;

/// Columns of a tile.
pub(super) const COLUMNS: usize = 128;

/// From this many tiles of 128 x 128 on, the card has enough to do.
const FEWEST_TILES: usize = 96;

/// Rows of a tile and stages of each variant, the largest first.
pub(super) const VARIANTS: [Variant; 2] =
    [Variant { rows: 256, stages: 4 }, Variant { rows: 128, stages: 6 }];

/// A compiled kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    pub(super) rows: usize,
    pub(super) stages: usize,
}

impl Variant {
    pub(super) fn name(self) -> String {
        format!("gemm_split_{}x{COLUMNS}", self.rows)
    }

    fn shared_bytes(self) -> usize {
        // Tiles start at multiples of 1024 bytes.
        1024 + self.stages * (self.rows * 4 * DEPTH + 2 * COLUMNS * 2 * DEPTH)
    }
}

/// `activation(a · weightᵀ + bias) + residual`.
#[derive(Clone, Copy, Debug)]
pub struct SplitProduct {
    /// The rows, `f32[tokens, depth]`.
    pub a: Matrix,
    /// The weight, `bf16[outputs, 2 · padded depth]`: high and low parts.
    pub weight: Matrix,
    /// `f32[outputs]`.
    pub bias: Option<Place>,
    /// `f32[tokens, outputs]`, contiguous.
    pub residual: Option<Place>,
    /// What follows the bias.
    pub activation: Activation,
    /// For a transposed convolution by 2 x 2: pixels of a line, and channels of the result.
    pub shuffle: Option<[usize; 2]>,
    /// The result in f32, contiguous.
    pub output: Place,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
struct Parameters {
    rows: i32,
    columns: i32,
    depth: i32,
    row_tiles: i32,
    column_tiles: i32,
    bias_mask: i32,
    relu: i32,
    shuffle_width: i32,
    outputs: i32,
}

/// Whether a kernel takes products of these lengths.
fn takes([rows, columns, depth]: [usize; 3], target: Target) -> bool {
    let tiles = rows.div_ceil(128) * columns.div_ceil(COLUMNS);
    target.family == Family::Sm90a
        && tiles >= FEWEST_TILES
        && columns.is_multiple_of(8)
        && rows * columns < 1 << 31
        && depth.is_multiple_of(4)
        && depth > 0
}

/// The launch of a product, if a kernel takes it.
pub fn split_product(product: &SplitProduct, target: Target) -> Option<Launch> {
    let SplitProduct { a, weight, bias, residual, activation, shuffle, output } = product;
    let padded = a.columns.next_multiple_of(DEPTH);
    let lengths = weight.columns == 2 * padded && weight.stored == DType::BF16;
    let [shuffle_width, outputs] = shuffle.unwrap_or([0, weight.rows]);
    let pairs = [*bias, *residual, Some(*output)];
    let aligned = pairs.into_iter().flatten().all(|place| place.offset.is_multiple_of(8));
    let plain = matches!(activation, Activation::Identity | Activation::Relu);
    let shuffled =
        shuffle.is_none_or(|[_, outputs]| outputs.is_multiple_of(8) && residual.is_none());
    let suited = takes([a.rows, weight.rows, a.columns], target) && a.stored == DType::F32;
    if !(suited && lengths && aligned && plain && shuffled && a.takes_tma() && weight.takes_tma()) {
        return None;
    }
    let column_tiles = weight.rows.div_ceil(COLUMNS);
    let tiles = |variant: &Variant| a.rows.div_ceil(variant.rows) * column_tiles;
    // Large tiles read the weight half as often, if they leave no multiprocessor idle.
    let [large, small] = VARIANTS;
    let variant = if tiles(&large) >= target.multiprocessors { large } else { small };
    let parameters = Parameters {
        rows: count(a.rows)?,
        columns: count(weight.rows)?,
        depth: count(padded)?,
        row_tiles: count(a.rows.div_ceil(variant.rows))?,
        column_tiles: count(column_tiles)?,
        bias_mask: mask(*bias),
        relu: i32::from(*activation == Activation::Relu),
        shuffle_width: count(shuffle_width)?,
        outputs: count(outputs)?,
    };
    Some(Launch {
        kernel: KernelName::from(variant.name()),
        grid: [u32::try_from(tiles(&variant).min(target.multiprocessors)).ok()?, 1, 1],
        block: 384,
        shared_bytes: u32::try_from(variant.shared_bytes()).ok()?,
        arguments: vec![
            Argument::TensorMap(a.map([variant.rows, DEPTH], swizzle_of(4 * DEPTH))),
            Argument::TensorMap(weight.map([COLUMNS, DEPTH], swizzle_of(2 * DEPTH))),
            Argument::Write(*output),
            read(*bias),
            read(*residual),
            Argument::of(&parameters),
        ],
    })
}
