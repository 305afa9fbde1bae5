//! Times how long the parts of a model take to build and to compile, on the CPU and for a GPU, without running them:
//! `time_compile MODEL [PART...]`, where MODEL is `sam2.1_tiny`, `sam2.1_large` or `sam3`, with random weights.
//!
//! For a GPU everything but the driver's part is timed, so that no card is needed: passes, plan, lowering to launches for an H200,
//! their order, and the packing of weights that no earlier part has packed. `follow` is compiled for each number of memories that a
//! clip comes by, as a tracker does.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a library")]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cutout_cuda::CudaRules;
use cutout_cuda::lower::{Target, WeightSource, lower};
use cutout_cuda::order::dependencies;
use cutout_graph::{Graph, Packed, Profile, Weights, passes, plan};
use cutout_sam::device;
use cutout_sam::model::config::{MemoryForm, ModelConfig};
use cutout_sam::model::part::{Part, Stages, graph_of};
use cutout_sam::parts::{BankShape, Decode, Detect, EncodeText, FindFeatures, Follow, Project};
use cutout_tensor::Tensor;
use cutout_testing::Random;

/// Stands for a weight in the memory of a card.
struct OnCard(usize);

impl Packed for OnCard {
    fn bytes(&self) -> usize {
        self.0
    }
}

/// A part's name, and the function that builds its graph.
type NamedPart = (String, Box<dyn Fn(&ModelConfig) -> Graph>);

fn named<P: Part + 'static>(name: impl Into<String>, part: P) -> NamedPart {
    let build = move |config: &ModelConfig| graph_of(&part, config, Stages::Hidden).unwrap().0;
    (name.into(), Box::new(build))
}

fn parts(config: &ModelConfig) -> Vec<NamedPart> {
    let mut parts = vec![named("decoder", Decode::ONE_CLICK), named("project", Project)];
    for (frames, pointers) in [(1, 1), (2, 2), (3, 3), (7, 7), (7, 8), (7, 16)] {
        let follow = Follow { bank: BankShape::kept(5, frames, pointers), remember: true };
        parts.push(named(format!("follow {frames} {pointers}"), follow));
    }
    if config.finder.is_some() {
        parts.push(named("find_features", FindFeatures));
        parts.push(named("text", EncodeText { tokens: 4, kept: 4 }));
        parts.push(named("detector", Detect { text: 4, exemplars: 1 }));
        parts.push(named("detector 5", Detect { text: 5, exemplars: 1 }));
    }
    parts
}

/// Random weights for all parts.
fn weights(graphs: &[(String, Graph)]) -> Weights {
    let mut numbers = Random::new(1);
    let mut tensors = HashMap::new();
    for (_, graph) in graphs {
        for (path, id) in graph.parameters() {
            tensors.entry(path.to_owned()).or_insert_with(|| {
                let shape = graph.ty(id).shape.clone();
                let value = |_| ((numbers.unit() - 0.5) * 0.1) as f32;
                let values = (0..shape.elements()).map(value).collect();
                Tensor::from_vec::<f32>(shape, values).unwrap()
            });
        }
    }
    Weights::new(tensors)
}

/// Time of the passes and the plan, of lowering, and of the weights.
fn compile_for_card(graph: &Graph, weights: &Weights, profile: &Profile) -> [Duration; 3] {
    let start = Instant::now();
    cutout_graph::verify(graph).unwrap();
    weights.check(graph).unwrap();
    let context = passes::Context::new(Some(weights), profile);
    let graph = passes::optimize(graph, &[], &context).unwrap();
    let plan = plan::plan(&graph, &CudaRules::new(profile));
    let optimized = start.elapsed();
    let lowered = lower(&graph, &plan, profile, Target::HOPPER).unwrap();
    let launches = lowered.steps.iter().flat_map(|step| &step.launches);
    let order = dependencies(launches);
    assert!(!order.is_empty());
    let ordered = start.elapsed();
    let weights = weights.on("cuda:0");
    for used in &lowered.weights {
        if let WeightSource::Node(node, form) = &used.source {
            let known = weights.known(&graph.node(*node).kind).unwrap();
            let pack = |_: &Tensor| Ok(OnCard(used.bytes));
            weights.prepared(&known, &format!("{form:?}"), pack).unwrap();
        }
    }
    [optimized, ordered - optimized, start.elapsed() - ordered]
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let config = match arguments.first().map(String::as_str) {
        Some("sam2.1_tiny") => ModelConfig::sam2_tiny(MemoryForm::Sam2_1),
        Some("sam2.1_large") => ModelConfig::sam2_large(MemoryForm::Sam2_1),
        Some("sam3") => ModelConfig::sam3(),
        Some(_) | None => panic!("the model: sam2.1_tiny, sam2.1_large or sam3"),
    };
    let wanted = &arguments[1..];
    let is_wanted = |name: &str| {
        wanted.is_empty() || wanted.iter().any(|one| name.split(' ').next() == Some(one.as_str()))
    };
    let parts: Vec<NamedPart> =
        parts(&config).into_iter().filter(|(name, _)| is_wanted(name)).collect();
    let graphs: Vec<(String, Graph)> =
        parts.iter().map(|(name, build)| (name.clone(), build(&config))).collect();
    let weights = weights(&graphs);
    let on_card = device::settled_profile(Profile::default(), true);
    let cpu = device::backends(2).remove(0);
    for round in ["first", "again"] {
        for (name, build) in &parts {
            let start = Instant::now();
            let graph = build(&config);
            let built = start.elapsed();
            let [optimized, lowered, packed] = compile_for_card(&graph, &weights, &on_card);
            println!(
                "{name:<14} {round} for a card: built {built:>9.2?}, passes {optimized:>9.2?}, lowered {lowered:>9.2?}, weights {packed:>9.2?}"
            );
        }
        for (name, build) in &parts {
            let graph = build(&config);
            let start = Instant::now();
            drop(cpu.compile(&graph, &weights, &Profile::default()).unwrap());
            println!("{name:<14} {round} on the CPU: {:>9.2?}", start.elapsed());
        }
    }
    let memory = weights.memory();
    println!(
        "packed {} MiB, plain {} MiB, folded {} MiB",
        memory.packed >> 20,
        memory.plain >> 20,
        memory.folded >> 20
    );
}
