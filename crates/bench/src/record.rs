//! Machine-readable records of a run.

use serde::Serialize;

use crate::bench::Ceilings;
use crate::goal::Goal;
use crate::outcome::{Entry, Outcome, Role, Unit};
use crate::statistics::{median, spread};

/// One implementation of one kernel on one shape. `implementation` is `ceiling` for the machine's ceiling.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Record {
    pub(crate) kernel: String,
    pub(crate) shape: String,
    pub(crate) implementation: String,
    pub(crate) threads: usize,
    /// 10^9 operations per second; null for kernels that are measured in bytes or in time.
    pub(crate) median_gflops: Option<f64>,
    /// 10^9 bytes per second, read and written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) median_gbps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) median_ms: Option<f64>,
    /// Interquartile range as a share of the median.
    pub(crate) spread: f64,
    pub(crate) rounds: usize,
    /// Number of these rounds in which other processes ran, so that the rates are too low.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) disturbed_rounds: usize,
    /// Median over rounds of the ratio of this implementation's rate to the ceiling's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) share_of_ceiling: Option<f64>,
    /// Median over rounds of the ratio of our rate to the best rival's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lead: Option<f64>,
    /// Median over rounds of the ratio of our rate to that of our kernel in single precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) times_f32: Option<f64>,
    /// Largest difference from our result (ours: from the definition), relative to the largest element.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_relative_error: Option<f64>,
    /// Bytes of activations of our program, its result included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arena_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goal_met: Option<bool>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The records of a run: first the ceilings over the whole run, then every kernel with the ceiling of its own rounds.
pub(crate) fn records(outcomes: &[Outcome], ceilings: &Ceilings, threads: usize) -> Vec<Record> {
    let whole = [
        ("fma", Unit::Gflops, &ceilings.multiply_add),
        ("dot_bf16", Unit::Gflops, &ceilings.half_dot),
        ("dot_int8", Unit::Gops, &ceilings.dot),
        ("copy", Unit::Gbps, &ceilings.copy),
    ];
    let measured = whole.into_iter().filter(|(_, _, samples)| !samples.is_empty());
    let ceilings = measured.map(|(kernel, unit, samples)| Record {
        kernel: kernel.to_owned(),
        ..Record::new("whole run", "ceiling", (unit, samples), threads)
    });
    let kernels = outcomes.iter().flat_map(|outcome| {
        outcome.entries.iter().map(move |entry| of_entry(outcome, entry, threads))
    });
    ceilings.chain(kernels).collect()
}

fn of_entry(outcome: &Outcome, entry: &Entry, threads: usize) -> Record {
    let samples = (outcome.unit, &entry.samples[..]);
    let ours = entry.role == Role::Ours;
    let goal = (ours && outcome.goal != Goal::None).then(|| outcome.goal.to_string());
    Record {
        kernel: outcome.kernel.to_owned(),
        disturbed_rounds: outcome.disturbed,
        share_of_ceiling: outcome.share_of_ceiling(entry),
        lead: outcome.lead().filter(|_| ours),
        times_f32: outcome.times_float().filter(|_| ours),
        max_relative_error: entry.error,
        arena_bytes: outcome.arena_bytes.filter(|_| ours),
        goal,
        goal_met: outcome.goal.is_met(outcome).filter(|_| ours),
        ..Record::new(&outcome.shape, &entry.implementation, samples, threads)
    }
}

impl Record {
    fn new(shape: &str, implementation: &str, samples: (Unit, &[f64]), threads: usize) -> Record {
        let (unit, samples) = samples;
        let in_unit = |wanted: Unit| (unit == wanted).then(|| median(samples));
        Record {
            kernel: String::new(),
            shape: shape.to_owned(),
            implementation: implementation.to_owned(),
            threads,
            median_gflops: in_unit(Unit::Gflops).or(in_unit(Unit::Gops)),
            median_gbps: in_unit(Unit::Gbps),
            median_ms: in_unit(Unit::Milliseconds),
            spread: spread(samples),
            rounds: samples.len(),
            disturbed_rounds: 0,
            share_of_ceiling: None,
            lead: None,
            times_f32: None,
            max_relative_error: None,
            arena_bytes: None,
            goal: None,
            goal_met: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::outcome::tests::sample;

    #[test]
    fn records_have_the_fields_of_the_contract() {
        let ceilings = Ceilings { copy: vec![20.0], ..Ceilings::default() };
        let records = records(&[sample(90.0, 60.0, Goal::ShareAndLead(0.8))], &ceilings, 2);
        let values = serde_json::to_value(&records).unwrap();
        assert_eq!(
            values[0],
            json!({
                "kernel": "copy", "shape": "whole run", "implementation": "ceiling", "threads": 2,
                "median_gflops": null, "median_gbps": 20.0, "spread": 0.0, "rounds": 1,
            })
        );
        assert_eq!(
            values[1],
            json!({
                "kernel": "gemm_f32", "shape": "4096x768x2304", "implementation": "ceiling",
                "threads": 2, "median_gflops": 100.0, "spread": 0.25, "rounds": 3,
            })
        );
        assert_eq!(
            values[2],
            json!({
                "kernel": "gemm_f32", "shape": "4096x768x2304", "implementation": "cutout",
                "threads": 2, "median_gflops": 90.0, "spread": 0.25, "rounds": 3,
                "share_of_ceiling": 0.9, "lead": 1.5, "max_relative_error": 1e-7,
                "goal": "≥ 80 %, ahead of all", "goal_met": true,
            })
        );
        assert_eq!(values[3]["implementation"], "faer");
        assert_eq!(values[3].get("goal"), None);
    }
}
