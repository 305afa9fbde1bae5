//! Weights, packed once into the panels that the microkernel reads.

use half::{bf16, f16};

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
        let panels = view.outputs.div_ceil(tile.columns());
        let mut data = AlignedBuffer::zeroed(panels * tile.columns() * view.depth);
        match view.data {
            WeightData::F32(source) => pack_panels(view, source, |&x| x, (tile, &mut data)),
            WeightData::F16(source) => pack_panels(view, source, |x| x.to_f32(), (tile, &mut data)),
            WeightData::Bf16(source) => {
                pack_panels(view, source, |x| x.to_f32(), (tile, &mut data))
            }
        }
        PackedWeights { tile, outputs: view.outputs, depth: view.depth, data }
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

/// Fills the panels of `target` from `source`, converting each element.
fn pack_panels<T>(
    view: &WeightView<'_>,
    source: &[T],
    convert: impl Fn(&T) -> f32,
    target: (Tile, &mut [f32]),
) {
    let (tile, data) = target;
    let width = tile.columns();
    if view.depth == 0 {
        return;
    }
    for (index, panel) in data.chunks_exact_mut(width * view.depth).enumerate() {
        let first = index * width;
        for column in 0..width.min(view.outputs - first) {
            let start = (first + column) * view.output_stride;
            for k in 0..view.depth {
                panel[k * width + column] = convert(&source[start + k * view.depth_stride]);
            }
        }
    }
}
