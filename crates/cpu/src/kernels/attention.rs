//! Attention that streams over the keys: no tensor of queries by keys exists.
//!
//! 1. The queries of each window and head are cut into tasks, by shape alone (`plan`).
//! 2. A task packs its queries side by side into the lanes of vectors, scaled and rotated, and its biases likewise (`pack`).
//! 3. It takes the keys and values of its window in blocks (`keys`), packs them once for all its queries, and lets one panel of
//!    a few vectors of queries after the other meet them (`panel`): scores in registers (`tile`), weights relative to the
//!    largest score so far (`softmax`), weighted values in registers, added to what earlier blocks left.
//! 4. At the end it divides by the sums of the weights and writes its queries.
//!
//! Where that makes too few tasks, the keys of each are divided among several, and what they leave behind is joined (`join`).
//!
//! Scores are kept in powers of two: the factor is part of the scale of queries and biases.

mod grid;
mod join;
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
use cutout_parallel::{Pool, SharedSlice, with_scratch};

use self::operands::Operands;
use self::plan::{Job, Plan};
use self::scratch::Lengths;
use self::task::{Memory, Steps, Task};
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
        let run = |jobs: Jobs<'_>, steps: Steps, states: &mut [f32], scratch: &mut [f32]| {
            let Jobs { job, following } = jobs;
            let memory = Memory { states, scratch };
            let task = Task { plan, job, following, operands, target, image_stride, memory, steps };
            dispatch(plan.isa, task);
        };
        if plan.key_parts == 1 {
            in_groups(plan, io.pool, &run);
        } else {
            in_parts(plan, io.pool, &run);
        }
        Ok(())
    }
}

/// A job, and the one that the same thread does next.
struct Jobs<'a> {
    job: Job,
    following: Option<&'a Job>,
}

/// Runs some steps of a job in its states and its scratch memory; see [`Task`].
type RunSteps<'a> = dyn Fn(Jobs<'_>, Steps, &mut [f32], &mut [f32]) + Sync + 'a;

/// Runs tasks that meet all their keys, some of them one after the other on the same thread.
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

/// Runs tasks whose keys are divided: all parts, then what joins them.
fn in_parts(plan: &Plan, pool: &Pool, run: &RunSteps<'_>) {
    let (lengths, parts) = (Lengths::new(plan), plan.key_parts);
    let length = lengths.state();
    with_scratch(plan.tasks() * parts * length, |states| {
        let states = &SharedSlice::new(states);
        pool.run_with_scratch(plan.tasks() * parts, lengths.work(), &|number, scratch| {
            // SAFETY: each part of each task has a state of its own, and `states` is borrowed until all are done.
            let state = unsafe { states.part(number * length, length) };
            if let Some(job) = plan.job(number / parts, number % parts) {
                run(Jobs { job, following: None }, Steps::Meet, state, scratch);
            }
        });
        pool.run(plan.tasks(), &|task| {
            // SAFETY: the states of each task are its own, and no part is under way any more.
            let states = unsafe { states.part(task * parts * length, parts * length) };
            if let Some(job) = plan.job(task, 0) {
                run(Jobs { job, following: None }, Steps::Join, states, &mut []);
            }
        });
    });
}
