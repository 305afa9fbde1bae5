//! Weights, packed once into the panels that the microkernel reads.

use half::{bf16, f16};

use crate::gemm::right::{RightBlock, RightView};
use crate::gemm::tile::Tile;
use crate::memory::AlignedBuffer;
use crate::pool::Pool;
use crate::simd::Isa;

/// The elements of a weight, as the checkpoint has them.
#[derive(Clone, Copy, Debug)]
pub enum WeightData<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// IEEE half precision.
    F16(&'a [f16]),
    /// The upper half of single precision.
    Bf16(&'a [bf16]),
}

impl WeightData<'_> {
    /// Elements in the slice.
    pub fn len(&self) -> usize {
        match self {
            WeightData::F32(data) => data.len(),
            WeightData::F16(data) => data.len(),
            WeightData::Bf16(data) => data.len(),
        }
    }

    /// Whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A weight of `outputs` by `depth` somewhere in memory: element `(n, k)` is at `n * output_stride + k * depth_stride`. A
/// linear layer's `[outputs, depth]` has strides `(depth, 1)`, a matrix `[depth, outputs]` has `(1, outputs)`.
#[derive(Clone, Copy, Debug)]
pub struct WeightView<'a> {
    /// The elements.
    pub data: WeightData<'a>,
    /// Columns of the product.
    pub outputs: usize,
    /// Length of the sums.
    pub depth: usize,
    /// Elements from one output to the next.
    pub output_stride: usize,
    /// Elements from one depth to the next.
    pub depth_stride: usize,
}

impl<'a> WeightView<'a> {
    /// A weight `[outputs, depth]`, row by row.
    pub fn output_major(data: WeightData<'a>, outputs: usize, depth: usize) -> WeightView<'a> {
        WeightView { data, outputs, depth, output_stride: depth, depth_stride: 1 }
    }

    /// A weight `[depth, outputs]`, row by row.
    pub fn depth_major(data: WeightData<'a>, outputs: usize, depth: usize) -> WeightView<'a> {
        WeightView { data, outputs, depth, output_stride: 1, depth_stride: outputs }
    }

    /// Panics unless every element lies inside the data.
    fn check(&self) {
        if self.outputs == 0 || self.depth == 0 {
            return;
        }
        let last = (self.outputs - 1) * self.output_stride + (self.depth - 1) * self.depth_stride;
        assert!(last < self.data.len(), "{} elements needed, {} given", last + 1, self.data.len());
    }
}

/// A weight in panels `[panel][depth][tile.columns()]`, padded with zeros to whole panels.
#[derive(Debug)]
pub struct PackedWeights {
    tile: Tile,
    outputs: usize,
    depth: usize,
    data: AlignedBuffer<f32>,
}

impl PackedWeights {
    /// Packs a weight for products with the instructions of `isa`.
    ///
    /// Panics if the view reaches beyond its data.
    pub fn pack(isa: Isa, view: &WeightView<'_>) -> PackedWeights {
        let mut packed = PackedWeights::blank(isa, view);
        let block =
            RightBlock { tile: packed.tile, columns: 0..view.outputs, depth: 0..view.depth };
        pack_columns(view, &block, &mut packed.data);
        packed
    }

    /// The same on all threads of a pool: weights of many megabytes take as long as they take to move.
    pub fn pack_on(pool: &Pool, isa: Isa, view: &WeightView<'_>) -> PackedWeights {
        let mut packed = PackedWeights::blank(isa, view);
        let (tile, depth) = (packed.tile, packed.depth);
        let width = tile.columns() * (PART / (tile.columns() * depth).max(1)).max(1);
        pool.run_on_parts(&mut packed.data, width * depth, &|part, panels| {
            let columns = part * width..view.outputs.min((part + 1) * width);
            pack_columns(view, &RightBlock { tile, columns, depth: 0..depth }, panels);
        });
        packed
    }

    /// A weight whose panels are not filled yet.
    fn blank(isa: Isa, view: &WeightView<'_>) -> PackedWeights {
        view.check();
        let tile = Tile::choose(isa, view.outputs);
        let (outputs, depth) = (view.outputs, view.depth);
        let data = AlignedBuffer::zeroed(outputs.next_multiple_of(tile.columns()) * depth);
        PackedWeights { tile, outputs, depth, data }
    }

    /// Columns of the product.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Length of the sums.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The tile that the panels are made for.
    pub fn tile(&self) -> Tile {
        self.tile
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.data)
    }

    /// The panels.
    pub(super) fn panels(&self) -> &[f32] {
        &self.data
    }
}

/// Elements that a thread packs at a time.
const PART: usize = 1 << 18;

/// Packs some columns of a weight, whole panels of them.
fn pack_columns(view: &WeightView<'_>, block: &RightBlock, out: &mut [f32]) {
    match view.data {
        WeightData::F32(data) => {
            let (column_stride, depth_stride) = (view.output_stride, view.depth_stride);
            RightView { data, column_stride, depth_stride }.pack(block, out);
        }
        WeightData::F16(data) => pack_converted(view, block, out, |index| data[index].to_f32()),
        WeightData::Bf16(data) => pack_converted(view, block, out, |index| data[index].to_f32()),
    }
}

/// Packs elements that must be converted: a panel's columns become `f32` first, then they are packed like any others.
fn pack_converted(
    view: &WeightView<'_>,
    block: &RightBlock,
    out: &mut [f32],
    element: impl Fn(usize) -> f32,
) {
    let (tile, width, depth) = (block.tile, block.tile.columns(), view.depth);
    if depth == 0 {
        return;
    }
    let mut converted = vec![0.0; width * depth];
    for (index, panel) in out.chunks_exact_mut(width * depth).enumerate() {
        let first = block.columns.start + index * width;
        let count = width.min(block.columns.end - first);
        for (n, column) in converted.chunks_exact_mut(depth).take(count).enumerate() {
            let start = (first + n) * view.output_stride;
            for (k, value) in column.iter_mut().enumerate() {
                *value = element(start + k * view.depth_stride);
            }
        }
        let right = RightView { data: &converted, column_stride: depth, depth_stride: 1 };
        right.pack(&RightBlock { tile, columns: 0..count, depth: 0..depth }, panel);
    }
}
