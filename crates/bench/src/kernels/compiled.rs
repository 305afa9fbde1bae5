//! Kernels measured through a compiled graph: inputs in memory, weights packed, activations in the arena.

use std::cell::RefCell;
use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use cutout_graph::{
    Backend, Builder, Graph, Kind, Precision, Profile, Program, Value, Weights, interpret_in,
};
use cutout_tensor::{Shape, Tensor};

use crate::bench::Bench;
use crate::contest::Contest;
use crate::goal::Goal;
use crate::kernels::Task;
use crate::noise;
use crate::outcome::{Outcome, Role, Unit};

/// Below this share of the multiply-add ceiling a kernel is not measured: it would take minutes.
const SLOWEST_KERNEL: f64 = 0.02;

/// A kernel on a shape, compiled from a graph with the output `y`.
#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) kernel: &'static str,
    pub(crate) shape: String,
    /// GFLOP/s beside the multiply-add ceiling, or GB/s beside the copy ceiling.
    pub(crate) unit: Unit,
    pub(crate) goal: Goal,
    /// The axis of `y` along which an excerpt is taken.
    pub(crate) axis: usize,
    /// Length of that axis in the whole output, and in the excerpt that is compared with the definition.
    pub(crate) whole: usize,
    pub(crate) excerpt: usize,
    /// Builds the graph for a length of that axis.
    pub(crate) build: fn(usize) -> Result<Model>,
}

/// A graph with its weights and inputs.
pub(crate) struct Model {
    pub(crate) graph: Graph,
    pub(crate) weights: Weights,
    pub(crate) inputs: Vec<(String, Tensor)>,
}

/// Collects a graph together with random weights and inputs.
#[derive(Default)]
pub(crate) struct ModelBuilder {
    tensors: RefCell<Vec<(String, Tensor)>>,
    weights: RefCell<HashMap<String, Tensor>>,
    pub(crate) graph: Builder,
}

impl ModelBuilder {
    /// A random run-time input.
    pub(crate) fn input(&self, name: &str, shape: impl Into<Shape>) -> Result<Value<'_>> {
        Ok(self.given_input(name, noise::tensor(seed(name), shape)?))
    }

    /// A given run-time input.
    pub(crate) fn given_input(&self, name: &str, tensor: Tensor) -> Value<'_> {
        let value = self.graph.input(name, tensor.dtype(), tensor.shape().clone());
        self.tensors.borrow_mut().push((name.to_owned(), tensor));
        value
    }

    /// A random weight.
    pub(crate) fn weight(&self, name: &str, shape: impl Into<Shape>) -> Result<Value<'_>> {
        let shape = shape.into();
        let tensor = noise::tensor(seed(name), shape.clone())?;
        self.weights.borrow_mut().insert(name.to_owned(), tensor);
        Ok(self.graph.weights().parameter(name, shape))
    }

    /// Makes the first rows of a value the output `y`, so that the value as a whole lies in the arena, as between the layers of a
    /// model. A large output of its own would be measured with the system's clearing of its pages.
    pub(crate) fn output_rows(&self, value: Value<'_>, rows: usize) {
        self.graph.output("y", value.slice(0, 0..rows));
    }

    pub(crate) fn finish(self) -> Result<Model> {
        Ok(Model {
            graph: self.graph.finish()?,
            weights: Weights::new(self.weights.into_inner()),
            inputs: self.tensors.into_inner(),
        })
    }
}

/// A seed for the noise of a named tensor.
fn seed(name: &str) -> u64 {
    name.bytes().fold(7, |seed, byte| seed * 31 % 1_000_003 + u64::from(byte))
}

/// A model compiled, with its inputs.
pub(crate) struct Compiled {
    pub(crate) program: Box<dyn Program>,
    inputs: Vec<(String, Tensor)>,
}

impl Compiled {
    pub(crate) fn new(bench: &Bench, model: &Model) -> Result<Compiled> {
        Compiled::in_precision(bench, model, Precision::F32)
    }

    pub(crate) fn in_precision(
        bench: &Bench,
        model: &Model,
        precision: Precision,
    ) -> Result<Compiled> {
        let profile = Profile { precision, ..Profile::default() };
        let program = bench.cpu.compile(&model.graph, &model.weights, &profile)?;
        Ok(Compiled { program, inputs: model.inputs.clone() })
    }

    /// The output, and the seconds that its kernels took, without the overhead of the run.
    pub(crate) fn run(&self) -> Result<(Tensor, f64)> {
        let inputs: Vec<(&str, &Tensor)> =
            self.inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let (outputs, times) = self.program.run_named_timed(&inputs)?;
        let (_, output) = outputs.into_iter().next().context("the graph has an output")?;
        Ok((output, times.iter().map(|step| step.time.as_secs_f64()).sum()))
    }
}

impl Model {
    /// Operations, or bytes of the inputs and the result, of one run.
    pub(crate) fn work(&self, unit: Unit) -> f64 {
        let ops = self.graph.iter().filter(|(_, node)| matches!(node.kind, Kind::Op(_)));
        let work = |(id, _)| {
            let cost = self.graph.cost(id);
            match unit {
                Unit::Gflops | Unit::Gops | Unit::Milliseconds => cost.flops as f64,
                Unit::Gbps => cost.bytes as f64,
            }
        };
        ops.map(work).sum()
    }

    /// The output by the ops' plain definitions in double precision.
    fn defined(&self) -> Result<Tensor> {
        let inputs: Vec<(&str, &Tensor)> =
            self.inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let outputs = interpret_in::<f64>(&self.graph, &self.weights, &inputs)?;
        Ok(outputs.into_iter().next().context("the graph has an output")?.1)
    }
}

pub(crate) fn task(scenario: Scenario) -> Task {
    let (kernel, shape) = (scenario.kernel, scenario.shape.clone());
    Task { kernel, shape, run: Box::new(move |bench| measure(bench, &scenario)) }
}

fn measure(bench: &Bench, scenario: &Scenario) -> Result<Outcome> {
    let excerpt = (scenario.build)(scenario.excerpt)?;
    let model = (scenario.build)(scenario.whole)?;
    let contest = Contest {
        kernel: scenario.kernel,
        shape: scenario.shape.clone(),
        unit: scenario.unit,
        work: model.work(scenario.unit),
        goal: scenario.goal,
    };
    // Memory-bound ops finish soon even without a fast kernel.
    let missing = match scenario.unit {
        Unit::Gbps => None,
        Unit::Gflops | Unit::Gops | Unit::Milliseconds => missing_kernel(bench, &excerpt)?,
    };
    if missing.is_some() {
        return Ok(contest.skipped(missing));
    }
    let compiled = Compiled::new(bench, &model)?;
    let (output, _) = compiled.run()?;
    let error = excerpt_error(&excerpt, &output, scenario.axis)?;
    drop(output);
    let call = || Ok(compiled.run()?.1);
    let contestants = vec![
        contest.ceiling(|| match scenario.unit {
            Unit::Gflops | Unit::Gops | Unit::Milliseconds => bench.multiply_add(),
            Unit::Gbps => bench.copy(),
        }),
        contest.timed("cutout", Role::Ours, error, call),
    ];
    let outcome = contest.run(contestants, &bench.budget, &bench.progress)?;
    Ok(Outcome { arena_bytes: Some(compiled.program.activation_bytes()), ..outcome })
}

/// Why a model is too slow to be measured, judged by an excerpt of it.
pub(crate) fn missing_kernel(bench: &Bench, excerpt: &Model) -> Result<Option<String>> {
    let compiled = Compiled::new(bench, excerpt)?;
    compiled.run()?;
    let rate = excerpt.work(Unit::Gflops) / compiled.run()?.1 / 1e9;
    let needed = SLOWEST_KERNEL * bench.multiply_add();
    Ok((rate < needed)
        .then(|| format!("runs its plain definition ({rate:.1} GFLOP/s on an excerpt)")))
}

/// Largest difference between the start of the output and the definition, relative to the largest element.
pub(crate) fn excerpt_error(excerpt: &Model, output: &Tensor, axis: usize) -> Result<f64> {
    let defined = excerpt.defined()?;
    let beginning = output.slice(axis, 0..defined.shape()[axis])?;
    ensure!(defined.ty() == beginning.ty(), "{} is not {}", beginning.ty(), defined.ty());
    noise::relative_error(&defined.to_vec::<f32>()?, &beginning.to_vec::<f32>()?)
}
