//! Small whole models: weights, inputs and the stages that another implementation computed.
//!
//! A stage file is a safetensors file with `weight/<path>`, and for each run `<run>/input/<name>` and
//! `<run>/stage/<number>/<name>`, the numbers in the order of computation.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use cutout_graph::{Backend, Graph, Named, Profile, Weights, interpret};
use cutout_tensor::{Tensor, Tolerance, compare};

use crate::fixtures::{FixtureError, read_tensors};

/// A small model and the expected value of each stage.
pub struct StageFile {
    tensors: BTreeMap<String, Tensor>,
    /// Metadata of the file.
    pub metadata: HashMap<String, String>,
}

impl StageFile {
    /// Reads a file below `fixtures/`.
    pub fn load(name: &str) -> Result<Self, FixtureError> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
        let (tensors, metadata) = read_tensors(&path)?;
        Ok(StageFile { tensors: tensors.into_iter().collect(), metadata })
    }

    /// The model's weights.
    pub fn weights(&self) -> Weights {
        Weights::new(self.below("weight/").into_iter().collect())
    }

    /// The inputs of a run.
    pub fn inputs(&self, run: &str) -> Vec<Named> {
        self.below(&format!("{run}/input/"))
    }

    /// One stage of a run.
    pub fn stage(&self, run: &str, name: &str) -> Option<Tensor> {
        self.stages(run).into_iter().find(|(stage, _)| stage == name).map(|(_, tensor)| tensor)
    }

    /// The stages of a run, in the order of computation.
    pub fn stages(&self, run: &str) -> Vec<Named> {
        let without_number =
            |(name, tensor): Named| name.split_once('/').map(|(_, name)| (name.to_owned(), tensor));
        self.below(&format!("{run}/stage/")).into_iter().filter_map(without_number).collect()
    }

    /// A tensor that is neither a weight nor part of a run, by its full name.
    pub fn tensor(&self, name: &str) -> Option<Tensor> {
        self.tensors.get(name).cloned()
    }

    /// Tensors whose names start with `prefix`, in order, without it.
    fn below(&self, prefix: &str) -> Vec<Named> {
        let rest = |(name, tensor): (&String, &Tensor)| {
            name.strip_prefix(prefix).map(|rest| (rest.to_owned(), tensor.clone()))
        };
        self.tensors.iter().filter_map(rest).collect()
    }
}

/// Compares the outputs of a program with the expected stages. The error is a table of all stages that names the first
/// one outside tolerance and those that are missing.
pub fn compare_stages(
    actual: &[Named],
    expected: &[Named],
    tolerance: Tolerance,
) -> Result<(), String> {
    let mut table = String::new();
    let mut first = None;
    for (name, expected) in expected {
        let line = match actual.iter().find(|(stage, _)| stage == name) {
            None => Err("is not among the outputs".to_owned()),
            Some((_, actual)) => match compare(actual, expected, tolerance) {
                Err(error) => Err(error.to_string()),
                Ok(difference) if difference.within => Ok(difference.to_string()),
                Ok(difference) => Err(difference.to_string()),
            },
        };
        if line.is_err() && first.is_none() {
            first = Some(name);
        }
        let (mark, text) = match line {
            Ok(text) => ("  ", text),
            Err(text) => ("! ", text),
        };
        writeln!(table, "{mark}{name}: {text}").expect("a string grows");
    }
    match first {
        None if expected.is_empty() => {
            Err("no stage is expected: the run does not exist".to_owned())
        }
        None => Ok(()),
        Some(name) => Err(format!("{name} is the first stage outside tolerance\n{table}")),
    }
}

/// Compares what a graph gives with the expected stages: by the interpreter, and compiled for each backend. Gives the
/// outputs of the last backend. `values` may hold more than the graph takes; an input takes the value of its name, or of the
/// end of its name behind a dot.
pub fn check_graph(
    graph: &Graph,
    weights: &Weights,
    values: &[Named],
    expected: &[Named],
    backends: &[Arc<dyn Backend>],
) -> Result<Vec<Named>, String> {
    let inputs = graph.inputs().map(|(name, _)| Ok((name, value_of(name, values)?)));
    let inputs = inputs.collect::<Result<Vec<(&str, &Tensor)>, String>>()?;
    let mut outputs = interpret(graph, weights, &inputs).map_err(|error| error.to_string())?;
    compare_stages(&outputs, expected, Tolerance::Stage)
        .map_err(|report| format!("interpreted: {report}"))?;
    for backend in backends {
        let name = backend.name();
        let program = backend.compile(graph, weights, &Profile::default());
        let program = program.map_err(|error| format!("{name}: {error}"))?;
        outputs = program.run_named(&inputs).map_err(|error| format!("{name}: {error}"))?;
        compare_stages(&outputs, expected, Tolerance::Stage)
            .map_err(|report| format!("{name}: {report}"))?;
    }
    Ok(outputs)
}

fn value_of<'a>(input: &str, values: &'a [Named]) -> Result<&'a Tensor, String> {
    let exact = values.iter().find(|(name, _)| name == input);
    let ends = |name: &str| input.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    let found = exact.or_else(|| values.iter().find(|(name, _)| ends(name)));
    found.map(|(_, tensor)| tensor).ok_or_else(|| format!("there is no value for {input}"))
}
