//! Small random SAM 1 models, stage by stage, against Meta's own modules.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cutout_cpu::Cpu;
use cutout_graph::{Backend, Graph, Named, Profile, Weights, interpret};
use cutout_sam::config::{DecoderConfig, DecoderForm, Sam1Config, VitConfig};
use cutout_sam::sam1::{PromptShape, decoder_stages, encoder_stages, image_side_graph};
use cutout_tensor::{Tensor, Tolerance};
use cutout_testing::{StageFile, compare_stages};

const MODELS: [&str; 2] = ["sam1/tiny.safetensors", "sam1/wide.safetensors"];
const PROMPTS: [&str; 5] = ["point", "points", "box", "points_box", "points_mask"];

/// The configuration that the fixture's model was built with.
fn config(file: &StageFile) -> Sam1Config {
    let json: serde_json::Value = serde_json::from_str(&file.metadata["config"]).unwrap();
    let number = |key: &str| json[key].as_u64().unwrap() as usize;
    let global = json["global_blocks"].as_array().unwrap();
    Sam1Config {
        encoder: VitConfig {
            image_size: number("image_size"),
            patch: number("patch"),
            width: number("width"),
            depth: number("depth"),
            heads: number("heads"),
            mlp_width: 4 * number("width"),
            window: number("window"),
            global_blocks: global.iter().map(|block| block.as_u64().unwrap() as usize).collect(),
            norm_epsilon: 1e-6,
        },
        embedding: number("embedding"),
        decoder: DecoderConfig {
            form: DecoderForm::Sam1,
            width: number("embedding"),
            depth: 2,
            heads: number("decoder_heads"),
            mlp_width: number("mlp"),
            downsample: 2,
            mask_tokens: 4,
            iou_width: number("iou_width"),
            iou_depth: 3,
            mask_channels: number("mask_channels") / 4,
        },
    }
}

/// Runs by the interpreter and by the CPU's kernels, and compares both with the expected stages.
fn check(graph: &Graph, weights: &Weights, inputs: &[Named], expected: &[Named], what: &str) {
    let inputs: Vec<(&str, &Tensor)> =
        inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let interpreted = interpret(graph, weights, &inputs).unwrap();
    compare_stages(&interpreted, expected, Tolerance::Stage)
        .unwrap_or_else(|report| panic!("{what}, interpreted: {report}"));
    let program = Cpu::new(2).compile(graph, weights, &Profile::default()).unwrap();
    let compiled = program.run(&inputs).unwrap();
    compare_stages(&compiled, expected, Tolerance::Stage)
        .unwrap_or_else(|report| panic!("{what}, compiled: {report}"));
}

#[test]
fn image_encoder_matches_meta_at_every_stage() {
    for model in MODELS {
        let file = StageFile::load(model).unwrap();
        let graph = encoder_stages(&config(&file)).unwrap();
        let expected = file.stages("encoder");
        check(&graph, &file.weights(), &file.inputs("encoder"), &expected, model);
    }
}

/// The image's tensors that a decoder takes.
fn image_side(config: &Sam1Config, weights: &Weights, embedding: &Tensor) -> Vec<Named> {
    let graph = image_side_graph(config).unwrap();
    let program = Cpu::new(2).compile(&graph, weights, &Profile::default()).unwrap();
    program.run(&[("embedding", embedding)]).unwrap()
}

#[test]
fn prompts_and_masks_match_meta_at_every_stage() {
    for model in MODELS {
        let file = StageFile::load(model).unwrap();
        let (config, weights) = (config(&file), file.weights());
        let embedding = file.stage("encoder", "embedding").unwrap();
        let side = image_side(&config, &weights, &embedding);
        for run in PROMPTS {
            let mut inputs = file.inputs(run);
            let (_, points) = inputs.iter().find(|(name, _)| name == "points").unwrap();
            let masks = inputs.iter().any(|(name, _)| name == "masks");
            let shape =
                PromptShape { prompts: points.shape()[0], points: points.shape()[1], masks };
            let mut expected = file.stages(run);
            if masks {
                inputs.push(("embedding".to_owned(), embedding.clone()));
            } else {
                inputs.extend(side.iter().cloned());
                // It comes from the image's side here, where it is compared by what follows from it.
                expected.retain(|(name, _)| name != "prompt_encoder.positions");
            }
            let graph = decoder_stages(&config, shape).unwrap();
            check(&graph, &weights, &inputs, &expected, &format!("{model}, {run}"));
        }
        let positions = &side.iter().find(|(name, _)| name == "positions").unwrap().1;
        let expected = file.stage("point", "prompt_encoder.positions").unwrap();
        let difference = cutout_tensor::compare(positions, &expected, Tolerance::Stage).unwrap();
        assert!(difference.within, "positions: {difference}");
    }
}
