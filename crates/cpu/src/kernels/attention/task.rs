//! One task: some queries of one head meet all keys of their window.

use super::grid::Region;
use super::keys::{KeyBlock, Span};
use super::operands::{Operands, Rotations};
use super::pack::{MOST_LANES, PackRows, PackValues, Rotate, Scale};
use super::panel::{PanelState, PanelStep};
use super::plan::{Job, MOST_PANELS, Packing, Plan};
use super::scratch::{Lengths, Scratch};
use crate::execute::SharedSlice;
use crate::simd::{Interleave, Kernel, Simd};
use cutout_graph::ops::BiasForm;

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
        let mut run = Run {
            plan,
            job,
            operands,
            output,
            image_stride,
            scratch,
            started: [false; MOST_PANELS],
        };
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

/// Packs rows by their slices; see [`PackRows`].
#[inline(always)]
fn pack_rows<S: Simd>(simd: S, rows: &[&[f32]], width: usize, out: &mut [f32]) {
    let mut starts = [std::ptr::null(); MOST_LANES];
    for (start, row) in starts.iter_mut().zip(rows) {
        assert!(row.len() >= width);
        *start = row.as_ptr();
    }
    // SAFETY: each row has `width` elements, as just checked, and `out` is borrowed exclusively.
    simd.vectorize(unsafe { PackRows::new(&starts[..rows.len()], width, out) });
}

/// Rotates packed tokens whose indices in their window are `indices`.
#[inline(always)]
fn rotate<S: Simd>(
    simd: S,
    table: &Rotations<'_>,
    indices: &[usize],
    memory: &mut [&mut [f32]; 2],
    (tokens, rotated): (&mut [f32], usize),
) {
    for (which, memory) in memory.iter_mut().enumerate() {
        let mut rows: [&[f32]; MOST_LANES] = [&[]; MOST_LANES];
        for (row, &index) in rows.iter_mut().zip(indices) {
            *row = table.rows(index)[which];
        }
        pack_rows(simd, &rows[..indices.len()], rows[0].len(), memory);
    }
    let [cos, sin] = memory;
    simd.vectorize(Rotate { rotations: [cos, sin], tokens, rotated });
}

impl Run<'_> {
    /// Vectors that the task's queries fill.
    fn vectors<S: Simd>(&self) -> usize {
        self.job.count.div_ceil(S::LANES)
    }

    /// Positions of the queries of one vector, and their number.
    #[inline(always)]
    fn positions<S: Simd>(&self, vector: usize) -> ([[usize; 2]; MOST_LANES], usize) {
        let first = vector * S::LANES;
        let count = S::LANES.min(self.job.count - first);
        let mut positions = [[0; 2]; MOST_LANES];
        for (lane, position) in positions.iter_mut().enumerate().take(count) {
            *position = self.job.queries.position(self.job.first + first + lane);
        }
        (positions, count)
    }

    /// Packs, rotates and scales the queries, and forgets what the panels' state was.
    #[inline(always)]
    fn pack_queries<S: Simd>(&mut self, simd: S) {
        let width = self.plan.width;
        let stride = width.next_multiple_of(S::LANES) * S::LANES;
        for vector in 0..self.vectors::<S>() {
            let (positions, count) = self.positions::<S>(vector);
            let mut rows: [&[f32]; MOST_LANES] = [&[]; MOST_LANES];
            let mut indices = [0; MOST_LANES];
            for lane in 0..count {
                let token = query_token(&self.job.queries, positions[lane]);
                rows[lane] = self.operands.query.row(self.job.place, token);
                indices[lane] = self.job.queries.index(positions[lane]);
            }
            let packed = &mut self.scratch.queries[vector * stride..][..stride];
            pack_rows(simd, &rows[..count], width, packed);
            if let Some([table, _]) = &self.operands.rope {
                let memory = &mut self.scratch.rotations;
                let tokens = &mut packed[..width * S::LANES];
                rotate(simd, table, &indices[..count], memory, (tokens, count));
            }
            simd.vectorize(Scale { factor: self.plan.scale, values: packed });
        }
        self.scratch.largest.fill(f32::NEG_INFINITY);
        self.scratch.sums.fill(0.0);
    }

    /// Packs the biases of the rows and columns of a span, in powers of two.
    #[inline(always)]
    fn pack_bias<S: Simd>(&mut self, simd: S, span: &Span) {
        let (Some(bias), Some(lines)) = (self.plan.bias, self.operands.bias) else { return };
        let lengths = bias.lengths.map(|length| length.next_multiple_of(S::LANES) * S::LANES);
        let stride = lengths[0] + lengths[1];
        for vector in 0..self.vectors::<S>() {
            let (positions, count) = self.positions::<S>(vector);
            let tables = &mut self.scratch.bias[vector * stride..][..stride];
            let (row_table, column_table) = tables.split_at_mut(lengths[0]);
            for (axis, table) in [row_table, column_table].into_iter().enumerate() {
                let range = [&span.rows, &span.columns][axis].clone();
                let mut rows: [&[f32]; MOST_LANES] = [&[]; MOST_LANES];
                for lane in 0..count {
                    let token = query_token(&self.job.queries, positions[lane]);
                    let shift = match bias.form {
                        BiasForm::Absolute => 0,
                        BiasForm::Relative => bias.grid[axis] - 1 - positions[lane][axis],
                    };
                    let line = lines[axis].line(self.job.place, token);
                    rows[lane] = &line[shift + range.start..shift + range.end];
                }
                pack_rows(simd, &rows[..count], range.len(), table);
                simd.vectorize(Scale { factor: std::f32::consts::LOG2_E, values: table });
            }
        }
    }

    /// Goes through the keys, block after block, with all panels.
    #[inline(always)]
    fn meet_keys<S: Simd>(&mut self, simd: S) {
        let mut block = KeyBlock::new();
        let mut index = 0;
        while index < self.job.keys.positions() {
            let span = Span::new(self.plan, &self.job, index);
            if self.plan.bias.is_some_and(|bias| index == 0 || !bias.is_whole()) {
                self.pack_bias(simd, &span);
            }
            block.gather(self.plan, &self.job, self.operands, &span);
            index = span.indices.end;
            if block.count == 0 {
                continue;
            }
            if self.plan.packing == Packing::Packed {
                self.pack_keys(simd, &block);
                // SAFETY: the block's values have so many readable elements, in the inputs.
                let pack = unsafe {
                    PackValues::new(block.values(), self.plan.value_width, self.scratch.values)
                };
                simd.vectorize(pack);
            }
            let panels = self.vectors::<S>().div_ceil(self.plan.panel_vectors);
            for panel in 0..panels {
                self.meet_block(simd, panel, &block);
            }
        }
    }

    /// Packs and rotates the keys of a block.
    #[inline(always)]
    fn pack_keys<S: Simd>(&mut self, simd: S, block: &KeyBlock) {
        let width = self.plan.width;
        let stride = width.next_multiple_of(S::LANES) * S::LANES;
        let groups = block.keys().chunks(S::LANES).zip(self.scratch.keys.chunks_exact_mut(stride));
        for (group, (rows, packed)) in groups.enumerate() {
            // SAFETY: the block's keys have `width` readable elements, in the inputs.
            simd.vectorize(unsafe { PackRows::new(rows, width, packed) });
            let first = group * S::LANES;
            let rotated = block.rotated.saturating_sub(first).min(rows.len());
            if let Some([_, table]) = &self.operands.rope
                && rotated > 0
            {
                let mut indices = [0; MOST_LANES];
                for (index, &of_key) in indices.iter_mut().zip(&block.indices[first..]) {
                    *index = of_key as usize;
                }
                let tokens = &mut packed[..width * S::LANES];
                let memory = &mut self.scratch.rotations;
                rotate(simd, table, &indices[..rotated], memory, (tokens, rotated));
            }
        }
    }

    /// Lets one panel meet a block.
    #[inline(always)]
    fn meet_block<S: Simd>(&mut self, simd: S, panel: usize, block: &KeyBlock) {
        let first = panel * self.plan.panel_vectors;
        let vectors = self.plan.panel_vectors.min(self.vectors::<S>() - first);
        let first_query = self.job.first + first * S::LANES;
        let last_key = self.plan.causal.map(|more_keys| first_query + more_keys);
        let panel_last = last_key.map(|last| last + vectors * S::LANES - 1);
        if panel_last.is_some_and(|last| block.indices[0] as usize > last) {
            return;
        }
        match vectors {
            1 => self.step::<S, 1>(simd, panel, last_key, block),
            2 => self.step::<S, 2>(simd, panel, last_key, block),
            _ => self.step::<S, 3>(simd, panel, last_key, block),
        }
        self.started[panel] = true;
    }

    #[inline(always)]
    fn step<S: Simd, const VECTORS: usize>(
        &mut self,
        simd: S,
        panel: usize,
        last_key: Option<usize>,
        block: &KeyBlock,
    ) {
        let plan = self.plan;
        let first = panel * plan.panel_vectors;
        let padded = |length: usize| length.next_multiple_of(S::LANES) * S::LANES;
        let bias: usize = plan.bias.map_or(0, |bias| bias.lengths.map(padded).iter().sum());
        let (width, value_width) = (padded(plan.width), padded(plan.value_width));
        let scratch = &mut self.scratch;
        simd.vectorize(PanelStep::<VECTORS> {
            plan,
            block,
            queries: &scratch.queries[first * width..][..VECTORS * width],
            keys: scratch.keys,
            values: scratch.values,
            bias: &scratch.bias[first * bias..][..VECTORS * bias],
            last_key,
            state: PanelState {
                outputs: &mut scratch.outputs[first * value_width..][..VECTORS * value_width],
                started: self.started[panel],
                largest: &mut scratch.largest[first * S::LANES..][..VECTORS * S::LANES],
                sums: &mut scratch.sums[first * S::LANES..][..VECTORS * S::LANES],
                scores: scratch.scores,
            },
        });
    }

    /// Divides by the sums of the weights and writes the output.
    #[inline(always)]
    fn write<S: Simd>(&mut self, simd: S) {
        let stride = self.plan.value_width.next_multiple_of(S::LANES) * S::LANES;
        for vector in 0..self.vectors::<S>() {
            let (positions, count) = self.positions::<S>(vector);
            let mut starts = [0; MOST_LANES];
            for lane in 0..count {
                let token = query_token(&self.job.queries, positions[lane]);
                let row = token * self.plan.heads + self.job.place.head;
                starts[lane] =
                    self.job.place.image * self.image_stride + row * self.plan.value_width;
            }
            let met = self.started[vector / self.plan.panel_vectors];
            let sums = &self.scratch.sums[vector * S::LANES..][..S::LANES];
            simd.vectorize(WriteVector {
                outputs: met.then_some(&self.scratch.outputs[vector * stride..][..stride]),
                sums,
                width: self.plan.value_width,
                starts: &starts[..count],
                target: self.output,
            });
        }
    }
}

/// The token of a query.
fn query_token(region: &Region, position: [usize; 2]) -> usize {
    region.token(position).expect("queries lie inside their grid")
}

/// Writes the outputs of one vector of queries.
struct WriteVector<'a> {
    /// `[padded width][LANES]`; none where no key was met.
    outputs: Option<&'a [f32]>,
    /// Sums of the weights, `[LANES]`.
    sums: &'a [f32],
    width: usize,
    /// Where each query's channels start in the target.
    starts: &'a [usize],
    target: &'a SharedSlice<f32>,
}

impl Kernel for WriteVector<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let inverse = simd.div(simd.splat(1.0), simd.load(self.sums));
        let mut scaled = [f32::NAN; MOST_LANES * MOST_LANES];
        let mut turned = [0.0; MOST_LANES * MOST_LANES];
        for channel in (0..self.width).step_by(S::LANES) {
            if let Some(outputs) = self.outputs {
                let outputs = &outputs[channel * S::LANES..][..S::LANES * S::LANES];
                let targets = scaled.chunks_exact_mut(S::LANES);
                for (output, target) in outputs.chunks_exact(S::LANES).zip(targets) {
                    simd.store(simd.mul(simd.load(output), inverse), target);
                }
            }
            let mut rows = [std::ptr::null(); MOST_LANES];
            for (row, scaled) in rows.iter_mut().zip(scaled.chunks_exact(S::LANES)) {
                *row = scaled.as_ptr();
            }
            let out = turned.as_mut_ptr();
            let block =
                Interleave { rows: &rows[..S::LANES], column: 0, panel_rows: S::LANES, out };
            // SAFETY: `scaled` has `LANES` rows of `LANES` elements, and `turned` as many.
            unsafe { simd.interleave(block) };
            let count = S::LANES.min(self.width - channel);
            for (&start, row) in self.starts.iter().zip(turned.chunks_exact(S::LANES)) {
                // SAFETY: each query of each head belongs to one task, which writes it here only.
                let target = unsafe { self.target.part(start + channel, count) };
                simd.store_partial(simd.load(row), target);
            }
        }
    }
}
