//! Quantised weights into panels: from bytes, or from floats that are quantised on the way.

use std::ops::Range;
use std::sync::OnceLock;

use cutout_parallel::{Pool, SharedSlice};
use cutout_tensor::{DType, LazyTensor, Scales, TensorError, quantize_group};

use super::{BLOCK, ByteUnit, Int8View, MAX_DEPTH, PackedInt8};
use crate::gemm::tile::Tile;
use crate::memory::zeroed;
use crate::simd::{Isa, Kernel, Simd, dispatch};
use crate::tiles::ROW_BYTES;

impl PackedInt8 {
    /// Packs a weight for products on a unit with some instructions; an error if the memory cannot be allocated.
    ///
    /// Panics unless the data and the scales have the lengths that the view states and the depth is at most [`MAX_DEPTH`].
    pub fn pack(
        pool: &Pool,
        path: (Isa, ByteUnit),
        view: &Int8View<'_>,
    ) -> Result<PackedInt8, TensorError> {
        let Int8View { outputs, depth, granularity, .. } = *view;
        assert_eq!(view.data.len(), outputs * depth, "elements of the weight");
        assert_eq!(view.scales.len(), outputs * granularity.per_row(depth), "scales of the weight");
        let mut packed = PackedInt8::zeroed(path, [outputs, depth], granularity)?;
        let offset = dispatch(packed.tile.isa, LeftOffset);
        let scales = granularity.per_row(depth);
        packed.for_panels(pool, &|columns, mut panel| {
            for (column, output) in columns.enumerate() {
                let weights = &view.data[output * depth..][..depth];
                panel.put(column, weights);
                let scales = &view.scales[output * scales..][..scales];
                panel.put_scales(column, weights, scales, offset);
            }
            Ok(())
        })?;
        Ok(packed)
    }

    /// Quantises a matrix `[outputs, depth]` of any float type with a scale per row, as [`QuantizedMatrix::quantize`] does, and packs
    /// it: each task reads the rows of a panel, so that no other copy of the matrix is made.
    ///
    /// Panics if the depth is beyond [`MAX_DEPTH`].
    ///
    /// [`QuantizedMatrix::quantize`]: cutout_tensor::QuantizedMatrix::quantize
    pub fn quantize(
        pool: &Pool,
        path: (Isa, ByteUnit),
        matrix: &LazyTensor,
    ) -> Result<PackedInt8, TensorError> {
        let &[outputs, depth] = &matrix.ty().shape[..] else {
            return Err(TensorError::Shape(format!("expected a matrix, got {}", matrix.ty())));
        };
        let mut packed = PackedInt8::zeroed(path, [outputs, depth], Scales::PerRow)?;
        let (isa, offset) = (packed.tile.isa, dispatch(packed.tile.isa, LeftOffset));
        packed.for_panels(pool, &|columns, mut panel| {
            let rows = matrix.rows(columns)?;
            rows.expect_finite()?;
            let rows = rows.cast(DType::F32)?.to_contiguous()?;
            let mut values = zeroed::<i8>(depth)?;
            for (column, row) in rows.as_slice::<f32>()?.chunks_exact(depth.max(1)).enumerate() {
                let scale = dispatch(isa, QuantizeRow { row, out: &mut values });
                panel.put(column, &values);
                panel.put_scales(column, &values, &[scale], offset);
            }
            Ok(())
        })?;
        Ok(packed)
    }

    /// Panels of zeros.
    fn zeroed(
        (isa, unit): (Isa, ByteUnit),
        [outputs, depth]: [usize; 2],
        granularity: Scales,
    ) -> Result<PackedInt8, TensorError> {
        assert!(depth <= MAX_DEPTH, "depth {depth} is beyond {MAX_DEPTH}");
        let by_vectors = Tile::choose_int8(isa, outputs, granularity);
        let (unit, tile, padded) = match (granularity, unit) {
            (Scales::PerRow, ByteUnit::Tiles | ByteUnit::TileTwin) => {
                (unit, Tile::of_tiles(isa), depth.next_multiple_of(ROW_BYTES))
            }
            (Scales::PerRow, ByteUnit::Vectors) => (unit, by_vectors, depth.next_multiple_of(4)),
            (Scales::PerBlock, _) => (ByteUnit::Vectors, by_vectors, depth.next_multiple_of(BLOCK)),
        };
        let columns = outputs.next_multiple_of(tile.columns());
        let scales = granularity.per_row(depth);
        Ok(PackedInt8 {
            unit,
            tile,
            outputs,
            depth,
            words: padded / 4,
            granularity,
            data: zeroed(columns * padded)?,
            scales: zeroed(columns * scales)?,
            starts: zeroed(columns * scales)?,
        })
    }

    /// Calls `fill` for every panel with its outputs, on all threads. Returns an error of one of them.
    fn for_panels(&mut self, pool: &Pool, fill: &Fill<'_>) -> Result<(), TensorError> {
        let (width, outputs, granularity) = (self.tile.columns(), self.outputs, self.granularity);
        let block = granularity.block_length(self.depth);
        let bytes = width * 4 * self.words;
        let numbers = width * granularity.per_row(self.depth);
        let data = SharedSlice::new(&mut self.data);
        let (scales, starts) =
            (SharedSlice::new(&mut self.scales), SharedSlice::new(&mut self.starts));
        let problem = OnceLock::new();
        pool.run(outputs.div_ceil(width), &|number| {
            // SAFETY: numbers of tasks differ, so that the parts are disjoint, and the buffers are borrowed until all are done.
            let data = unsafe { data.part(number * bytes, bytes) };
            // SAFETY: as above.
            let scales = unsafe { scales.part(number * numbers, numbers) };
            // SAFETY: as above.
            let starts = unsafe { starts.part(number * numbers, numbers) };
            let columns = number * width..outputs.min((number + 1) * width);
            if let Err(error) = fill(columns, Panel { width, block, data, scales, starts }) {
                problem.get_or_init(|| error);
            }
        });
        problem.into_inner().map_or(Ok(()), Err)
    }
}

/// Fills the panel of some outputs.
type Fill<'a> = dyn Fn(Range<usize>, Panel<'_>) -> Result<(), TensorError> + Sync + 'a;

/// One panel of a [`PackedInt8`], all zeros.
struct Panel<'a> {
    width: usize,
    /// Weights that share a scale.
    block: usize,
    /// `[depth / 4][width][4]`
    data: &'a mut [i8],
    /// `[scale][width]`
    scales: &'a mut [f32],
    /// `[scale][width]`
    starts: &'a mut [i32],
}

impl Panel<'_> {
    /// Writes the weights of an output.
    fn put(&mut self, column: usize, weights: &[i8]) {
        let (words, rest) = weights.as_chunks::<4>();
        let mut targets = self.data.chunks_exact_mut(4 * self.width);
        for (word, target) in words.iter().zip(&mut targets) {
            target[4 * column..][..4].copy_from_slice(word);
        }
        if let Some(target) = targets.next() {
            target[4 * column..][..rest.len()].copy_from_slice(rest);
        }
    }

    /// Writes the scales and initial accumulators of an output.
    fn put_scales(&mut self, column: usize, weights: &[i8], scales: &[f32], offset: i32) {
        for (index, &scale) in scales.iter().enumerate() {
            let position = index * self.width + column;
            let start = (index * self.block).min(weights.len());
            let group = &weights[start..weights.len().min(start + self.block)];
            self.scales[position] = scale;
            self.starts[position] = -offset * group.iter().map(|&w| i32::from(w)).sum::<i32>();
        }
    }
}

/// Quantises the weights of an output; returns their scale.
struct QuantizeRow<'a> {
    row: &'a [f32],
    out: &'a mut [i8],
}

impl Kernel for QuantizeRow<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> f32 {
        quantize_group(self.row, self.out)
    }
}

/// Returns [`Simd::DOT_OFFSET`].
struct LeftOffset;

impl Kernel for LeftOffset {
    type Output = i32;
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> i32 {
        S::DOT_OFFSET
    }
}
