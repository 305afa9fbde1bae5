//! A panel of queries by a block of keys on tile registers.
//!
//! Both products have the queries in their columns, as in vectors: keys are the rows of the left operand of scores, channels those of
//! weighted values. So queries and weights are the right operands as pairs of vectors, and only the values are transposed.

use std::marker::PhantomData;

use super::half::{PairRows, RowCopies};
use super::keys::KeyBlock;
use super::numbers::{Pair, Word};
use super::panel::{PanelStep, ScoreTile};
use super::plan::{MOST_ROWS, Plan};
use super::softmax::{PerQuery, Weights};
use super::tile::Keys;
use crate::simd::{Interleave, Kernel, MAX_LANES, Simd};
use crate::tiles::{BlockSums, ROW_BYTES, ROWS, Strided, TileUnit};

/// Keys of a block, padded to whole tiles of weights.
pub(super) fn tile_keys(plan: &Plan) -> usize {
    plan.key_block.next_multiple_of(2 * ROWS)
}

/// Pairs of keys from one channel of the values to the next.
pub(super) fn pair_stride(plan: &Plan) -> usize {
    tile_keys(plan) / 2
}

/// Copies the values of a block as pairs of keys, `[channel][pair]`, and redirects its first value to them. Pairs beyond the last key
/// are zero up to a whole tile.
pub(super) struct TurnValues<'a> {
    pub(super) plan: &'a Plan,
    pub(super) block: &'a mut KeyBlock,
    /// The copies, then as much room for the pairs before they are transposed.
    pub(super) memory: &'a mut [f32],
}

impl Kernel for TurnValues<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        assert_eq!(S::LANES, ROWS);
        let (stride, width) =
            (pair_stride(self.plan), self.plan.value_width.next_multiple_of(ROWS));
        let (turned, pairs) = self.memory.split_at_mut(stride * width);
        // SAFETY: the block's values have `value_width` elements, in the inputs.
        let copies =
            unsafe { RowCopies::new(self.block.values(), [self.plan.value_width, width], pairs) };
        simd.vectorize(PairRows(copies));
        let count = self.block.count.div_ceil(2);
        for first in (0..count).step_by(ROWS) {
            let mut rows = [pairs.as_ptr(); MAX_LANES];
            for (number, row) in rows.iter_mut().enumerate() {
                *row = pairs[(first + number).min(count - 1) * width..][..width].as_ptr();
            }
            let rows = &rows[..ROWS.min(count - first)];
            for column in (0..width).step_by(ROWS) {
                let out = &mut turned[column * stride + first..][..(ROWS - 1) * stride + ROWS];
                let out = out.as_mut_ptr();
                let block = Interleave { rows, column, panel_rows: stride, out };
                // SAFETY: rows and target were sliced.
                unsafe { simd.interleave(block) };
            }
        }
        self.block.move_values(turned, stride);
    }
}

/// Processes a block of keys for `VECTORS` vectors of queries.
pub(super) struct OnTiles<'a, U, W, const VECTORS: usize> {
    step: PanelStep<'a, W, VECTORS>,
    unit: PhantomData<U>,
}

impl<'a, U, W, const VECTORS: usize> OnTiles<'a, U, W, VECTORS> {
    pub(super) fn new(step: PanelStep<'a, W, VECTORS>) -> Self {
        OnTiles { step, unit: PhantomData }
    }
}

impl<U: TileUnit, W: Word, const VECTORS: usize> Kernel for OnTiles<'_, U, W, VECTORS> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        assert!(S::LANES == ROWS && W::ELEMENTS == Pair::ELEMENTS);
        self.step.check::<S>();
        // SAFETY: a plan has products on tiles only where the machine has them, and a thread runs one step at a time.
        let mut unit = unsafe { U::configure() };
        let largest = self.score(simd, &mut unit);
        let count = self.step.block.count;
        let state = &mut self.step.state;
        let factors = simd.vectorize(Weights::<Pair, VECTORS> {
            words: PhantomData,
            scores: &mut state.scores[..count * VECTORS * ROWS],
            block_largest: &largest,
            largest: state.largest,
            sums: state.sums,
        });
        let (used, whole) = (count.div_ceil(2), count.div_ceil(2).next_multiple_of(ROWS));
        // Values beyond the last key are zero, but zero times a NaN that an earlier task left here would not be.
        state.scores[used * VECTORS * ROWS..whole * VECTORS * ROWS].fill(0.0);
        if state.started {
            self.rescale(simd, &factors.earlier);
        }
        self.add_values(&mut unit);
    }
}

impl<U: TileUnit, W: Word, const VECTORS: usize> OnTiles<'_, U, W, VECTORS> {
    /// Bytes of a row of scores, weights, queries or outputs.
    const WIDTH: usize = VECTORS * ROW_BYTES;

    /// Computes the scores and returns the largest of each query.
    #[inline(always)]
    fn score<S: Simd>(&mut self, simd: S, unit: &mut U) -> PerQuery {
        let mut largest = PerQuery::all(f32::NEG_INFINITY);
        let step = &mut self.step;
        let (steps, keys) = (step.plan.score_steps(), step.block.keys());
        let queries = Strided::new(step.queries.as_ptr(), Self::WIDTH);
        assert!(step.queries.len() >= steps * VECTORS * ROWS);
        assert!(step.state.scores.len() >= tile_keys(step.plan) * VECTORS * ROWS);
        let scores = step.state.scores.as_mut_ptr();
        for first in (0..keys.len()).step_by(2 * ROWS) {
            if let Some(next) = step.next {
                next.fetch(simd, step.plan, first..first + 2 * ROWS);
            }
            let left = Strided::new(keys[0].wrapping_add(first * steps), steps * 4);
            // SAFETY: the machine has the unit.
            let mut sums = unsafe { BlockSums::<U, 2, VECTORS>::zero(unit) };
            for depth in 0..steps / ROWS {
                let right = queries.offset(depth * ROWS * Self::WIDTH);
                // SAFETY: copies of keys have whole tiles, one after the other, and the queries were measured.
                unsafe { sums.add(left.offset(depth * ROW_BYTES), right) };
            }
            let start = scores.wrapping_add(first * VECTORS * ROWS);
            // SAFETY: the scores were measured: whole tiles of keys.
            unsafe { sums.store(Strided { start, stride: Self::WIDTH }) };
            for first in (first..keys.len().min(first + 2 * ROWS)).step_by(MOST_ROWS) {
                let mut rows = [[simd.splat(0.0); VECTORS]; MOST_ROWS];
                for (number, score) in rows.as_flattened_mut().iter_mut().enumerate() {
                    let source = scores.wrapping_add((first * VECTORS + number) * ROWS);
                    // SAFETY: the scores were measured: whole tiles of keys.
                    *score = unsafe { simd.load_pointer(source) };
                }
                let left = Keys([keys[0]; MOST_ROWS]);
                let tile = ScoreTile { left, step: &*step, first, scores, largest: &mut largest };
                tile.finish(simd, rows);
            }
        }
        largest
    }

    /// Multiplies the outputs by the factors, unless all are 1.
    #[inline(always)]
    fn rescale<S: Simd>(&mut self, simd: S, factors: &PerQuery) {
        if factors.0[..VECTORS * ROWS].iter().all(|&factor| factor == 1.0) {
            return;
        }
        let used = self.step.plan.value_width * VECTORS * ROWS;
        for outputs in self.step.state.outputs[..used].chunks_exact_mut(VECTORS * ROWS) {
            for index in 0..VECTORS {
                let output = &mut outputs[index * ROWS..];
                let factor = simd.load(&factors.0[index * ROWS..]);
                simd.store(simd.mul(simd.load(output), factor), output);
            }
        }
    }

    /// Adds the weighted values to the outputs.
    #[inline(always)]
    fn add_values(&mut self, unit: &mut U) {
        let width = self.step.plan.value_width;
        for channel in (0..width).step_by(2 * ROWS) {
            if channel + ROWS < width {
                self.add_channels::<2>(unit, channel);
            } else {
                self.add_channels::<1>(unit, channel);
            }
        }
    }

    /// Adds the weighted values of `TILES` tiles of channels.
    #[inline(always)]
    fn add_channels<const TILES: usize>(&mut self, unit: &mut U, channel: usize) {
        let stride = pair_stride(self.step.plan);
        let step = &mut self.step;
        let values = step.block.values()[0].wrapping_add(channel * stride);
        let left = Strided::new(values, stride * 4);
        let weights = Strided::new(step.state.scores.as_ptr(), Self::WIDTH);
        let outputs = &mut step.state.outputs[channel * VECTORS * ROWS..];
        assert!(outputs.len() >= TILES * ROWS * VECTORS * ROWS);
        let target = Strided { start: outputs.as_mut_ptr(), stride: Self::WIDTH };
        let mut sums = if step.state.started {
            // SAFETY: the machine has the unit, and the outputs were measured.
            unsafe { BlockSums::<U, TILES, VECTORS>::load(unit, target) }
        } else {
            // SAFETY: the machine has the unit.
            unsafe { BlockSums::<U, TILES, VECTORS>::zero(unit) }
        };
        for number in 0..step.block.count.div_ceil(2 * ROWS) {
            let right = weights.offset(number * ROWS * Self::WIDTH);
            // SAFETY: copies of values have whole tiles of channels and pairs, and `score` measured the weights.
            unsafe { sums.add(left.offset(number * ROW_BYTES), right) };
        }
        // SAFETY: the outputs were measured.
        unsafe { sums.store(target) };
    }
}
