//! Copies a task's queries and biases into the lanes of vectors.

use std::ops::Range;

use cutout_graph::ops::BiasForm;

use super::{Run, Starts, Vector};
use crate::gemm::half_precision::RoundInPlace;
use crate::kernels::attention::bytes::BytePanel;
use crate::kernels::attention::half::PairPanel;
use crate::kernels::attention::keys::Span;
use crate::kernels::attention::operands::{HeadIndex, Lines};
use crate::kernels::attention::pack::{Columns, PackRows, RotateRows, Scale};
use crate::kernels::attention::plan::{Plan, Products};
use crate::simd::{MAX_LANES, Simd};

impl Run<'_> {
    /// Packs, rotates and scales the queries, and resets the state of the panels.
    #[inline(always)]
    pub(super) fn pack_queries<S: Simd>(&mut self, simd: S) {
        for number in 0..self.vectors::<S>() {
            let vector = self.vector::<S>(number);
            for head in 0..self.plan.task_heads {
                self.pack_vector(simd, head, vector);
            }
        }
        self.convert_queries(simd);
        self.state.largest.fill(f32::NEG_INFINITY);
        self.state.sums.fill(0.0);
    }

    /// Replaces packed queries by what the products multiply.
    #[inline(always)]
    fn convert_queries<S: Simd>(&mut self, simd: S) {
        let Plan { width, panel_vectors: most, query_scale: factor, .. } = *self.plan;
        let (vectors, panels) = (self.vectors::<S>(), self.panels::<S>());
        let length = self.panel_length::<S>(width);
        let values = &mut self.scratch.queries[..self.plan.task_heads * panels * length];
        match self.plan.products {
            Products::Single => return simd.vectorize(Scale { factor, values }),
            Products::Rounded => return simd.vectorize(RoundInPlace(values)),
            Products::Bytes | Products::Pairs | Products::Tiles | Products::TileTwin => {}
        }
        for (number, panel) in values.chunks_exact_mut(length).enumerate() {
            let stride = most.min(vectors - number * most) * S::LANES;
            if self.plan.products == Products::Bytes {
                let scales = &mut self.scratch.query_scales[number * most * S::LANES..][..stride];
                simd.vectorize(BytePanel { panel, width, factor, scales });
            } else {
                simd.vectorize(PairPanel { panel: &mut *panel, width, stride });
                // Pairs beyond the last channel, which tiles multiply by zeros: a NaN left here would spread.
                let used = width.div_ceil(2) * stride;
                panel[used..used.max(self.plan.score_steps() * stride)].fill(0.0);
            }
        }
    }

    /// Packs and rotates one vector of queries.
    #[inline(always)]
    fn pack_vector<S: Simd>(&mut self, simd: S, head: usize, vector: Vector) {
        let width = self.plan.width;
        let mut starts: Starts = [std::ptr::null(); MAX_LANES];
        let mut indices = [0; MAX_LANES];
        let index = self.head_index(head);
        let mut positions = self.job.queries.walk(vector.first);
        for lane in 0..vector.count {
            let position = positions.step();
            let token = self.job.queries.token(position);
            starts[lane] = self.operands.query.row(index, token).as_ptr();
            self.fetch_bias(simd, index, token);
            indices[lane] = self.job.queries.index(position) as u32;
        }
        let count = vector.count;
        if let Some([table, _]) = &self.operands.rope {
            let out = &mut *self.scratch.rotated;
            // SAFETY: the queries' rows have `width` elements, in the inputs.
            let rotate =
                unsafe { RotateRows::new(&starts[..count], table, &indices[..count], out) };
            simd.vectorize(rotate);
            for (start, row) in starts.iter_mut().zip(self.scratch.rotated.chunks_exact(width)) {
                *start = row.as_ptr();
            }
        }
        let length = self.panel_length::<S>(width);
        let unit = self.unit::<S>(head, vector.panel);
        let panel = &mut self.scratch.queries[unit * length..][..length];
        let columns = Columns { out: &mut panel[vector.lane..], stride: vector.stride };
        // SAFETY: the queries' rows, or their copies, have `width` elements apart from the packed ones.
        simd.vectorize(unsafe { PackRows::new(&starts[..count], width, columns) });
    }

    /// Prefetches the biases of a query, which are packed when all queries are.
    #[inline(always)]
    fn fetch_bias<S: Simd>(&self, simd: S, head: HeadIndex, token: usize) {
        const LINE: usize = 16;
        if !self.plan.bias.is_some_and(|bias| bias.is_whole()) {
            return;
        }
        for line in self.operands.bias.iter().flatten() {
            for part in line.line(head, token).chunks(LINE) {
                simd.prefetch_second_level(part.as_ptr());
            }
        }
    }

    /// Packs the biases of the rows and columns of a span, scaled by log2(e).
    #[inline(always)]
    pub(super) fn pack_bias<S: Simd>(&mut self, simd: S, span: &Span) {
        let Some(lines) = self.operands.bias else { return };
        for number in 0..self.vectors::<S>() {
            let vector = self.vector::<S>(number);
            for head in 0..self.plan.task_heads {
                self.pack_axis(simd, head, vector, (0, &lines[0], &span.rows));
                self.pack_axis(simd, head, vector, (1, &lines[1], &span.columns));
            }
        }
        let length = self.panel_length::<S>(self.bias_lengths::<S>().iter().sum());
        let used = self.plan.task_heads * self.panels::<S>() * length;
        let values = &mut self.scratch.bias[..used];
        simd.vectorize(Scale { factor: std::f32::consts::LOG2_E, values });
    }

    /// Packs a range of the row biases (axis 0) or column biases (axis 1) of one vector of queries.
    #[inline(always)]
    fn pack_axis<S: Simd>(
        &mut self,
        simd: S,
        head: usize,
        vector: Vector,
        (axis, lines, range): (usize, &Lines<'_>, &Range<usize>),
    ) {
        let Some(bias) = self.plan.bias else { return };
        let mut starts: Starts = [std::ptr::null(); MAX_LANES];
        let mut positions = self.job.queries.walk(vector.first);
        for start in &mut starts[..vector.count] {
            let position = positions.step();
            let shift = match bias.form {
                BiasForm::Absolute => 0,
                BiasForm::Relative => bias.grid[axis] - 1 - position[axis],
            };
            let line = lines.line(self.head_index(head), self.job.queries.token(position));
            *start = line[shift + range.start..shift + range.end].as_ptr();
        }
        let lengths = self.bias_lengths::<S>();
        let length = self.panel_length::<S>(lengths[0] + lengths[1]);
        let unit = self.unit::<S>(head, vector.panel);
        let panel = &mut self.scratch.bias[unit * length..][..length];
        let before = if axis == 0 { 0 } else { lengths[0] * vector.stride };
        let columns = Columns { out: &mut panel[before + vector.lane..], stride: vector.stride };
        // SAFETY: the lines were sliced to the range.
        let pack = unsafe { PackRows::new(&starts[..vector.count], range.len(), columns) };
        simd.vectorize(pack);
    }
}
