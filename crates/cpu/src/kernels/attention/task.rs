//! One task: some queries of one head or more by the keys of their window, or a part of them.

mod packing;

use std::marker::PhantomData;

use super::copies::{copy_block, set_shift};
use super::keys::KeyBlock;
use super::merge::{MergeVector, VectorState};
use super::numbers::Word;
use super::on_tiles::OnTiles;
use super::operands::{HeadIndex, Operands};
use super::panel::{PanelState, PanelStep};
use super::plan::{Job, MOST_UNITS, Plan, Products};
use super::scratch::{Lengths, Scratch, State, Terms};
use super::write::{Target, WriteVector};
use crate::simd::{Kernel, MAX_LANES, Simd};
use crate::tiles::{Amx, Twin};

/// A task and its memory.
pub(super) struct Task<'a> {
    pub(super) plan: &'a Plan,
    pub(super) job: Job,
    /// The next job of the same thread, whose inputs are prefetched.
    pub(super) following: Option<&'a Job>,
    pub(super) operands: &'a Operands<'a>,
    /// `[batch, queries, heads * value_width]`; the task writes its queries in its head.
    pub(super) target: Target,
    /// Elements of one image in the output.
    pub(super) image_stride: usize,
    pub(super) memory: Memory<'a>,
    pub(super) steps: Steps,
}

/// The memory of a task.
pub(super) struct Memory<'a> {
    /// [`Lengths::state`] elements for each part of the keys; the first is this task's.
    pub(super) states: &'a mut [f32],
    /// [`Lengths::work`] elements.
    pub(super) scratch: &'a mut [f32],
}

/// Steps of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Steps {
    /// Processes all keys and writes the output.
    All,
    /// Processes its part of the keys.
    Accumulate,
    /// Merges the states of all parts of the keys and writes the output. Needs no scratch memory.
    Merge,
}

/// A task whose products are of words `W`.
pub(super) struct TaskOf<'a, W> {
    task: Task<'a>,
    words: PhantomData<W>,
}

impl<'a> Task<'a> {
    /// The task with products of words `W`.
    pub(super) fn of<W: Word>(self) -> TaskOf<'a, W> {
        TaskOf { task: self, words: PhantomData }
    }
}

impl<W: Word> Kernel for TaskOf<'_, W> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.task.run_steps::<S, W>(simd);
    }
}

impl Task<'_> {
    #[inline(always)]
    fn run_steps<S: Simd, W: Word>(self, simd: S) {
        let Task { plan, job, following, operands, target, image_stride, memory, steps } = self;
        let Memory { states, scratch } = memory;
        let lengths = Lengths::new(plan);
        let (own, others) = states.split_at_mut(lengths.state());
        let state = State::new(&lengths, own);
        let scratch = match steps {
            Steps::All | Steps::Accumulate => Scratch::new(&lengths, scratch),
            Steps::Merge => Scratch::default(),
        };
        let started = [false; MOST_UNITS];
        let mut run =
            Run { plan, job, following, operands, target, image_stride, state, scratch, started };
        match steps {
            Steps::All => {
                run.process_keys::<S, W>(simd);
                run.write(simd);
            }
            Steps::Accumulate => run.process_keys::<S, W>(simd),
            Steps::Merge => {
                for part in others.chunks_exact_mut(lengths.state()) {
                    run.merge(simd, &State::new(&lengths, part));
                }
                run.write(simd);
            }
        }
    }
}

/// A running task.
struct Run<'a> {
    plan: &'a Plan,
    job: Job,
    following: Option<&'a Job>,
    operands: &'a Operands<'a>,
    target: Target,
    image_stride: usize,
    state: State<'a>,
    scratch: Scratch<'a>,
    /// Units that have processed keys.
    started: [bool; MOST_UNITS],
}

/// A vector of queries and its lanes in the arrays of its panel.
#[derive(Clone, Copy)]
struct Vector {
    panel: usize,
    /// Its first lane, counted from the panel's first.
    lane: usize,
    /// Lanes of the panel.
    stride: usize,
    /// Its first query, counted from the window's first.
    first: usize,
    /// Number of queries.
    count: usize,
}

/// Addresses of the rows of one vector.
type Starts = [*const f32; MAX_LANES];

impl Run<'_> {
    /// Vectors of queries in each head.
    fn vectors<S: Simd>(&self) -> usize {
        self.job.count.div_ceil(S::LANES)
    }

    /// Panels of each head.
    fn panels<S: Simd>(&self) -> usize {
        self.vectors::<S>().div_ceil(self.plan.panel_vectors)
    }

    /// Vectors of a panel: fewer in the last one.
    fn panel_vectors<S: Simd>(&self, panel: usize) -> usize {
        let most = self.plan.panel_vectors;
        most.min(self.vectors::<S>() - panel * most)
    }

    /// Vector `number` of a head.
    #[inline(always)]
    fn vector<S: Simd>(&self, number: usize) -> Vector {
        let panel = number / self.plan.panel_vectors;
        Vector {
            panel,
            lane: number % self.plan.panel_vectors * S::LANES,
            stride: self.panel_vectors::<S>(panel) * S::LANES,
            first: self.job.first + number * S::LANES,
            count: S::LANES.min(self.job.count - number * S::LANES),
        }
    }

    /// Head `head` of the task.
    fn head_index(&self, head: usize) -> HeadIndex {
        HeadIndex { head: self.job.head.head + head, ..self.job.head }
    }

    /// The number of a panel in the arrays of all heads.
    fn unit<S: Simd>(&self, head: usize, panel: usize) -> usize {
        head * self.panels::<S>() + panel
    }

    /// Elements per panel of an array with `length` rows.
    fn panel_length<S: Simd>(&self, length: usize) -> usize {
        length.next_multiple_of(S::LANES) * self.plan.panel_vectors * S::LANES
    }

    /// Elements of the biases of a panel: rows, then columns.
    fn bias_lengths<S: Simd>(&self) -> [usize; 2] {
        let lengths = self.plan.bias.map_or([0; 2], |bias| bias.lengths);
        lengths.map(|length| length.next_multiple_of(S::LANES))
    }

    /// Packs the queries and processes the keys block by block, for all panels.
    #[inline(always)]
    fn process_keys<S: Simd, W: Word>(&mut self, simd: S) {
        let (plan, job, operands) = (self.plan, self.job.clone(), self.operands);
        let start = job.key_range.start;
        let (mut first, mut second) = (KeyBlock::new(), KeyBlock::new());
        let (mut block, mut next) = (&mut first, &mut second);
        next.gather(plan, &job, operands, start);
        next.fetch(simd, plan, 0..next.count);
        self.pack_queries(simd);
        if plan.products == Products::Bytes {
            set_shift(simd, (plan, operands), &mut self.scratch, (&job, &mut *block));
        }
        let mut following = KeyBlock::new();
        while !next.span.indices.is_empty() {
            std::mem::swap(&mut block, &mut next);
            next.gather(plan, &job, operands, block.span.indices.end);
            if let (true, Some(job)) = (next.span.indices.is_empty(), self.following) {
                following.gather(plan, job, operands, job.key_range.start);
                following.gather_queries(job, operands);
            }
            let upcoming = if next.span.indices.is_empty() { &following } else { &*next };
            let starts = block.span.indices.start == start;
            if plan.bias.is_some_and(|bias| starts || !bias.is_whole()) {
                self.pack_bias(simd, &block.span);
            }
            if block.count == 0 {
                continue;
            }
            copy_block(simd, (plan, operands), &mut self.scratch, block);
            for head in 0..plan.task_heads {
                for panel in 0..self.panels::<S>() {
                    self.process_block::<S, W>(simd, (head, panel), (block, upcoming));
                }
            }
        }
        self.zero_unused::<S>();
    }

    /// Processes a block for one panel, and prefetches the next block.
    #[inline(always)]
    fn process_block<S: Simd, W: Word>(
        &mut self,
        simd: S,
        (head, panel): (usize, usize),
        (block, next): (&KeyBlock, &KeyBlock),
    ) {
        let vectors = self.panel_vectors::<S>(panel);
        let first_query = self.job.first + panel * self.plan.panel_vectors * S::LANES;
        let last_key = self.plan.causal.map(|more_keys| first_query + more_keys);
        let panel_last = last_key.map(|last| last + vectors * S::LANES - 1);
        if panel_last.is_some_and(|last| block.indices[0] as usize > last) {
            return;
        }
        match vectors {
            1 => self.step::<S, W, 1>(simd, (head, panel), last_key, (block, next)),
            2 => self.step::<S, W, 2>(simd, (head, panel), last_key, (block, next)),
            _ => self.step::<S, W, 3>(simd, (head, panel), last_key, (block, next)),
        }
        let unit = self.unit::<S>(head, panel);
        self.started[unit] = true;
    }

    #[inline(always)]
    fn step<S: Simd, W: Word, const VECTORS: usize>(
        &mut self,
        simd: S,
        (head, panel): (usize, usize),
        last_key: Option<usize>,
        (block, next): (&KeyBlock, &KeyBlock),
    ) {
        let plan = self.plan;
        let unit = self.unit::<S>(head, panel);
        let width = self.panel_length::<S>(plan.width);
        let value_width = self.panel_length::<S>(plan.value_width);
        let bias = self.panel_length::<S>(self.bias_lengths::<S>().iter().sum());
        let lanes = plan.panel_vectors * S::LANES;
        // The last panel prefetches, so that the memory of the other panels does not evict it.
        let is_last = unit + 1 == plan.task_heads * self.panels::<S>();
        let (scratch, state) = (&mut self.scratch, &mut self.state);
        let terms = if plan.products == Products::Bytes {
            let (keys, starts) = scratch.key_terms.split_at(plan.key_block);
            let queries = &scratch.query_scales[unit * lanes..][..lanes];
            Terms { queries, keys, starts, values: scratch.value_scales }
        } else {
            Terms { queries: &[], keys: &[], starts: &[], values: &[] }
        };
        let step = PanelStep::<W, VECTORS> {
            words: PhantomData,
            plan,
            block,
            head,
            queries: &scratch.queries[unit * width..][..width],
            bias: &scratch.bias[unit * bias..][..bias],
            terms,
            last_key,
            next: is_last.then_some(next),
            state: PanelState {
                outputs: &mut state.outputs[unit * value_width..][..value_width],
                started: self.started[unit],
                largest: &mut state.largest[unit * lanes..][..lanes],
                sums: &mut state.sums[unit * lanes..][..lanes],
                scores: scratch.scores,
            },
        };
        match plan.products {
            Products::Single | Products::Rounded | Products::Pairs | Products::Bytes => {
                simd.vectorize(step)
            }
            Products::Tiles => simd.vectorize(OnTiles::<Amx, W, VECTORS>::new(step)),
            Products::TileTwin => simd.vectorize(OnTiles::<Twin, W, VECTORS>::new(step)),
        }
    }

    /// Zeroes the sums of units that processed no key.
    fn zero_unused<S: Simd>(&mut self) {
        let length = self.panel_length::<S>(self.plan.value_width);
        let units = self.plan.task_heads * self.panels::<S>();
        let outputs = self.state.outputs.chunks_exact_mut(length);
        for (outputs, _) in outputs.zip(&self.started[..units]).filter(|(_, started)| !**started) {
            outputs.fill(0.0);
        }
    }

    /// Merges the state of another part of the keys.
    #[inline(always)]
    fn merge<S: Simd>(&mut self, simd: S, part: &State<'_>) {
        let width = self.plan.value_width;
        let length = self.panel_length::<S>(width);
        let lanes = self.plan.panel_vectors * S::LANES;
        for number in 0..self.vectors::<S>() {
            let vector = self.vector::<S>(number);
            for head in 0..self.plan.task_heads {
                let unit = self.unit::<S>(head, vector.panel);
                let outputs = unit * length + vector.lane..(unit + 1) * length;
                let lane = unit * lanes + vector.lane;
                let statistics = lane..lane + S::LANES;
                simd.vectorize(MergeVector {
                    width,
                    stride: vector.stride,
                    total: VectorState {
                        outputs: &mut self.state.outputs[outputs.clone()],
                        largest: &mut self.state.largest[statistics.clone()],
                        sums: &mut self.state.sums[statistics.clone()],
                    },
                    part: VectorState {
                        outputs: &part.outputs[outputs],
                        largest: &part.largest[statistics.clone()],
                        sums: &part.sums[statistics],
                    },
                });
            }
        }
    }

    /// Divides by the sums of the weights and writes the output.
    #[inline(always)]
    fn write<S: Simd>(&mut self, simd: S) {
        for number in 0..self.vectors::<S>() {
            let vector = self.vector::<S>(number);
            for head in 0..self.plan.task_heads {
                self.write_vector(simd, head, vector);
            }
        }
    }

    #[inline(always)]
    fn write_vector<S: Simd>(&mut self, simd: S, head: usize, vector: Vector) {
        let width = self.plan.value_width;
        let index = self.head_index(head);
        let mut starts = [0; MAX_LANES];
        let mut positions = self.job.queries.walk(vector.first);
        for start in &mut starts[..vector.count] {
            let token = self.job.queries.token(positions.step());
            let row = token * self.plan.heads + index.head;
            *start = index.image * self.image_stride + row * width;
        }
        let length = self.panel_length::<S>(width);
        let lanes = self.plan.panel_vectors * S::LANES;
        let unit = self.unit::<S>(head, vector.panel);
        let outputs = &mut self.state.outputs[unit * length..][..length];
        simd.vectorize(WriteVector {
            outputs: &mut outputs[vector.lane..],
            stride: vector.stride,
            sums: &self.state.sums[unit * lanes + vector.lane..][..S::LANES],
            width,
            starts: &starts[..vector.count],
            target: self.target,
        });
    }
}
