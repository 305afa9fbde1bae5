//! Lowering of all models to launches, without a card.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic")]

use cutout_cuda::CudaRules;
use cutout_cuda::check::check;
use cutout_cuda::lower::{Lowered, Target, lower};
use cutout_graph::passes::{Context, optimize};
use cutout_graph::plan::plan;
use cutout_graph::{Graph, Precision, Profile};
use cutout_sam::MaskSource;
use cutout_sam::device::settled_profile;
use cutout_sam::model::config::{MemoryForm, ModelConfig};
use cutout_sam::model::part::{Part, Stages, graph_of};
use cutout_sam::parts::{
    BankShape, Decode, Detect, Encode, EncodeExemplars, EncodeText, FindFeatures, Follow,
    FollowBuckets, FollowLevels, FrameLevels, PrepareImage, Project, Remember, RememberBuckets,
    UseMask,
};

fn graph<P: Part>(config: &ModelConfig, part: P) -> Graph {
    graph_of(&part, config, Stages::Hidden).unwrap().0
}

/// The tracker of models that follow each object by itself.
fn object_graphs(config: &ModelConfig) -> Vec<(&'static str, Graph)> {
    let follow = |objects| Follow { bank: BankShape::kept(objects, 7, 16), remember: true };
    vec![
        ("follow", graph(config, follow(1))),
        ("follow_5", graph(config, follow(5))),
        ("project", graph(config, Project)),
        ("remember_3", graph(config, Remember { source: MaskSource::Prompted, objects: 3 })),
    ]
}

/// The tracker of models that follow objects in buckets.
fn bucket_graphs(config: &ModelConfig) -> Vec<(&'static str, Graph)> {
    let follow = |buckets| FollowBuckets { bank: BankShape::kept(buckets, 7, 16), remember: true };
    let remember = RememberBuckets { source: MaskSource::Prompted, buckets: 2 };
    vec![
        ("follow_levels", graph(config, FollowLevels)),
        ("follow", graph(config, follow(1))),
        ("follow_2", graph(config, follow(2))),
        ("project", graph(config, Project)),
        ("remember_2", graph(config, remember)),
    ]
}

fn graphs(config: &ModelConfig) -> Vec<(&'static str, Graph)> {
    let mut graphs = vec![("encoder", graph(config, Encode { pictures: 1 }))];
    if config.decoder.is_some() {
        let many = Decode { prompts: 64, ..Decode::ONE_CLICK };
        graphs.extend([
            ("prepare_image", graph(config, PrepareImage)),
            ("decoder", graph(config, Decode::ONE_CLICK)),
            ("decoder_64", graph(config, many)),
        ]);
    }
    if let Some(memory) = &config.memory {
        graphs.push(("use_mask", graph(config, UseMask { size: [427, 640] })));
        if memory.multiplex.is_some() {
            graphs.append(&mut bucket_graphs(config));
        } else {
            graphs.append(&mut object_graphs(config));
        }
    }
    if config.memory.is_some() && config.finder.is_some() {
        graphs.push(("frame_levels", graph(config, FrameLevels)));
    }
    if config.finder.is_some() {
        graphs.extend([
            ("find_features", graph(config, FindFeatures)),
            ("text", graph(config, EncodeText { tokens: 4, kept: 4 })),
            ("exemplars", graph(config, EncodeExemplars { boxes: 2, points: 0 })),
            ("detector", graph(config, Detect { text: 4, exemplars: 1 })),
        ]);
    }
    graphs
}

/// Queries times keys from which attention in f32 would take most of a program's time.
const LARGE_ATTENTION: usize = 1 << 22;

/// Checks that attention over whole pictures and memories is in half precision, which is a card's default for them: parts are named by the paths of
/// their weights, and a model whose paths nobody listed would be right, and many times slower.
fn attends_in_halves(what: &str, graph: &Graph, lowered: &Lowered) {
    for step in lowered.steps.iter().filter(|step| step.op == "attention") {
        let inputs = graph.input_types(step.node);
        let pairs = inputs[0].shape[1] * inputs[1].shape[1];
        let names: Vec<&str> = step.launches.iter().map(|launch| &*launch.kernel.0).collect();
        let halves = names.iter().any(|name| name.contains("f16"));
        let scope = &graph.node(step.node).origin.scope;
        assert!(halves || pairs < LARGE_ATTENTION, "{what}, {scope}: {names:?}");
    }
}

fn lowers(model: &str, config: &ModelConfig) {
    let single = Profile { precision: Precision::F32, ..Profile::default() };
    for profile in [single, settled_profile(Profile::default(), true)] {
        let context = Context::new(None, &profile);
        for (name, graph) in graphs(config) {
            let graph = optimize(&graph, &[], &context).unwrap();
            let plan = plan(&graph, &CudaRules::new(&profile));
            for target in [Target::HOPPER, Target::AMPERE] {
                let lowered = lower(&graph, &plan, &profile, target)
                    .unwrap_or_else(|error| panic!("{model} {name}: {error}"));
                let count = check(&lowered, target)
                    .unwrap_or_else(|problem| panic!("{model} {name}: {problem}"));
                if profile.precision == Precision::Auto && target == Target::HOPPER {
                    attends_in_halves(&format!("{model} {name}"), &graph, &lowered);
                }
                let arena = lowered.arena_bytes >> 20;
                println!("{model} {name} {:?}: {count} launches, {arena} MiB", target.family);
            }
        }
    }
}

#[test]
fn sam1_lowers() {
    lowers("vit_b", &ModelConfig::sam1_vit_b());
    lowers("vit_h", &ModelConfig::sam1_vit_h());
}

#[test]
fn sam2_lowers() {
    lowers("sam2.1_tiny", &ModelConfig::sam2_tiny(MemoryForm::Sam2_1));
    lowers("sam2.1_large", &ModelConfig::sam2_large(MemoryForm::Sam2_1));
}

#[test]
fn sam3_lowers() {
    lowers("sam3", &ModelConfig::sam3());
}

#[test]
fn sam3_1_lowers() {
    lowers("sam3.1", &ModelConfig::sam3_1());
}
