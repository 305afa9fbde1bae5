//! One panel of queries meets one block of keys.

use super::keys::KeyBlock;
use super::pack::{LANE_NUMBERS, MOST_LANES};
use super::plan::{MOST_ROWS, MOST_VECTORS, Packing, Plan};
use super::softmax::{PerQuery, Weights};
use super::tile::{Keys, Left, Packed, Right, Values, sums};
use crate::simd::{Isa, Kernel, Simd};

/// `VECTORS` vectors of queries and a block of keys. Slices are parts of a task's scratch memory.
pub(super) struct PanelStep<'a, const VECTORS: usize> {
    pub(super) plan: &'a Plan,
    pub(super) block: &'a KeyBlock,
    /// `[VECTORS][padded width][LANES]`.
    pub(super) queries: &'a [f32],
    /// `[groups of keys][padded width][LANES]`, unless keys are read directly.
    pub(super) keys: &'a [f32],
    /// `[groups of channels][keys][LANES]`, unless values are read directly.
    pub(super) values: &'a [f32],
    /// `[VECTORS][bias rows, then bias columns, padded][LANES]`.
    pub(super) bias: &'a [f32],
    /// With causal order, the last key that the first query sees.
    pub(super) last_key: Option<usize>,
    pub(super) state: PanelState<'a>,
}

/// What a panel keeps from block to block, and the scores of the current one.
pub(super) struct PanelState<'a> {
    /// `[VECTORS][padded value width][LANES]`.
    pub(super) outputs: &'a mut [f32],
    /// Whether the outputs hold sums over earlier blocks.
    pub(super) started: bool,
    /// `[VECTORS][LANES]`.
    pub(super) largest: &'a mut [f32],
    /// `[VECTORS][LANES]`.
    pub(super) sums: &'a mut [f32],
    /// `[VECTORS][keys][LANES]`.
    pub(super) scores: &'a mut [f32],
}

impl<const VECTORS: usize> Kernel for PanelStep<'_, VECTORS> {
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

impl<const VECTORS: usize> PanelStep<'_, VECTORS> {
    /// Elements from one vector of scores to the next.
    fn score_stride<S: Simd>(&self) -> usize {
        self.block.count * S::LANES
    }

    #[inline(always)]
    fn with_rows<S: Simd, const ROWS: usize>(mut self, simd: S) {
        self.check::<S>();
        let block_largest = self.score::<S, ROWS>(simd);
        let stride = self.score_stride::<S>();
        let factors = simd.vectorize(Weights::<VECTORS> {
            scores: self.state.scores,
            stride,
            keys: self.block.count,
            block_largest: &block_largest,
            largest: self.state.largest,
            sums: self.state.sums,
        });
        self.add_values::<S, ROWS>(simd, &factors);
    }

    /// Checks once what the tiles rely on.
    #[inline(always)]
    fn check<S: Simd>(&self) {
        let padded = |length: usize| length.next_multiple_of(S::LANES);
        let (width, value_width) = (padded(self.plan.width), padded(self.plan.value_width));
        let count = self.block.count;
        assert!(VECTORS <= MOST_VECTORS && S::LANES <= MOST_LANES);
        assert!(self.queries.len() >= VECTORS * width * S::LANES);
        assert!(self.state.outputs.len() >= VECTORS * value_width * S::LANES);
        assert!(self.state.scores.len() >= VECTORS * self.score_stride::<S>());
        match self.plan.packing {
            Packing::Packed => {
                assert!(self.keys.len() >= padded(count) * width);
                assert!(self.values.len() >= count * value_width);
            }
            Packing::Direct => assert!(self.plan.value_width.is_multiple_of(MOST_ROWS)),
        }
    }

    /// Fills in the scores and returns the largest of each query.
    #[inline(always)]
    fn score<S: Simd, const ROWS: usize>(&mut self, simd: S) -> PerQuery {
        let mut largest = PerQuery([f32::NEG_INFINITY; MOST_VECTORS * MOST_LANES]);
        let group_stride = self.plan.width.next_multiple_of(S::LANES) * S::LANES;
        let scores = self.state.scores.as_mut_ptr();
        let mut first = 0;
        while first < self.block.count {
            let largest = &mut largest;
            match self.plan.packing {
                Packing::Packed => {
                    let place = first / S::LANES * group_stride + first % S::LANES;
                    let left = Packed(self.keys.as_ptr().wrapping_add(place));
                    simd.vectorize(ScoreTile::<_, ROWS, VECTORS> {
                        left,
                        step: self,
                        first,
                        scores,
                        largest,
                    });
                }
                Packing::Direct => {
                    let keys = self.block.keys();
                    let last = keys.len() - 1;
                    let left = Keys(std::array::from_fn(|row| keys[last.min(first + row)]));
                    simd.vectorize(ScoreTile::<_, ROWS, VECTORS> {
                        left,
                        step: self,
                        first,
                        scores,
                        largest,
                    });
                }
            }
            first += ROWS;
        }
        largest
    }

    /// Multiplies the outputs by `factors` and adds the values by their weights.
    #[inline(always)]
    fn add_values<S: Simd, const ROWS: usize>(&mut self, simd: S, factors: &PerQuery) {
        let group_stride = self.block.count * S::LANES;
        let outputs = self.state.outputs.as_mut_ptr();
        let mut channel = 0;
        while channel < self.plan.value_width {
            match self.plan.packing {
                Packing::Packed => {
                    let place = channel / S::LANES * group_stride + channel % S::LANES;
                    let left = Packed(self.values.as_ptr().wrapping_add(place));
                    simd.vectorize(ValueTile::<_, ROWS, VECTORS> {
                        left,
                        step: self,
                        channel,
                        outputs,
                        factors,
                    });
                }
                Packing::Direct => {
                    let left = Values { starts: self.block.values(), channel };
                    simd.vectorize(ValueTile::<_, ROWS, VECTORS> {
                        left,
                        step: self,
                        channel,
                        outputs,
                        factors,
                    });
                }
            }
            channel += ROWS;
        }
    }
}

/// The scores of a few keys.
struct ScoreTile<'a, 'b, L, const ROWS: usize, const VECTORS: usize> {
    left: L,
    step: &'a PanelStep<'b, VECTORS>,
    /// The first key, counted in the block.
    first: usize,
    /// The panel's scores.
    scores: *mut f32,
    /// The panel's largest scores in this block.
    largest: &'a mut PerQuery,
}

impl<L: Left, const ROWS: usize, const VECTORS: usize> Kernel
    for ScoreTile<'_, '_, L, ROWS, VECTORS>
{
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let step = self.step;
        let stride = step.plan.width.next_multiple_of(S::LANES) * S::LANES;
        let right = Right { start: step.queries.as_ptr(), stride };
        // SAFETY: `check` measured the packed sides, keys in place have `width` elements, and the queries were measured too.
        let mut scores =
            unsafe { sums::<S, L, ROWS, VECTORS>(simd, self.left, right, step.plan.width) };
        let rows = ROWS.min(step.block.count - self.first);
        if step.plan.bias.is_some() {
            self.add_bias(simd, &mut scores, rows);
        }
        if let Some(last_key) = step.last_key
            && step.block.indices[self.first + rows - 1] as usize > last_key
        {
            self.hide_later(simd, &mut scores, rows, last_key);
        }
        let mut largest = [simd.splat(0.0); VECTORS];
        for (index, largest) in largest.iter_mut().enumerate() {
            *largest = simd.load(&self.largest.0[index * S::LANES..]);
        }
        let stride = step.score_stride::<S>();
        for (row, scores) in scores.into_iter().enumerate() {
            if row >= rows {
                break;
            }
            for (index, score) in scores.into_iter().enumerate() {
                let place = index * stride + (self.first + row) * S::LANES;
                // SAFETY: `check` measured the scores: a vector for each of the block's keys and the panel's vectors.
                unsafe { simd.store_pointer(score, self.scores.wrapping_add(place)) };
                largest[index] = simd.max(largest[index], score);
            }
        }
        for (index, largest) in largest.into_iter().enumerate() {
            simd.store(largest, &mut self.largest.0[index * S::LANES..]);
        }
    }
}

impl<L: Left, const ROWS: usize, const VECTORS: usize> ScoreTile<'_, '_, L, ROWS, VECTORS> {
    /// Adds the row and column biases of each key.
    #[inline(always)]
    fn add_bias<S: Simd>(&self, simd: S, scores: &mut [[S::F; VECTORS]; ROWS], rows: usize) {
        let step = self.step;
        let lengths = step.plan.bias.map_or([0; 2], |bias| bias.lengths);
        let [height, width] = lengths.map(|length| length.next_multiple_of(S::LANES));
        for (row, scores) in scores.iter_mut().enumerate() {
            // Rows beyond the last key repeat it.
            let key = self.first + row.min(rows - 1);
            let [y, x] = step.block.bias[key].map(|position| position as usize);
            for (index, score) in scores.iter_mut().enumerate() {
                let tables = &step.bias[index * (height + width) * S::LANES..];
                let row_bias = simd.load(&tables[y * S::LANES..]);
                let column_bias = simd.load(&tables[(height + x) * S::LANES..]);
                *score = simd.add(*score, simd.add(row_bias, column_bias));
            }
        }
    }

    /// Gives minus infinity to the keys after the last one that a query sees; the first query sees `last_key`.
    #[inline(always)]
    fn hide_later<S: Simd>(
        &self,
        simd: S,
        scores: &mut [[S::F; VECTORS]; ROWS],
        rows: usize,
        last_key: usize,
    ) {
        let lanes = simd.load(&LANE_NUMBERS);
        for (row, scores) in scores.iter_mut().enumerate() {
            let index = self.step.block.indices[self.first + row.min(rows - 1)] as usize;
            for (vector, score) in scores.iter_mut().enumerate() {
                // Differences of indices are exact in single precision up to 2^24.
                let ahead = index as f32 - (last_key + vector * S::LANES) as f32;
                let seen = simd.less_equal(simd.splat(ahead), lanes);
                *score = simd.select(seen, *score, simd.splat(f32::NEG_INFINITY));
            }
        }
    }
}

/// The weighted sums of a few channels.
struct ValueTile<'a, 'b, L, const ROWS: usize, const VECTORS: usize> {
    left: L,
    step: &'a PanelStep<'b, VECTORS>,
    /// The first channel.
    channel: usize,
    /// The panel's outputs.
    outputs: *mut f32,
    /// What the outputs so far are multiplied by.
    factors: &'a PerQuery,
}

impl<L: Left, const ROWS: usize, const VECTORS: usize> Kernel
    for ValueTile<'_, '_, L, ROWS, VECTORS>
{
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let step = self.step;
        let stride = step.score_stride::<S>();
        let right = Right { start: step.state.scores.as_ptr(), stride };
        // SAFETY: `check` measured the packed sides and the scores; values in place have whole tiles of channels.
        let sums = unsafe { sums::<S, L, ROWS, VECTORS>(simd, self.left, right, step.block.count) };
        let stride = step.plan.value_width.next_multiple_of(S::LANES) * S::LANES;
        for index in 0..VECTORS {
            let factor = simd.load(&self.factors.0[index * S::LANES..]);
            for (row, sums) in sums.iter().enumerate() {
                let place = index * stride + (self.channel + row) * S::LANES;
                let output = self.outputs.wrapping_add(place);
                let sum = if step.state.started {
                    // SAFETY: `check` measured the outputs: whole tiles of channels for the panel's vectors.
                    simd.fma(unsafe { simd.load_pointer(output) }, factor, sums[index])
                } else {
                    sums[index]
                };
                // SAFETY: as above.
                unsafe { simd.store_pointer(sum, output) };
            }
        }
    }
}
