//! Attention that streams over the keys: the matrix of queries by keys is never materialised.
//!
//! 1. The queries of each window and head are split into tasks, by shape alone (`plan`).
//! 2. A task packs its queries, scaled and rotated, into the lanes of vectors, and its biases likewise (`pack`).
//! 3. It goes through the keys and values of its window in blocks (`keys`), packed once for all its queries. For each panel of a
//!    few vectors of queries (`panel`) it computes scores in registers (`tile`), weights relative to the largest score so far
//!    (`softmax`), and weighted values in registers, which are added to the sums of earlier blocks.
//! 4. At the end it divides by the sums of the weights and writes its outputs.
//!
//! If that makes too few tasks, the keys of each task are divided into parts, whose partial results are merged (`merge`).
//!
//! Scores are base-2 logarithms of the weights: the factor log2(e) is part of the scale of queries and biases.
//!
//! In bf16 (`half`) a task copies queries, keys and values rounded, keeps scores, sums and outputs in `f32`, and rounds the weights
//! where they are multiplied in pairs. In int8 (`bytes`) it copies all three as bytes with scales, and weights become bytes block by block.

mod bytes;
mod copies;
mod grid;
mod half;
mod keys;
mod merge;
mod numbers;
mod on_tiles;
mod operands;
mod pack;
mod panel;
mod plan;
mod scratch;
mod softmax;
mod task;
mod tile;
mod write;

use cutout_graph::RunError;
use cutout_graph::ops::{Attention, AttentionInputs};
use cutout_parallel::{Pool, SharedSlice, with_scratch};

use self::numbers::{Bytes, Pair, Single};
use self::operands::Operands;
use self::plan::{Job, Plan, Products};
use self::scratch::Lengths;
use self::task::{Memory, Steps, Task};
use self::write::Target;
use crate::execute::{Execute, Io};
use crate::lower::Site;
use crate::simd::{dispatch, dispatch_dots};

/// An attention of known shape.
pub(crate) struct StreamingAttention {
    /// Position of each input among the op's inputs.
    names: AttentionInputs<usize>,
    plan: Plan,
}

impl StreamingAttention {
    /// The kernel of an op at `site`.
    pub(crate) fn new(op: &Attention, site: &Site<'_>) -> Self {
        let numbers: Vec<usize> = (0..site.inputs.len()).collect();
        let names = op.name_inputs(&numbers).expect("inference counted the inputs");
        let shapes = [0, 1, 2].map(|index| &site.inputs[index].ty.shape);
        StreamingAttention { names, plan: Plan::new(op, shapes, site.arithmetic) }
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
        let run = |jobs: Jobs<'_>, steps: Steps, states: &mut [f32], scratch: &mut [f32]| {
            let Jobs { job, following } = jobs;
            let memory = Memory { states, scratch };
            let task = Task { plan, job, following, operands, target, image_stride, memory, steps };
            match plan.products {
                Products::Single | Products::Rounded => {
                    dispatch(plan.isa, task.of::<Single>());
                }
                Products::Pairs | Products::Tiles | Products::TileTwin => {
                    dispatch_dots(plan.isa, task.of::<Pair>());
                }
                Products::Bytes => dispatch(plan.isa, task.of::<Bytes>()),
            }
        };
        if plan.key_parts == 1 {
            in_groups(plan, io.pool, &run);
        } else {
            in_parts(plan, io.pool, &run);
        }
        Ok(())
    }
}

/// A job, and the job that the same thread runs next.
struct Jobs<'a> {
    job: Job,
    following: Option<&'a Job>,
}

/// Runs some steps of a job with its states and scratch memory; see [`Task`].
type RunSteps<'a> = dyn Fn(Jobs<'_>, Steps, &mut [f32], &mut [f32]) + Sync + 'a;

/// Runs tasks that process all their keys, in groups that run one after the other on the same thread.
fn in_groups(plan: &Plan, pool: &Pool, run: &RunSteps<'_>) {
    let (lengths, group) = (Lengths::new(plan), plan.group());
    pool.run_with_scratch(plan.tasks().div_ceil(group), lengths.total(), &|number, memory| {
        let (state, scratch) = memory.split_at_mut(lengths.state());
        let end = plan.tasks().min((number + 1) * group);
        let mut next = plan.job(number * group, 0);
        for task in number * group..end {
            let following = if task + 1 < end { plan.job(task + 1, 0) } else { None };
            if let Some(job) = next {
                let jobs = Jobs { job, following: following.as_ref() };
                run(jobs, Steps::All, state, scratch);
            }
            next = following;
        }
    });
}

/// Runs tasks whose keys are divided into parts: first all parts, then the merge of each task.
fn in_parts(plan: &Plan, pool: &Pool, run: &RunSteps<'_>) {
    let (lengths, parts) = (Lengths::new(plan), plan.key_parts);
    let length = lengths.state();
    with_scratch(plan.tasks() * parts * length, |states| {
        let states = &SharedSlice::new(states);
        pool.run_with_scratch(plan.tasks() * parts, lengths.work(), &|number, scratch| {
            // SAFETY: each part of each task has a state of its own, and `states` is borrowed until all are done.
            let state = unsafe { states.part(number * length, length) };
            if let Some(job) = plan.job(number / parts, number % parts) {
                run(Jobs { job, following: None }, Steps::Accumulate, state, scratch);
            }
        });
        pool.run(plan.tasks(), &|task| {
            // SAFETY: the states of each task are its own, and no part is under way any more.
            let states = unsafe { states.part(task * parts * length, parts * length) };
            if let Some(job) = plan.job(task, 0) {
                run(Jobs { job, following: None }, Steps::Merge, states, &mut []);
            }
        });
    });
}

#[cfg(test)]
mod tests;
