//! Weights, packed once into the panels that the microkernel reads.

use half::{bf16, f16};

use crate::gemm::right::{RightBlock, RightView};
use crate::gemm::tile::Tile;
use crate::memory::AlignedBuffer;
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
        view.check();
        let tile = Tile::choose(isa, view.outputs);
        let (outputs, depth) = (view.outputs, view.depth);
        let mut data = AlignedBuffer::zeroed(outputs.next_multiple_of(tile.columns()) * depth);
        match view.data {
            WeightData::F32(source) => {
                let right = RightView {
                    data: source,
                    column_stride: view.output_stride,
                    depth_stride: view.depth_stride,
                };
                right.pack(&RightBlock { tile, columns: 0..outputs, depth: 0..depth }, &mut data);
            }
            WeightData::F16(source) => {
                pack_converted(view, tile, &mut data, |index| source[index].to_f32());
            }
            WeightData::Bf16(source) => {
                pack_converted(view, tile, &mut data, |index| source[index].to_f32());
            }
        }
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

/// Packs elements that must be converted: a panel's columns become `f32` first, then they are packed like any others.
fn pack_converted(
    view: &WeightView<'_>,
    tile: Tile,
    out: &mut [f32],
    element: impl Fn(usize) -> f32,
) {
    let (width, depth) = (tile.columns(), view.depth);
    if depth == 0 {
        return;
    }
    let mut columns = vec![0.0; width * depth];
    for (index, panel) in out.chunks_exact_mut(width * depth).enumerate() {
        let first = index * width;
        let count = width.min(view.outputs - first);
        for (n, column) in columns.chunks_exact_mut(depth).take(count).enumerate() {
            let start = (first + n) * view.output_stride;
            for (k, value) in column.iter_mut().enumerate() {
                *value = element(start + k * view.depth_stride);
            }
        }
        let right = RightView { data: &columns, column_stride: depth, depth_stride: 1 };
        right.pack(&RightBlock { tile, columns: 0..count, depth: 0..depth }, panel);
    }
}
