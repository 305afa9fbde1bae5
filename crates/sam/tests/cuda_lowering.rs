//! Lowering of all models to launches, without a card.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic")]

use std::collections::BTreeMap;

use cutout_cuda::CudaRules;
use cutout_cuda::check::check;
use cutout_cuda::lower::{Lowered, Target, lower};
use cutout_graph::ops::{MaskBits, ModelSquare};
use cutout_graph::passes::{Context, optimize};
use cutout_graph::plan::plan;
use cutout_graph::{Graph, Precision, Profile, Weights};
use cutout_sam::MaskSource;
use cutout_sam::device::settled_profile;
use cutout_sam::model::config::{MemoryForm, ModelConfig};
use cutout_sam::model::part::{Part, Stages, graph_of};
use cutout_sam::parts::{
    BankShape, Decode, Detect, Encode, EncodeExemplars, EncodeText, FindFeatures, Follow,
    FollowBuckets, FollowLevels, FrameLevels, PrepareImage, Project, Remember, RememberBuckets,
    ThresholdMasks, UseMask,
};
use cutout_tensor::Tensor;

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
        let square = ModelSquare { size: [1024, 1024], content: [683, 1024] };
        for (name, through) in [("masks", None), ("masks_through_input", Some(square))] {
            let bits = MaskBits { through, size: [1200, 1800], threshold: 0.0, offset: 1.0 };
            let part = ThresholdMasks { prompts: 64, candidates: 3, rows: 32, bits };
            graphs.push((name, graph(config, part)));
        }
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

/// Weights without memory of their own: one number, repeated.
fn repeated(graph: &Graph) -> Weights {
    let one = Tensor::from_vec([1], vec![0.01f32]).unwrap();
    let tensors = graph.parameters().map(|(path, id)| {
        let shape = &graph.ty(id).shape;
        let one = one.reshape(vec![1; shape.rank()]).unwrap();
        (path.to_owned(), one.broadcast_to(shape.clone()).unwrap())
    });
    Weights::new(tensors.collect())
}

/// Kernels of an image encoder on an H200 and how often each is launched.
fn encoder_kernels(config: &ModelConfig, precision: Precision) -> BTreeMap<String, usize> {
    let profile = settled_profile(Profile { precision, ..Profile::default() }, true);
    let graph = graph(config, Encode { pictures: 1 });
    let weights = repeated(&graph);
    let graph = optimize(&graph, &[], &Context::new(Some(&weights), &profile)).unwrap();
    let plan = plan(&graph, &CudaRules::new(&profile));
    let lowered = lower(&graph, &plan, &profile, Target::HOPPER).unwrap();
    check(&lowered, Target::HOPPER).unwrap();
    let mut kernels = BTreeMap::new();
    for launch in lowered.steps.iter().flat_map(|step| &step.launches) {
        *kernels.entry(launch.kernel.0.to_string()).or_default() += 1;
    }
    kernels
}

/// Blocks of an encoder in bytes have the launches of those in halves and two more, which quantise what attention and GELU give: norms write
/// bytes, and the product of queries and keys rotates them.
#[test]
fn encoders_in_bytes_launch_two_kernels_more_a_block() {
    for (config, blocks) in [
        (ModelConfig::sam1_vit_b(), 12),
        (ModelConfig::sam1_vit_h(), 32),
        (ModelConfig::sam3(), 32),
    ] {
        let kernels = [Precision::F16, Precision::Int8].map(|p| encoder_kernels(&config, p));
        let count = |kernels: &BTreeMap<String, usize>, part: &str| -> usize {
            kernels.iter().filter(|(name, _)| name.contains(part)).map(|(_, count)| count).sum()
        };
        let [halves, bytes] = kernels.each_ref().map(|kernels| count(kernels, ""));
        println!("{halves} launches in halves, {bytes} in bytes: {kernels:#?}");
        assert_eq!(bytes, halves + 2 * blocks, "{kernels:?}");
        assert_eq!(count(&kernels[1], "gemm_s8"), 4 * blocks);
        assert_eq!(count(&kernels[1], "norm_bytes_f16"), 2 * blocks);
        assert_eq!(count(&kernels[1], "quantize_f16"), 2 * blocks);
        assert_eq!(count(&kernels[1], "rope64"), count(&kernels[0], "rope64"));
        assert_eq!(count(&kernels[1], "rope"), count(&kernels[1], "rope64"));
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
