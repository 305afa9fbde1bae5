//! Attention of the models in bf16 and in int8, compared with ours in single precision.

use anyhow::Result;
use cutout_cpu::gemm::HalfUnit;
use cutout_graph::Precision;

use crate::bench::Bench;
use crate::contest::Contest;
use crate::goal::Goal;
use crate::kernels::compiled::{Compiled, Scenario, excerpt_error};
use crate::kernels::{Task, attention};
use crate::outcome::{Outcome, Role, Unit};

/// A precision that attention rounds to.
#[derive(Clone, Copy)]
struct Rounded {
    kernel: &'static str,
    implementation: &'static str,
    precision: Precision,
    unit: Unit,
}

const ROUNDED: [Rounded; 2] = [
    Rounded {
        kernel: "attention_bf16",
        implementation: "cutout bf16",
        precision: Precision::Bf16,
        unit: Unit::Gflops,
    },
    Rounded {
        kernel: "attention_int8",
        implementation: "cutout int8",
        precision: Precision::Int8,
        unit: Unit::Gops,
    },
];

impl Rounded {
    /// Why the ceiling of the products is not known.
    fn missing_ceiling(&self, bench: &Bench) -> Option<String> {
        let half = bench.cpu.half_unit();
        let known = match self.precision {
            Precision::Int8 => bench.cpu.byte_attention(),
            Precision::Auto | Precision::F32 | Precision::F16 | Precision::Bf16 => {
                half == HalfUnit::Dots
            }
        };
        let reason = || format!("no ceiling is known, with bf16 by {}", half.name());
        (!known).then(reason)
    }

    fn measure(&self, bench: &Bench, scenario: &Scenario) -> Result<Outcome> {
        let excerpt = (scenario.build)(scenario.excerpt)?;
        let model = (scenario.build)(scenario.whole)?;
        let contest = Contest {
            kernel: self.kernel,
            shape: scenario.shape.clone(),
            unit: self.unit,
            work: model.work(self.unit),
            goal: Goal::None,
        };
        if let Some(reason) = self.missing_ceiling(bench) {
            return Ok(contest.skipped(Some(reason)));
        }
        let rounded = Compiled::in_precision(bench, &model, self.precision)?;
        let single = Compiled::new(bench, &model)?;
        let error =
            |compiled: &Compiled| excerpt_error(&excerpt, &compiled.run()?.0, scenario.axis);
        let (rounded_error, single_error) = (error(&rounded)?, error(&single)?);
        let call = || Ok(rounded.run()?.1);
        let contestants = vec![
            contest.ceiling(|| match self.unit {
                Unit::Gops => bench.dot(),
                Unit::Gflops | Unit::Gbps | Unit::Milliseconds => bench.half_dot(),
            }),
            contest.timed(self.implementation, Role::Ours, rounded_error, call).rounding_inside(),
            contest.timed("cutout f32", Role::OurFloat, single_error, || Ok(single.run()?.1)),
        ];
        contest.run(contestants, &bench.budget, &bench.progress)
    }
}

/// Every scenario in every precision.
pub(crate) fn tasks() -> Vec<Task> {
    let task = |rounded: Rounded, scenario: Scenario| {
        let (kernel, shape) = (rounded.kernel, scenario.shape.clone());
        Task { kernel, shape, run: Box::new(move |bench| rounded.measure(bench, &scenario)) }
    };
    let tasks = ROUNDED.into_iter().flat_map(|rounded| {
        attention::scenarios().into_iter().map(move |scenario| task(rounded, scenario))
    });
    tasks.collect()
}
