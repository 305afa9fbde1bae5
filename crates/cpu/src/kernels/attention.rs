//! Attention that streams over the keys: no tensor of queries by keys exists.
//!
//! 1. The queries of each window and head are cut into tasks, by shape alone (`plan`).
//! 2. A task packs its queries side by side into the lanes of vectors, scaled and rotated, and its biases likewise (`pack`).
//! 3. It takes the keys and values of its window in blocks (`keys`), packs them once for all its queries, and lets one panel of
//!    a few vectors of queries after the other meet them (`panel`): scores in registers (`tile`), weights relative to the
//!    largest score so far (`softmax`), weighted values in registers, added to what earlier blocks left.
//! 4. At the end it divides by the sums of the weights and writes its queries.
//!
//! Scores are kept in powers of two: the factor is part of the scale of queries and biases.

mod grid;
mod keys;
mod operands;
mod pack;
mod panel;
mod plan;
mod scratch;
mod softmax;
mod task;
#[cfg(test)]
mod tests;
mod tile;
mod write;

use cutout_graph::RunError;
use cutout_graph::ops::{Attention, AttentionInputs};

use self::operands::Operands;
use self::plan::Plan;
use self::scratch::Lengths;
use self::task::Task;
use self::write::Target;
use crate::execute::{Execute, Io};
use crate::lower::Site;
use crate::simd::dispatch;

/// An attention of known shape.
pub(crate) struct StreamingAttention {
    /// Number of each input.
    names: AttentionInputs<usize>,
    plan: Plan,
}

impl StreamingAttention {
    /// The kernel of an op at a place in a program.
    pub(crate) fn new(op: &Attention, site: &Site<'_>) -> Self {
        let numbers: Vec<usize> = (0..site.inputs.len()).collect();
        let names = op.name_inputs(&numbers).expect("inference counted the inputs");
        let shapes = [0, 1, 2].map(|index| &site.inputs[index].ty.shape);
        StreamingAttention { names, plan: Plan::new(op, shapes, site.isa) }
    }
}

impl Execute for StreamingAttention {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let plan = &self.plan;
        let operands = &Operands::new(&self.names, &io.inputs, plan.heads);
        let output = io.output.f32();
        let image_stride = output.len() / plan.batch.max(1);
        // SAFETY: the output is borrowed until the tasks are done, and each query of each head belongs to one of them.
        let target = unsafe { Target::new(output) };
        io.pool.run_with_scratch(plan.tasks(), Lengths::new(plan).total(), &|number, scratch| {
            if let Some(job) = plan.job(number) {
                dispatch(plan.isa, Task { plan, job, operands, target, image_stride, scratch });
            }
        });
        Ok(())
    }
}
