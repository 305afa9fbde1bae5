//! One task: some queries of one head meet all keys of their window.

use cutout_graph::ops::BiasForm;

use super::grid::Region;
use super::keys::{KeyBlock, Span};
use super::operands::{Operands, Rotations};
use super::pack::{Columns, MOST_LANES, PackRows, PackValues, Rotate, Scale};
use super::panel::{Ahead, PanelState, PanelStep};
use super::plan::{Job, MOST_PANELS, Packing, Plan};
use super::scratch::{Lengths, Scratch};
use super::write::WriteVector;
use crate::execute::SharedSlice;
use crate::simd::{Kernel, Simd};

/// A task and its memory.
pub(super) struct Task<'a> {
    pub(super) plan: &'a Plan,
    pub(super) job: Job,
    pub(super) operands: &'a Operands<'a>,
    /// `[batch, queries, heads * value_width]`; the task writes its queries in its head.
    pub(super) output: &'a SharedSlice<f32>,
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
        let Task { plan, job, operands, output, image_stride, .. } = self;
        let started = [false; MOST_PANELS];
        let mut run = Run { plan, job, operands, output, image_stride, scratch, started };
        run.pack_queries(simd);
        run.meet_keys(simd);
        run.write(simd);
    }
}

/// A task under way.
struct Run<'a> {
    plan: &'a Plan,
    job: Job,
    operands: &'a Operands<'a>,
    output: &'a SharedSlice<f32>,
    image_stride: usize,
    scratch: Scratch<'a>,
    /// Which panels have met keys.
    started: [bool; MOST_PANELS],
}

/// A vector of queries, and where its lanes lie in the arrays of its panel.
struct Vector {
    panel: usize,
    /// Its first lane, counted in its panel.
    lane: usize,
    /// Lanes of the panel.
    stride: usize,
    /// Position of each query in the window.
    positions: [[usize; 2]; MOST_LANES],
    /// How many queries there are.
    count: usize,
}

/// Packs rows by their slices; see [`PackRows`].
#[inline(always)]
fn pack_rows<S: Simd>(simd: S, rows: &[&[f32]], width: usize, columns: Columns<'_>) {
    let mut starts = [std::ptr::null(); MOST_LANES];
    for (start, row) in starts.iter_mut().zip(rows) {
        assert!(row.len() >= width);
        *start = row.as_ptr();
    }
    // SAFETY: each row has `width` elements, as just checked, and the columns are borrowed exclusively.
    simd.vectorize(unsafe { PackRows::new(&starts[..rows.len()], width, columns) });
}

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
        let mut rows: [&[f32]; MOST_LANES] = [&[]; MOST_LANES];
        for (row, &index) in rows.iter_mut().zip(indices) {
            *row = table.rows(index)[which];
        }
        let columns = Columns { out: memory, stride: S::LANES };
        pack_rows(simd, &rows[..indices.len()], table.pairs, columns);
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

    /// Where a vector's queries lie.
    #[inline(always)]
    fn vector<S: Simd>(&self, number: usize) -> Vector {
        let panel = number / self.plan.panel_vectors;
        let first = number * S::LANES;
        let count = S::LANES.min(self.job.count - first);
        let mut positions = [[0; 2]; MOST_LANES];
        for (lane, position) in positions.iter_mut().enumerate().take(count) {
            *position = self.job.queries.position(self.job.first + first + lane);
        }
        let lane = number % self.plan.panel_vectors * S::LANES;
        let stride = self.panel_vectors::<S>(panel) * S::LANES;
        Vector { panel, lane, stride, positions, count }
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
            let mut rows: [&[f32]; MOST_LANES] = [&[]; MOST_LANES];
            let mut indices = [0; MOST_LANES];
            for lane in 0..vector.count {
                let position = vector.positions[lane];
                let token = query_token(&self.job.queries, position);
                rows[lane] = self.operands.query.row(self.job.place, token);
                indices[lane] = self.job.queries.index(position);
            }
            let panel = &mut self.scratch.queries[vector.panel * length..][..length];
            let out = &mut panel[vector.lane..];
            let stride = vector.stride;
            pack_rows(simd, &rows[..vector.count], width, Columns { out, stride });
            if let Some([table, _]) = &self.operands.rope {
                let memory = &mut self.scratch.rotations;
                let tokens = Columns { out: &mut panel[vector.lane..], stride };
                rotate(simd, table, &indices[..vector.count], memory, tokens);
            }
        }
        let used = self.panels::<S>() * length;
        let values = &mut self.scratch.queries[..used];
        simd.vectorize(Scale { factor: self.plan.scale, values });
        self.scratch.largest.fill(f32::NEG_INFINITY);
        self.scratch.sums.fill(0.0);
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
                let mut rows: [&[f32]; MOST_LANES] = [&[]; MOST_LANES];
                for lane in 0..vector.count {
                    let position = vector.positions[lane];
                    let shift = match bias.form {
                        BiasForm::Absolute => 0,
                        BiasForm::Relative => bias.grid[axis] - 1 - position[axis],
                    };
                    let token = query_token(&self.job.queries, position);
                    let line = lines[axis].line(self.job.place, token);
                    rows[lane] = &line[shift + range.start..shift + range.end];
                }
                let before = if axis == 0 { 0 } else { lengths[0] * vector.stride };
                let columns =
                    Columns { out: &mut panel[before + vector.lane..], stride: vector.stride };
                pack_rows(simd, &rows[..vector.count], range.len(), columns);
            }
        }
        let used = self.panels::<S>() * length;
        let values = &mut self.scratch.bias[..used];
        simd.vectorize(Scale { factor: std::f32::consts::LOG2_E, values });
    }

    /// Goes through the keys, block after block, with all panels.
    #[inline(always)]
    fn meet_keys<S: Simd>(&mut self, simd: S) {
        let (plan, job, operands) = (self.plan, self.job, self.operands);
        let (mut first, mut second) = (KeyBlock::new(), KeyBlock::new());
        let (mut block, mut next) = (&mut first, &mut second);
        next.gather(plan, &job, operands, 0);
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
            if plan.packing == Packing::Packed {
                self.pack_keys(simd, block);
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
        let share = next.count.div_ceil(self.panels::<S>());
        let fetched = (panel * share).min(next.count)..((panel + 1) * share).min(next.count);
        let scratch = &mut self.scratch;
        simd.vectorize(PanelStep::<VECTORS> {
            plan,
            block,
            queries: &scratch.queries[panel * width..][..width],
            keys: scratch.keys,
            values: scratch.values,
            bias: &scratch.bias[panel * bias..][..bias],
            last_key,
            ahead: Ahead { keys: &next.keys()[fetched.clone()], values: &next.values()[fetched] },
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
            for lane in 0..vector.count {
                let token = query_token(&self.job.queries, vector.positions[lane]);
                let row = token * self.plan.heads + self.job.place.head;
                starts[lane] = self.job.place.image * self.image_stride + row * width;
            }
            let outputs = &self.scratch.outputs[vector.panel * length..][..length];
            simd.vectorize(WriteVector {
                outputs: self.started[vector.panel].then_some(&outputs[vector.lane..]),
                stride: vector.stride,
                sums: &self.scratch.sums[vector.panel * lanes + vector.lane..][..S::LANES],
                width,
                starts: &starts[..vector.count],
                target: self.output,
            });
        }
    }
}

/// The token of a query.
#[inline(always)]
fn query_token(region: &Region, position: [usize; 2]) -> usize {
    region.token(position).expect("queries lie inside their grid")
}
