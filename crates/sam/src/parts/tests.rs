//! Every part of small random models, stage by stage, against Meta's own modules: by the interpreter and on every backend.

mod multiplex;
mod sam1;
mod sam2;
mod sam3;
mod sam3_memory;

use cutout_graph::{Graph, Named, Weights};
use cutout_tensor::Tensor;
use cutout_testing::{StageFile, check_graph};

use crate::device;
use crate::model::config::ModelConfig;
use crate::model::part::{Part, Stages, graph_of};

/// Compares the stages of a part with those expected; returns the outputs.
fn check<P: Part>(
    part: &P,
    config: &ModelConfig,
    weights: &Weights,
    values: &[Named],
    expected: &[Named],
) -> Vec<Named> {
    let (graph, _) = graph_of(part, config, Stages::Shown).unwrap();
    check_stages(&graph, weights, values, expected, &format!("{part:?}"))
}

fn check_stages(
    graph: &Graph,
    weights: &Weights,
    values: &[Named],
    expected: &[Named],
    what: &str,
) -> Vec<Named> {
    assert!(!expected.is_empty(), "{what}: the fixture has no stages");
    let checked = check_graph(graph, weights, values, expected, &device::backends(2));
    checked.unwrap_or_else(|report| panic!("{what}, {report}"))
}

fn named<'a>(tensors: &'a [Named], name: &str) -> Option<&'a Tensor> {
    tensors.iter().find(|(other, _)| other == name).map(|(_, tensor)| tensor)
}

/// Stages of a decoder under the names they have before masks are chosen.
fn decoder_stages(stages: Vec<Named>) -> Vec<Named> {
    let outputs = ["logits", "iou", "object_score", "tokens"];
    let rename = |name: String| match outputs.contains(&name.as_str()) {
        true => format!("decoder.{name}"),
        false => name,
    };
    stages.into_iter().map(|(name, tensor)| (rename(name), tensor)).collect()
}

/// Takes a tensor out.
fn take(tensors: &mut Vec<Named>, name: &str) -> Option<Tensor> {
    let index = tensors.iter().position(|(other, _)| other == name)?;
    Some(tensors.remove(index).1)
}

/// The numbers of a fixture's configuration.
struct Sizes(serde_json::Value);

impl Sizes {
    fn of(file: &StageFile) -> Self {
        Sizes(serde_json::from_str(&file.metadata["config"]).unwrap())
    }

    fn number(&self, key: &str) -> usize {
        self.0[key].as_u64().unwrap() as usize
    }

    fn list(&self, key: &str) -> Vec<usize> {
        let items = self.0[key].as_array().unwrap();
        items.iter().map(|item| item.as_u64().unwrap() as usize).collect()
    }
}
