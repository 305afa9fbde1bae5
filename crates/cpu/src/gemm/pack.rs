//! Weights, packed once into the panels that the micro-kernel reads.

use std::ops::Range;

use bytemuck::{AnyBitPattern, NoUninit};
use cutout_graph::Packed;
use cutout_parallel::{AlignedBuffer, Pool, with_scratch};
use cutout_tensor::TensorError;
use half::{bf16, f16};

use crate::gemm::driver::blocks;
use crate::gemm::right::{RightBlock, RightView};
use crate::gemm::tile::Tile;
use crate::memory::zeroed;
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// The elements of a weight, in the type of the checkpoint.
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

fn is_finite(data: WeightData<'_>) -> bool {
    match data {
        WeightData::F32(data) => data.iter().all(|x| x.is_finite()),
        WeightData::F16(data) => data.iter().all(|x| x.is_finite()),
        WeightData::Bf16(data) => data.iter().all(|x| x.is_finite()),
    }
}

/// A weight of `outputs` by `depth` in memory: element `(n, k)` is at `n * output_stride + k * depth_stride`. A
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

/// A weight in panels `[panel][depth][tile.columns()]`, padded with zeros to whole panels, in the type that the checkpoint has:
/// half precision is widened when it is read.
#[derive(Debug)]
pub struct PackedWeights {
    tile: Tile,
    outputs: usize,
    depth: usize,
    panels: Panels,
    may_combine: bool,
}

/// The elements of all panels.
#[derive(Debug)]
enum Panels {
    F32(AlignedBuffer<f32>),
    F16(AlignedBuffer<f16>),
    Bf16(AlignedBuffer<bf16>),
}

impl PackedWeights {
    /// Packs a weight for products with the instructions of `isa`.
    ///
    /// Fails where there is no memory for the panels. Panics if the view reaches beyond its data.
    pub fn pack(
        pool: &Pool,
        isa: Isa,
        view: &WeightView<'_>,
    ) -> Result<PackedWeights, TensorError> {
        view.check();
        let (outputs, depth) = (view.outputs, view.depth);
        let tile = Tile::choose(isa, outputs);
        let packing = Packing { pool, tile, view };
        let panels = match view.data {
            WeightData::F32(data) => Panels::F32(packing.panels(|block, out| {
                let (column_stride, depth_stride) = (view.output_stride, view.depth_stride);
                RightView { data, column_stride, depth_stride }.pack(block, out);
            })?),
            WeightData::F16(data) => {
                Panels::F16(packing.panels(|block, out| packing.pack_half(data, block, out))?)
            }
            WeightData::Bf16(data) => {
                Panels::Bf16(packing.panels(|block, out| packing.pack_half(data, block, out))?)
            }
        };
        let may_combine = is_finite(view.data);
        Ok(PackedWeights { tile, outputs, depth, panels, may_combine })
    }

    /// The same for products that add rows and columns to no others: never by Strassen's algorithm.
    pub fn apart(self) -> PackedWeights {
        PackedWeights { may_combine: false, ..self }
    }

    /// Whether sums of columns may be multiplied: not if one of them has a NaN or an infinity, which it would give to others.
    pub(super) fn may_combine(&self) -> bool {
        self.may_combine
    }

    /// Columns of the product.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Length of the sums.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The register tile of the panels.
    pub fn tile(&self) -> Tile {
        self.tile
    }

    /// Elements from one panel to the next.
    pub(super) fn stride(&self) -> usize {
        self.depth * self.tile.columns()
    }

    /// All panels, if they are stored as `f32`.
    pub(super) fn whole(&self) -> Option<&[f32]> {
        match &self.panels {
            Panels::F32(panels) => Some(panels),
            Panels::F16(_) | Panels::Bf16(_) => None,
        }
    }

    /// Calls `body` with the panels, which `readers` or more tasks will read. If several tasks would widen the same panels of half
    /// precision and the weight is not large, it is widened once, on all threads.
    pub(super) fn for_readers(
        &self,
        pool: &Pool,
        readers: usize,
        body: impl FnOnce(&RightPanels<'_>),
    ) {
        let elements = self.outputs.next_multiple_of(self.tile.columns()) * self.depth;
        let whole = self.whole();
        if whole.is_some() || readers < FEW_READERS || elements > MOST_WIDENED {
            return body(&RightPanels { weights: self, whole });
        }
        with_scratch(elements, |widened| {
            pool.for_chunks(widened, self.stride(), &|panel, widened| {
                self.panel(panel, 0..self.depth, widened);
            });
            body(&RightPanels { weights: self, whole: Some(widened) });
        });
    }

    /// A range of depths of a panel as `f32`, `[depth][tile.columns()]`: borrowed, or widened into `scratch`, which then has as many
    /// elements.
    pub(super) fn panel<'a>(
        &'a self,
        panel: usize,
        depth: Range<usize>,
        scratch: &'a mut [f32],
    ) -> &'a [f32] {
        let width = self.tile.columns();
        let start = panel * self.stride();
        let range = start + depth.start * width..start + depth.end * width;
        match &self.panels {
            Panels::F32(panels) => &panels[range],
            Panels::F16(panels) => {
                let out = &mut scratch[..range.len()];
                dispatch(self.tile.isa, WidenF16 { source: &panels[range], out: &mut *out });
                out
            }
            Panels::Bf16(panels) => {
                let out = &mut scratch[..range.len()];
                dispatch(self.tile.isa, WidenBf16 { source: &panels[range], out: &mut *out });
                out
            }
        }
    }
}

impl Packed for PackedWeights {
    fn bytes(&self) -> usize {
        match &self.panels {
            Panels::F32(panels) => size_of_val(&**panels),
            Panels::F16(panels) => size_of_val(&**panels),
            Panels::Bf16(panels) => size_of_val(&**panels),
        }
    }
}

/// From this many tasks on, panels of half precision are widened once for all of them.
const FEW_READERS: usize = 3;
/// Most elements of a weight that is widened as a whole: 4 MiB, which fits the L3 cache.
const MOST_WIDENED: usize = 1 << 20;

/// The right panels of a product.
pub(super) struct RightPanels<'a> {
    weights: &'a PackedWeights,
    /// All panels as `f32`, stored so or widened.
    whole: Option<&'a [f32]>,
}

impl<'a> RightPanels<'a> {
    /// The panels as stored; half precision is widened by each reader.
    pub(super) fn new(weights: &'a PackedWeights) -> RightPanels<'a> {
        RightPanels { weights, whole: weights.whole() }
    }

    /// Calls `body` for a range of depths of some panels, with the address of the first element, the stride from panel to panel,
    /// and the panels that these address.
    pub(super) fn for_each(
        &self,
        depth: &Range<usize>,
        panels: Range<usize>,
        body: impl Fn(*const f32, usize, Range<usize>),
    ) {
        let width = self.weights.tile.columns();
        if let Some(whole) = self.whole {
            return body(whole[depth.start * width..].as_ptr(), self.weights.stride(), panels);
        }
        with_scratch(depth.len() * width, |scratch| {
            for panel in panels {
                let right = self.weights.panel(panel, depth.clone(), scratch).as_ptr();
                body(right, 0, panel..panel + 1);
            }
        });
    }
}

/// Converts `f16` to `f32`.
struct WidenF16<'a> {
    source: &'a [f16],
    out: &'a mut [f32],
}

impl Kernel for WidenF16<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        simd.widen_f16(self.source, self.out);
    }
}

/// Converts `bf16` to `f32`.
struct WidenBf16<'a> {
    source: &'a [bf16],
    out: &'a mut [f32],
}

impl Kernel for WidenBf16<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        for (out, source) in self.out.iter_mut().zip(self.source) {
            *out = f32::from_bits(u32::from(source.to_bits()) << 16);
        }
    }
}

/// Elements that a task packs.
const TASK: usize = 1 << 18;
/// Depths of half precision that are packed at a time, so that the written panel stays in the cache.
const DEPTHS: usize = 16;

/// Packs a weight into panels.
struct Packing<'a> {
    pool: &'a Pool,
    tile: Tile,
    view: &'a WeightView<'a>,
}

impl Packing<'_> {
    /// All panels, filled by `pack` on all threads: for large weights the limit is memory bandwidth.
    fn panels<T: AnyBitPattern + NoUninit + Send>(
        &self,
        pack: impl Fn(&RightBlock, &mut [T]) + Sync,
    ) -> Result<AlignedBuffer<T>, TensorError> {
        let (tile, outputs, depth) = (self.tile, self.view.outputs, self.view.depth);
        let elements = outputs.next_multiple_of(tile.columns()) * depth;
        let mut panels = zeroed(elements)?;
        let width = tile.columns() * (TASK / (tile.columns() * depth).max(1)).max(1);
        self.pool.for_chunks(&mut panels, width * depth, &|task, panels| {
            let columns = task * width..outputs.min((task + 1) * width);
            pack(&RightBlock { tile, columns, depth: 0..depth }, panels);
        });
        Ok(panels)
    }

    /// Packs a block of columns in half precision. Padding beyond the last column is already zero.
    fn pack_half<T: Copy>(&self, data: &[T], block: &RightBlock, out: &mut [T]) {
        let (width, depth) = (block.tile.columns(), block.depth.len());
        let panels = out.chunks_exact_mut((width * depth).max(1));
        for (panel, first) in panels.zip(block.columns.clone().step_by(width)) {
            let columns = first..block.columns.end.min(first + width);
            for (rows, depths) in panel.chunks_mut(DEPTHS * width).zip(blocks(depth, DEPTHS)) {
                self.pack_depths(data, columns.clone(), depths, rows);
            }
        }
    }

    /// Packs a range of depths of a panel, `[depth][tile.columns()]`.
    fn pack_depths<T: Copy>(
        &self,
        data: &[T],
        columns: Range<usize>,
        depths: Range<usize>,
        out: &mut [T],
    ) {
        for (column, n) in columns.enumerate() {
            let start = n * self.view.output_stride;
            for (row, k) in out.chunks_exact_mut(self.tile.columns()).zip(depths.clone()) {
                row[column] = data[start + k * self.view.depth_stride];
            }
        }
    }
}
