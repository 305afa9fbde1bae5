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

/// The kernels; the first reads the weight half as often.
pub(super) const VARIANTS: [Variant; 2] =
    [Variant { rows: 256, stages: 4 }, Variant { rows: 128, stages: 6 }];

/// A compiled kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    /// Rows of a tile.
    pub(super) rows: usize,
    /// Pieces of the depth in shared memory.
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

/// `activation(a · weightᵀ + bias + residual)`, of one matrix or of several; ReLU comes before the residual.
#[derive(Clone, Copy, Debug)]
pub struct SplitProduct {
    /// The rows of all matrices, `f32[matrices · rows, depth]`.
    pub a: Matrix,
    /// The weights of all matrices, `bf16[matrices · outputs, 2 · padded depth]`: high and low parts.
    pub weight: Matrix,
    /// Number of matrices.
    pub matrices: usize,
    /// `f32[outputs]`.
    pub bias: Option<Place>,
    /// Contiguous f32 elements that are repeated to the length of the result, and how many.
    pub residual: Option<(Place, usize)>,
    /// Identity, ReLU or GELU.
    pub activation: Activation,
    /// For a transposed convolution by 2 x 2: pixels of a line, and channels of the result.
    pub shuffle: Option<[usize; 2]>,
    /// The result in f32, contiguous.
    pub output: Place,
}

impl SplitProduct {
    /// Rows, columns and depth of each matrix.
    fn lengths(&self) -> [usize; 3] {
        [
            self.a.rows / self.matrices.max(1),
            self.weight.rows / self.matrices.max(1),
            self.a.columns,
        ]
    }

    /// Whether the kernels have this end of a product.
    fn ends_well(&self) -> bool {
        let [rows, columns, _] = self.lengths();
        let result = self.matrices * rows * columns;
        // A row's place in the residual is found by its first element alone.
        let span = self.shuffle.map_or(columns, |[width, outputs]| 4 * width * outputs);
        let repeats = |period: usize| {
            period > 0 && result.is_multiple_of(period) && period.is_multiple_of(span)
        };
        let residual = self.residual.is_none_or(|(_, period)| repeats(period));
        let shuffled = self.shuffle.is_none_or(|[_, outputs]| outputs.is_multiple_of(8));
        let places = [self.bias, self.residual.map(|(place, _)| place), Some(self.output)];
        let aligned = places.into_iter().flatten().all(|place| place.offset.is_multiple_of(8));
        let known = match self.activation {
            Activation::Identity | Activation::Gelu => true,
            Activation::Relu => self.residual.is_none(),
            Activation::Sigmoid => false,
        };
        residual && shuffled && aligned && known
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
struct Parameters {
    rows: i32,
    columns: i32,
    depth: i32,
    row_tiles: i32,
    column_tiles: i32,
    matrices: i32,
    a_rows: i32,
    b_rows: i32,
    bias_mask: i32,
    activation: i32,
    shuffle_width: i32,
    outputs: i32,
    period: u32,
}

/// Whether a kernel takes products of these lengths.
fn takes([rows, columns, depth]: [usize; 3], matrices: usize, target: Target) -> bool {
    let tiles = matrices * rows.div_ceil(128) * columns.div_ceil(COLUMNS);
    target.family == Family::Sm90a
        && tiles >= FEWEST_TILES
        && columns.is_multiple_of(8)
        && matrices * rows * columns < 1 << 31
        && depth.is_multiple_of(4)
        && depth > 0
}

/// The launch of a product, if a kernel takes it.
pub fn split_product(product: &SplitProduct, target: Target) -> Option<Launch> {
    let SplitProduct { a, weight, matrices, bias, residual, activation, shuffle, output } = product;
    let [rows, columns, depth] = product.lengths();
    let padded = depth.next_multiple_of(DEPTH);
    let typed = a.stored == DType::F32 && weight.stored == DType::BF16;
    let whole = a.rows == matrices * rows && weight.rows == matrices * columns;
    let suited = takes([rows, columns, depth], *matrices, target) && product.ends_well();
    let tma = weight.columns == 2 * padded && a.takes_tma() && weight.takes_tma();
    if !(typed && whole && suited && tma) {
        return None;
    }
    let column_tiles = columns.div_ceil(COLUMNS);
    let tiles = |variant: &Variant| matrices * rows.div_ceil(variant.rows) * column_tiles;
    // The large one only where it leaves no multiprocessor idle.
    let [large, small] = VARIANTS;
    let variant = if tiles(&large) >= target.multiprocessors { large } else { small };
    let [shuffle_width, outputs] = shuffle.unwrap_or([0, columns]);
    let parameters = Parameters {
        rows: count(rows)?,
        columns: count(columns)?,
        depth: count(padded)?,
        row_tiles: count(rows.div_ceil(variant.rows))?,
        column_tiles: count(column_tiles)?,
        matrices: count(*matrices)?,
        a_rows: count(rows)?,
        b_rows: count(columns)?,
        bias_mask: mask(*bias),
        activation: match activation {
            Activation::Relu => 1,
            Activation::Gelu => 2,
            Activation::Identity | Activation::Sigmoid => 0,
        },
        shuffle_width: count(shuffle_width)?,
        outputs: count(outputs)?,
        period: u32::try_from(residual.map_or(1, |(_, period)| period)).ok()?,
    };
    let blocks = tiles(&variant).min(target.multiprocessors);
    Some(Launch {
        kernel: KernelName::from(variant.name()),
        grid: [u32::try_from(blocks).ok()?, 1, 1],
        block: 384,
        shared_bytes: u32::try_from(variant.shared_bytes()).ok()?,
        arguments: vec![
            Argument::TensorMap(a.map([variant.rows, DEPTH], swizzle_of(4 * DEPTH))),
            Argument::TensorMap(weight.map([COLUMNS, DEPTH], swizzle_of(2 * DEPTH))),
            Argument::Write(*output),
            read(*bias),
            read(residual.map(|(place, _)| place)),
            Argument::of(&parameters),
        ],
    })
}
