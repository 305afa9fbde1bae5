//! One panel of queries by one block of keys.

use std::marker::PhantomData;

use super::keys::KeyBlock;
use super::numbers::{Bytes, Single, Word};
use super::plan::{MOST_ROWS, MOST_VECTORS, Plan};
use super::scratch::Terms;
use super::softmax::{Factors, PerQuery, Weights};
use super::tile::{Keys, Left, LongValues, ValuePanel, Values, sums};
use crate::simd::{Isa, Kernel, LANE_NUMBERS, MAX_LANES, Simd};

/// Processes a block of keys for `VECTORS` vectors of queries. The slices are parts of a task's scratch memory.
pub(super) struct PanelStep<'a, W, const VECTORS: usize> {
    /// What queries, keys and values are.
    pub(super) words: PhantomData<W>,
    pub(super) plan: &'a Plan,
    pub(super) block: &'a KeyBlock,
    /// The head, counted from the task's first.
    pub(super) head: usize,
    /// `[padded width][VECTORS * LANES]`.
    pub(super) queries: &'a [f32],
    /// `[bias rows, then bias columns, each padded][VECTORS * LANES]`.
    pub(super) bias: &'a [f32],
    /// What makes numbers of sums of bytes.
    pub(super) terms: Terms<'a>,
    /// With causal order, the last key that the first query sees.
    pub(super) last_key: Option<usize>,
    /// Keys and values to prefetch meanwhile.
    pub(super) next: Option<&'a KeyBlock>,
    pub(super) state: PanelState<'a>,
}

/// State that a panel keeps from block to block, and the scores of the current block.
pub(super) struct PanelState<'a> {
    /// `[padded value width][VECTORS * LANES]`.
    pub(super) outputs: &'a mut [f32],
    /// Whether the outputs hold sums over earlier blocks.
    pub(super) started: bool,
    /// `[VECTORS * LANES]`.
    pub(super) largest: &'a mut [f32],
    /// `[VECTORS * LANES]`.
    pub(super) sums: &'a mut [f32],
    /// `[keys][VECTORS * LANES]`.
    pub(super) scores: &'a mut [f32],
}

impl<W: Word, const VECTORS: usize> Kernel for PanelStep<'_, W, VECTORS> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // The instruction set is known at compile time, so only its own tile is compiled.
        match (S::ISA, VECTORS) {
            (Isa::Avx512, _) | (Isa::Avx2, 1) => self.with_rows::<S, MOST_ROWS>(simd),
            (Isa::Avx2 | Isa::Portable, _) => self.with_rows::<S, 4>(simd),
        }
    }
}

/// Widest values that need no software prefetch.
const NARROW: usize = 64;

impl<W: Word, const VECTORS: usize> PanelStep<'_, W, VECTORS> {
    #[inline(always)]
    fn with_rows<S: Simd, const ROWS: usize>(mut self, simd: S) {
        self.check::<S>();
        let block_largest = self.score::<S, ROWS>(simd);
        let used = self.block.count * VECTORS * S::LANES;
        let factors = simd.vectorize(Weights::<W, VECTORS> {
            words: PhantomData,
            scores: &mut self.state.scores[..used],
            block_largest: &block_largest,
            largest: self.state.largest,
            sums: self.state.sums,
        });
        self.add_values::<S, ROWS>(simd, &factors);
    }

    /// Checks the lengths that the tiles rely on.
    #[inline(always)]
    pub(super) fn check<S: Simd>(&self) {
        let padded = |length: usize| length.next_multiple_of(S::LANES);
        let (width, value_width) = (padded(self.plan.width), padded(self.plan.value_width));
        let queries = VECTORS * S::LANES;
        assert!(VECTORS <= MOST_VECTORS && S::LANES <= MAX_LANES);
        assert!(self.queries.len() >= width * queries);
        assert!(self.state.outputs.len() >= value_width * queries);
        assert!(self.state.scores.len() >= self.block.count * queries);
        if W::ELEMENTS == Bytes::ELEMENTS {
            let Terms { queries: scales, keys, starts, .. } = self.terms;
            assert!(scales.len() >= queries);
            assert!(keys.len() >= self.block.count && starts.len() >= self.block.count);
        }
    }

    /// Computes the scores and returns the largest of each query.
    #[inline(always)]
    fn score<S: Simd, const ROWS: usize>(&mut self, simd: S) -> PerQuery {
        let mut largest = PerQuery::all(f32::NEG_INFINITY);
        let scores = self.state.scores.as_mut_ptr();
        let keys = self.block.keys();
        let offset = self.head * self.plan.width;
        let tiles = keys.len().div_ceil(ROWS);
        for tile in 0..tiles {
            let first = tile * ROWS;
            if let Some(next) = self.next {
                let share = next.count.div_ceil(tiles);
                next.fetch(simd, self.plan, tile * share..(tile + 1) * share);
            }
            // Rows beyond the last key repeat it.
            let key = |row: usize| keys[(first + row).min(keys.len() - 1)].wrapping_add(offset);
            let (left, step) = (Keys(std::array::from_fn(key)), &*self);
            let largest = &mut largest;
            simd.vectorize(ScoreTile::<W, ROWS, VECTORS> { left, step, first, scores, largest });
        }
        largest
    }

    /// Multiplies the outputs by `factors` and adds the weighted values.
    #[inline(always)]
    fn add_values<S: Simd, const ROWS: usize>(&mut self, simd: S, factors: &Factors) {
        let starts = self.block.values().as_ptr();
        let first = self.head * self.plan.value_width;
        for channel in (0..self.plan.value_width).step_by(ROWS) {
            let rows = Values { starts, channel: first + channel };
            if W::ELEMENTS != Single::ELEMENTS {
                let panel = channel / S::LANES * self.plan.value_panel();
                let start = self.block.values()[0].wrapping_add(panel + channel % S::LANES);
                self.add_channels::<S, _, ROWS>(simd, ValuePanel { start }, channel, factors);
            } else if self.plan.value_width > NARROW {
                self.add_channels::<S, _, ROWS>(simd, LongValues(rows), channel, factors);
            } else {
                self.add_channels::<S, _, ROWS>(simd, rows, channel, factors);
            }
        }
    }

    /// The same for `ROWS` channels from `channel` on, whose values are `left`.
    #[inline(always)]
    fn add_channels<S: Simd, L: Left, const ROWS: usize>(
        &mut self,
        simd: S,
        left: L,
        channel: usize,
        factors: &Factors,
    ) {
        let outputs = self.state.outputs.as_mut_ptr();
        let target = outputs.wrapping_add(channel * VECTORS * S::LANES);
        let tile =
            ValueTile::<_, W, ROWS, VECTORS> { left, step: &*self, channel, target, factors };
        simd.vectorize(tile);
    }
}

/// Computes the scores of a few keys.
pub(super) struct ScoreTile<'a, 'b, W, const ROWS: usize, const VECTORS: usize> {
    pub(super) left: Keys,
    pub(super) step: &'a PanelStep<'b, W, VECTORS>,
    /// The first key, counted from the block's first.
    pub(super) first: usize,
    /// The panel's scores.
    pub(super) scores: *mut f32,
    /// The panel's largest scores in this block.
    pub(super) largest: &'a mut PerQuery,
}

impl<W: Word, const ROWS: usize, const VECTORS: usize> Kernel
    for ScoreTile<'_, '_, W, ROWS, VECTORS>
{
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let step = self.step;
        let (queries, steps) = (step.queries.as_ptr(), step.plan.score_steps());
        let mut starts = [0.0; ROWS];
        if W::ELEMENTS == Bytes::ELEMENTS {
            for (row, start) in starts.iter_mut().enumerate() {
                *start = step.terms.starts[self.key(row)];
            }
        }
        let operands = (self.left, queries);
        // SAFETY: keys have `width` elements in each head of the task, or as many words as steps, and `check` measured the queries.
        let mut scores = unsafe { sums::<S, _, W, ROWS, VECTORS>(simd, operands, steps, starts) };
        if W::ELEMENTS == Bytes::ELEMENTS {
            self.scale(simd, &mut scores);
        }
        self.finish(simd, scores);
    }
}

impl<W: Word, const ROWS: usize, const VECTORS: usize> ScoreTile<'_, '_, W, ROWS, VECTORS> {
    /// The key of a row, counted from the block's first. Rows beyond the last key repeat it.
    #[inline(always)]
    fn key(&self, row: usize) -> usize {
        (self.first + row).min(self.step.block.count - 1)
    }

    /// Multiplies integer sums by the scales of their query and key.
    #[inline(always)]
    fn scale<S: Simd>(&self, simd: S, scores: &mut [[S::F; VECTORS]; ROWS]) {
        let Terms { queries, keys, .. } = self.step.terms;
        for (row, scores) in scores.iter_mut().enumerate() {
            let key = simd.splat(keys[self.key(row)]);
            for (index, score) in scores.iter_mut().enumerate() {
                let scale = simd.mul(simd.load(&queries[index * S::LANES..]), key);
                *score = simd.mul(simd.to_float(simd.bits(*score)), scale);
            }
        }
    }

    /// Scales the sums, adds biases, hides later keys, and stores the scores and the largest of them.
    #[inline(always)]
    pub(super) fn finish<S: Simd>(self, simd: S, mut scores: [[S::F; VECTORS]; ROWS]) {
        let step = self.step;
        let rows = ROWS.min(step.block.count - self.first);
        if let Some(scale) = step.plan.score_scale {
            for score in scores.as_flattened_mut() {
                *score = simd.mul(*score, simd.splat(scale));
            }
        }
        if step.plan.bias.is_some() {
            self.add_bias(simd, &mut scores);
        }
        if let Some(last_key) = step.last_key
            && step.block.indices[self.first + rows - 1] as usize > last_key
        {
            self.hide_later(simd, &mut scores, last_key);
        }
        let mut largest = [simd.splat(0.0); VECTORS];
        for (index, largest) in largest.iter_mut().enumerate() {
            *largest = simd.load(&self.largest.0[index * S::LANES..]);
        }
        for (row, scores) in scores.into_iter().enumerate() {
            if row >= rows {
                break;
            }
            for (index, score) in scores.into_iter().enumerate() {
                let offset = ((self.first + row) * VECTORS + index) * S::LANES;
                // SAFETY: `check` measured the scores: the panel's vectors for each of the block's keys.
                unsafe { simd.store_pointer(score, self.scores.wrapping_add(offset)) };
                largest[index] = simd.max(largest[index], score);
            }
        }
        for (index, largest) in largest.into_iter().enumerate() {
            simd.store(largest, &mut self.largest.0[index * S::LANES..]);
        }
    }

    /// Adds the row and column biases of each key.
    #[inline(always)]
    fn add_bias<S: Simd>(&self, simd: S, scores: &mut [[S::F; VECTORS]; ROWS]) {
        let step = self.step;
        let height = step.plan.bias.map_or(0, |bias| bias.lengths[0].next_multiple_of(S::LANES));
        let queries = VECTORS * S::LANES;
        for (row, scores) in scores.iter_mut().enumerate() {
            let [y, x] = step.block.bias[self.key(row)].map(|position| position as usize);
            let row_biases = &step.bias[y * queries..][..queries];
            let column_biases = &step.bias[(height + x) * queries..][..queries];
            for (index, score) in scores.iter_mut().enumerate() {
                let row_bias = simd.load(&row_biases[index * S::LANES..]);
                let column_bias = simd.load(&column_biases[index * S::LANES..]);
                *score = simd.add(*score, simd.add(row_bias, column_bias));
            }
        }
    }

    /// Sets the scores of keys after the last one that each query sees to minus infinity; the first query sees `last_key`.
    #[inline(always)]
    fn hide_later<S: Simd>(&self, simd: S, scores: &mut [[S::F; VECTORS]; ROWS], last_key: usize) {
        let lanes = simd.load(&LANE_NUMBERS);
        for (row, scores) in scores.iter_mut().enumerate() {
            let index = self.step.block.indices[self.key(row)] as usize;
            for (vector, score) in scores.iter_mut().enumerate() {
                // Differences of indices are exact in single precision up to 2^24.
                let ahead = index as f32 - (last_key + vector * S::LANES) as f32;
                let seen = simd.less_equal(simd.splat(ahead), lanes);
                *score = simd.select(seen, *score, simd.splat(f32::NEG_INFINITY));
            }
        }
    }
}

/// Adds the weighted values of a few channels.
struct ValueTile<'a, 'b, L, W, const ROWS: usize, const VECTORS: usize> {
    left: L,
    step: &'a PanelStep<'b, W, VECTORS>,
    /// The tile's first channel.
    channel: usize,
    /// The panel's outputs, from that channel on.
    target: *mut f32,
    factors: &'a Factors,
}

impl<L: Left, W: Word, const ROWS: usize, const VECTORS: usize> Kernel
    for ValueTile<'_, '_, L, W, ROWS, VECTORS>
{
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let step = self.step;
        let (weights, keys) = (step.state.scores.as_ptr(), step.block.count);
        let (operands, steps) = ((self.left, weights), keys.div_ceil(W::ELEMENTS));
        // SAFETY: values have whole tiles of channels in each head of the task, and `check` measured the scores.
        let mut sums =
            unsafe { sums::<S, _, W, ROWS, VECTORS>(simd, operands, steps, [0.0; ROWS]) };
        if W::ELEMENTS == Bytes::ELEMENTS {
            self.scale(simd, &mut sums);
        }
        if step.state.started {
            for index in 0..VECTORS {
                let factor = simd.load(&self.factors.earlier.0[index * S::LANES..]);
                for (row, sums) in sums.iter_mut().enumerate() {
                    let output = self.target.wrapping_add((row * VECTORS + index) * S::LANES);
                    // SAFETY: `check` measured the outputs: whole tiles of channels for the panel's vectors.
                    let before = unsafe { simd.load_pointer(output) };
                    sums[index] = simd.fma(before, factor, sums[index]);
                }
            }
        }
        for (row, sums) in sums.into_iter().enumerate() {
            for (index, sum) in sums.into_iter().enumerate() {
                let output = self.target.wrapping_add((row * VECTORS + index) * S::LANES);
                // SAFETY: as above.
                unsafe { simd.store_pointer(sum, output) };
            }
        }
    }
}

impl<L: Left, W: Word, const ROWS: usize, const VECTORS: usize>
    ValueTile<'_, '_, L, W, ROWS, VECTORS>
{
    /// Multiplies integer sums by the scale of their channel and the factor of the block's weights.
    #[inline(always)]
    fn scale<S: Simd>(&self, simd: S, sums: &mut [[S::F; VECTORS]; ROWS]) {
        let scales = &self.step.terms.values[self.channel..][..ROWS];
        for (sums, &scale) in sums.iter_mut().zip(scales) {
            for (index, sum) in sums.iter_mut().enumerate() {
                let factor = simd.load(&self.factors.current.0[index * S::LANES..]);
                let factor = simd.mul(factor, simd.splat(scale));
                *sum = simd.mul(simd.to_float(simd.bits(*sum)), factor);
            }
        }
    }
}
