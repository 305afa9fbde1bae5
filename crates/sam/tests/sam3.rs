//! Small random SAM 3 detectors, stage by stage, against Meta's own modules.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cutout_cpu::Cpu;
use cutout_graph::{Backend, Graph, Named, Profile, Weights, interpret};
use cutout_sam::config::{
    DetectorConfig, Exemplars, PositionRows, RotaryVitConfig, Sam3Config, TextConfig,
};
use cutout_sam::sam3::{clicks_graph, trunk_stages};
use cutout_tensor::{Tensor, Tolerance};
use cutout_testing::{StageFile, compare_stages};

const MODELS: [&str; 2] = ["tiny", "wide"];

/// The configuration that a fixture's model was built with.
fn config(file: &StageFile) -> Sam3Config {
    let json: serde_json::Value = serde_json::from_str(&file.metadata["config"]).unwrap();
    let number = |key: &str| json[key].as_u64().unwrap() as usize;
    let global = json["global_blocks"].as_array().unwrap();
    Sam3Config {
        trunk: RotaryVitConfig {
            image_size: number("patch") * number("grid"),
            patch: number("patch"),
            width: number("width"),
            depth: number("depth"),
            heads: number("heads"),
            mlp_width: (number("width") as f64 * json["mlp_ratio"].as_f64().unwrap()) as usize,
            window: number("window"),
            global_blocks: global.iter().map(|block| block.as_u64().unwrap() as usize).collect(),
            norm_epsilon: 1e-5,
            position_grid: number("pretrained_grid"),
            position_rows: PositionRows::ClassAndGrid,
        },
        text: TextConfig {
            vocabulary: 49408,
            context: number("context"),
            width: number("text_width"),
            depth: number("text_depth"),
            heads: number("text_heads"),
            mlp_width: 4 * number("text_width"),
        },
        detector: DetectorConfig {
            width: number("embedding"),
            heads: number("fusion_heads"),
            mlp_width: number("hidden"),
            geometry_depth: number("geometry_depth"),
            fusion_depth: number("fusion_depth"),
            decoder_depth: number("decoder_depth"),
            queries: number("queries"),
            scoring_width: number("hidden"),
            exemplars: Exemplars::BoxesAndPoints,
        },
    }
}

/// Runs by the interpreter and by the CPU's kernels, compares both with the expected stages, and returns what the kernels
/// gave.
fn check(
    graph: &Graph,
    weights: &Weights,
    inputs: &[Named],
    expected: &[Named],
    what: &str,
) -> Vec<Named> {
    let inputs: Vec<(&str, &Tensor)> =
        inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let interpreted = interpret(graph, weights, &inputs).unwrap();
    compare_stages(&interpreted, expected, Tolerance::Stage)
        .unwrap_or_else(|report| panic!("{what}, interpreted: {report}"));
    let program = Cpu::new(2).compile(graph, weights, &Profile::default()).unwrap();
    let compiled = program.run(&inputs).unwrap();
    compare_stages(&compiled, expected, Tolerance::Stage)
        .unwrap_or_else(|report| panic!("{what}, compiled: {report}"));
    compiled
}

/// The stages whose names start with one of these.
fn only(stages: Vec<Named>, starts: &[&str]) -> Vec<Named> {
    let wanted = |name: &str| starts.iter().any(|start| name.starts_with(start));
    stages.into_iter().filter(|(name, _)| wanted(name)).collect()
}

#[test]
fn the_image_encoder_matches_meta_at_every_stage() {
    for model in MODELS {
        let file = StageFile::load(&format!("sam3/{model}_image.safetensors")).unwrap();
        let (config, weights) = (config(&file), file.weights());
        let expected = only(file.stages("image"), &["detector.", "trunk"]);
        assert_eq!(expected.len(), config.trunk.depth + 2, "{model}");
        let graph = trunk_stages(&config).unwrap();
        check(&graph, &weights, &file.inputs("image"), &expected, model);
        let trunk = vec![("trunk".to_owned(), file.stage("image", "trunk").unwrap())];
        let expected = only(file.stages("image"), &["clicks."]);
        assert_eq!(expected.len(), 3, "{model}");
        check(&clicks_graph(&config).unwrap(), &weights, &trunk, &expected, model);
    }
}
