//! One task: some queries of one head meet all keys of their window.

use cutout_graph::ops::BiasForm;

use super::keys::{KeyBlock, Span};
use super::operands::{Operands, Rotations};
use super::pack::{Columns, MOST_LANES, PackRows, PackValues, Rotate, Scale};
use super::panel::{PanelState, PanelStep};
use super::plan::{Job, MOST_PANELS, Packing, Plan};
use super::scratch::{Lengths, Scratch};
use super::write::{Target, WriteVector};
use crate::simd::{Kernel, Simd};

/// A task and its memory.
pub(super) struct Task<'a> {
    pub(super) plan: &'a Plan,
    pub(super) job: Job,
    pub(super) operands: &'a Operands<'a>,
    /// `[batch, queries, heads * value_width]`; the task writes its queries in its head.
    pub(super) target: Target,
    /// Elements of one image in the output.
    pub(super) image_stride: usize,
    /// [`Lengths::total`] elements.
    pub(super) scratch: &'a mut [f32],
}

impl Kernel for Task<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let lengths = Lengths::new(self.plan);
        let scratch = Scratch::new(&lengths, self.scratch);
        let Task { plan, job, operands, target, image_stride, .. } = self;
        let started = [false; MOST_PANELS];
        let mut run = Run { plan, job, operands, target, image_stride, scratch, started };
        run.meet_keys(simd);
        run.write(simd);
    }
}

/// A task under way.
struct Run<'a> {
    plan: &'a Plan,
    job: Job,
    operands: &'a Operands<'a>,
    target: Target,
    image_stride: usize,
    scratch: Scratch<'a>,
    /// Which panels have met keys.
    started: [bool; MOST_PANELS],
}

/// A vector of queries, and where its lanes lie in the arrays of its panel.
#[derive(Clone, Copy)]
struct Vector {
    panel: usize,
    /// Its first lane, counted in its panel.
    lane: usize,
    /// Lanes of the panel.
    stride: usize,
    /// Its first query, counted in the window.
    first: usize,
    /// How many queries there are.
    count: usize,
}

/// Where up to a vector of rows starts.
type Starts = [*const f32; MOST_LANES];

/// Rotates packed tokens, the first lanes of `tokens`, whose indices in their window are `indices`.
#[inline(always)]
fn rotate<S: Simd>(
    simd: S,
    table: &Rotations<'_>,
    indices: &[usize],
    memory: &mut [&mut [f32]; 2],
    tokens: Columns<'_>,
) {
    for (which, memory) in memory.iter_mut().enumerate() {
        let mut starts: Starts = [std::ptr::null(); MOST_LANES];
        for (start, &index) in starts.iter_mut().zip(indices) {
            *start = table.rows(index)[which].as_ptr();
        }
        let columns = Columns { out: memory, stride: S::LANES };
        // SAFETY: the tables' rows have an element for each pair.
        let pack = unsafe { PackRows::new(&starts[..indices.len()], table.pairs, columns) };
        simd.vectorize(pack);
    }
    let [cos, sin] = memory;
    let rotated = indices.len();
    simd.vectorize(Rotate { rotations: [cos, sin], pairs: table.pairs, tokens, rotated });
}

impl Run<'_> {
    /// Vectors that the task's queries fill.
    fn vectors<S: Simd>(&self) -> usize {
        self.job.count.div_ceil(S::LANES)
    }

    /// Panels that they make.
    fn panels<S: Simd>(&self) -> usize {
        self.vectors::<S>().div_ceil(self.plan.panel_vectors)
    }

    /// Vectors of a panel: fewer in the last one.
    fn panel_vectors<S: Simd>(&self, panel: usize) -> usize {
        let most = self.plan.panel_vectors;
        most.min(self.vectors::<S>() - panel * most)
    }

    /// The vector of a number.
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

    /// Elements that an array with `length` lines per vector has per panel.
    fn panel_length<S: Simd>(&self, length: usize) -> usize {
        length.next_multiple_of(S::LANES) * self.plan.panel_vectors * S::LANES
    }

    /// Elements of the biases of a panel: rows, then columns.
    fn bias_lengths<S: Simd>(&self) -> [usize; 2] {
        let lengths = self.plan.bias.map_or([0; 2], |bias| bias.lengths);
        lengths.map(|length| length.next_multiple_of(S::LANES))
    }

    /// Packs, rotates and scales the queries, and forgets what the panels' state was.
    #[inline(always)]
    fn pack_queries<S: Simd>(&mut self, simd: S) {
        let width = self.plan.width;
        let length = self.panel_length::<S>(width);
        for number in 0..self.vectors::<S>() {
            let vector = self.vector::<S>(number);
            let mut starts: Starts = [std::ptr::null(); MOST_LANES];
            for (lane, start) in starts.iter_mut().enumerate().take(vector.count) {
                let position = self.job.queries.position(vector.first + lane);
                let token = self.job.queries.token(position);
                *start = self.operands.query.row(self.job.place, token).as_ptr();
            }
            let panel = &mut self.scratch.queries[vector.panel * length..][..length];
            let columns = Columns { out: &mut panel[vector.lane..], stride: vector.stride };
            // SAFETY: the queries' rows have `width` elements, in the inputs.
            let pack = unsafe { PackRows::new(&starts[..vector.count], width, columns) };
            simd.vectorize(pack);
            if self.operands.rope.is_some() {
                self.rotate_queries(simd, vector);
            }
        }
        let used = self.panels::<S>() * length;
        let values = &mut self.scratch.queries[..used];
        simd.vectorize(Scale { factor: self.plan.scale, values });
        self.scratch.largest.fill(f32::NEG_INFINITY);
        self.scratch.sums.fill(0.0);
    }

    #[inline(always)]
    fn rotate_queries<S: Simd>(&mut self, simd: S, vector: Vector) {
        let Some([table, _]) = &self.operands.rope else { return };
        let mut indices = [0; MOST_LANES];
        for (lane, index) in indices.iter_mut().enumerate().take(vector.count) {
            let position = self.job.queries.position(vector.first + lane);
            *index = self.job.queries.index(position);
        }
        let length = self.panel_length::<S>(self.plan.width);
        let panel = &mut self.scratch.queries[vector.panel * length..][..length];
        let tokens = Columns { out: &mut panel[vector.lane..], stride: vector.stride };
        rotate(simd, table, &indices[..vector.count], &mut self.scratch.rotations, tokens);
    }

    /// Packs the biases of the rows and columns of a span, in powers of two.
    #[inline(always)]
    fn pack_bias<S: Simd>(&mut self, simd: S, span: &Span) {
        let (Some(bias), Some(lines)) = (self.plan.bias, self.operands.bias) else { return };
        let lengths = self.bias_lengths::<S>();
        let length = self.panel_length::<S>(lengths[0] + lengths[1]);
        for number in 0..self.vectors::<S>() {
            let vector = self.vector::<S>(number);
            let panel = &mut self.scratch.bias[vector.panel * length..][..length];
            for (axis, range) in [&span.rows, &span.columns].into_iter().enumerate() {
                let mut starts: Starts = [std::ptr::null(); MOST_LANES];
                for (lane, start) in starts.iter_mut().enumerate().take(vector.count) {
                    let position = self.job.queries.position(vector.first + lane);
                    let shift = match bias.form {
                        BiasForm::Absolute => 0,
                        BiasForm::Relative => bias.grid[axis] - 1 - position[axis],
                    };
                    let token = self.job.queries.token(position);
                    let line = lines[axis].line(self.job.place, token);
                    *start = line[shift + range.start..shift + range.end].as_ptr();
                }
                let before = if axis == 0 { 0 } else { lengths[0] * vector.stride };
                let out = &mut panel[before + vector.lane..];
                let columns = Columns { out, stride: vector.stride };
                let starts = &starts[..vector.count];
                // SAFETY: the lines were sliced to the range.
                simd.vectorize(unsafe { PackRows::new(starts, range.len(), columns) });
            }
        }
        let used = self.panels::<S>() * length;
        let values = &mut self.scratch.bias[..used];
        simd.vectorize(Scale { factor: std::f32::consts::LOG2_E, values });
    }

    /// Packs the queries and goes through the keys, block after block, with all panels.
    #[inline(always)]
    fn meet_keys<S: Simd>(&mut self, simd: S) {
        let (plan, job, operands) = (self.plan, self.job, self.operands);
        let (mut first, mut second) = (KeyBlock::new(), KeyBlock::new());
        let (mut block, mut next) = (&mut first, &mut second);
        next.gather(plan, &job, operands, 0);
        next.fetch(simd, plan, 0..next.count);
        self.pack_queries(simd);
        while !next.span.indices.is_empty() {
            std::mem::swap(&mut block, &mut next);
            next.gather(plan, &job, operands, block.span.indices.end);
            let starts = block.span.indices.start == 0;
            if plan.bias.is_some_and(|bias| starts || !bias.is_whole()) {
                self.pack_bias(simd, &block.span);
            }
            if block.count == 0 {
                continue;
            }
            if plan.key_packing == Packing::Packed {
                self.pack_keys(simd, block);
            }
            if plan.value_packing == Packing::Packed {
                let values = &mut *self.scratch.values;
                // SAFETY: the block's values have so many readable elements, in the inputs.
                let pack = unsafe { PackValues::new(block.values(), plan.value_width, values) };
                simd.vectorize(pack);
            }
            for panel in 0..self.panels::<S>() {
                self.meet_block(simd, panel, (block, next));
            }
        }
    }

    /// Packs and rotates the keys of a block.
    #[inline(always)]
    fn pack_keys<S: Simd>(&mut self, simd: S, block: &KeyBlock) {
        let width = self.plan.width;
        let length = width.next_multiple_of(S::LANES) * S::LANES;
        let stride = S::LANES;
        let groups = block.keys().chunks(S::LANES).zip(self.scratch.keys.chunks_exact_mut(length));
        for (group, (rows, out)) in groups.enumerate() {
            // SAFETY: the block's keys have `width` readable elements, in the inputs.
            simd.vectorize(unsafe { PackRows::new(rows, width, Columns { out, stride }) });
            let first = group * S::LANES;
            let rotated = block.rotated.saturating_sub(first).min(rows.len());
            if let Some([_, table]) = &self.operands.rope
                && rotated > 0
            {
                let mut indices = [0; MOST_LANES];
                for (index, &of_key) in indices.iter_mut().zip(&block.indices[first..]) {
                    *index = of_key as usize;
                }
                let memory = &mut self.scratch.rotations;
                rotate(simd, table, &indices[..rotated], memory, Columns { out, stride });
            }
        }
    }

    /// Lets one panel meet a block, while the next block is fetched.
    #[inline(always)]
    fn meet_block<S: Simd>(
        &mut self,
        simd: S,
        panel: usize,
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
            1 => self.step::<S, 1>(simd, panel, last_key, (block, next)),
            2 => self.step::<S, 2>(simd, panel, last_key, (block, next)),
            _ => self.step::<S, 3>(simd, panel, last_key, (block, next)),
        }
        self.started[panel] = true;
    }

    #[inline(always)]
    fn step<S: Simd, const VECTORS: usize>(
        &mut self,
        simd: S,
        panel: usize,
        last_key: Option<usize>,
        (block, next): (&KeyBlock, &KeyBlock),
    ) {
        let plan = self.plan;
        let width = self.panel_length::<S>(plan.width);
        let value_width = self.panel_length::<S>(plan.value_width);
        let bias = self.panel_length::<S>(self.bias_lengths::<S>().iter().sum());
        let lanes = plan.panel_vectors * S::LANES;
        // Fetched by the last panel, so that the other panels' memory does not drive it out of the cache again.
        let is_last = panel + 1 == self.panels::<S>();
        let scratch = &mut self.scratch;
        simd.vectorize(PanelStep::<VECTORS> {
            plan,
            block,
            queries: &scratch.queries[panel * width..][..width],
            keys: scratch.keys,
            values: scratch.values,
            bias: &scratch.bias[panel * bias..][..bias],
            last_key,
            next: is_last.then_some(next),
            state: PanelState {
                outputs: &mut scratch.outputs[panel * value_width..][..value_width],
                started: self.started[panel],
                largest: &mut scratch.largest[panel * lanes..][..lanes],
                sums: &mut scratch.sums[panel * lanes..][..lanes],
                scores: scratch.scores,
            },
        });
    }

    /// Divides by the sums of the weights and writes the output.
    #[inline(always)]
    fn write<S: Simd>(&mut self, simd: S) {
        let width = self.plan.value_width;
        let length = self.panel_length::<S>(width);
        let lanes = self.plan.panel_vectors * S::LANES;
        for number in 0..self.vectors::<S>() {
            let vector = self.vector::<S>(number);
            let mut starts = [0; MOST_LANES];
            for (lane, start) in starts.iter_mut().enumerate().take(vector.count) {
                let position = self.job.queries.position(vector.first + lane);
                let row = self.job.queries.token(position) * self.plan.heads + self.job.place.head;
                *start = self.job.place.image * self.image_stride + row * width;
            }
            let outputs = &mut self.scratch.outputs[vector.panel * length..][..length];
            if !self.started[vector.panel] {
                // No key was met: zero values by weights that sum to zero.
                outputs.fill(0.0);
            }
            simd.vectorize(WriteVector {
                outputs: &mut outputs[vector.lane..],
                stride: vector.stride,
                sums: &self.scratch.sums[vector.panel * lanes + vector.lane..][..S::LANES],
                width,
                starts: &starts[..vector.count],
                target: self.target,
            });
        }
    }
}
