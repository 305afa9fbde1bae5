//! Small random SAM 3 detectors, stage by stage, against Meta's own modules.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;

use cutout_cpu::Cpu;
use cutout_graph::{Backend, BuildError, Graph, Named, Profile, Weights, interpret};
use cutout_sam::config::{
    DetectorConfig, Exemplars, FinderConfig, PositionRows, PositionTable, Sam3Config, TextConfig,
    VitConfig,
};
use cutout_sam::sam3::{
    DetectorShape, GeometryShape, TextShape, detector_stages, geometry_stages, image_side_graph,
    text_stages, trunk_stages,
};
use cutout_tensor::{Tensor, Tolerance};
use cutout_testing::{StageFile, compare_stages};

/// In the last, what norms are given is as small as their epsilons, and results reach their bounds.
const MODELS: [&str; 3] = ["tiny", "wide", QUIET];
const QUIET: &str = "quiet";

const RUNS: [&str; 6] = ["text", "box", "boxes", "points", "everything", "long"];

/// A small model, with what Meta's modules give of an image and of prompts.
struct Model {
    name: &'static str,
    config: Sam3Config,
    weights: Weights,
    image: StageFile,
    detector: StageFile,
}

impl Model {
    fn load(name: &'static str) -> Model {
        let [image, detector] = ["image", "detector"]
            .map(|part| StageFile::load(&format!("sam3/{name}_{part}.safetensors")).unwrap());
        let config = config(&image);
        let mut tensors: HashMap<String, Tensor> = HashMap::new();
        for weights in [image.weights(), detector.weights()] {
            let all = weights
                .paths()
                .map(|path| (path.to_owned(), weights.get(path).unwrap().tensor().unwrap()));
            tensors.extend(all);
        }
        let table = token_table(&detector, &config.finder.as_ref().unwrap().text);
        let path = "detector.backbone.language_backbone.encoder.token_embedding.weight";
        tensors.insert(path.to_owned(), table);
        Model { name, config, weights: Weights::new(tensors), image, detector }
    }

    fn runs(&self) -> &'static [&'static str] {
        if self.name == QUIET { &["everything"] } else { &RUNS }
    }

    /// Compares a graph's stages with those of a run; returns the results.
    fn check(
        &self,
        graph: Result<Graph, BuildError>,
        inputs: &[Named],
        expected: &[Named],
    ) -> Vec<Named> {
        let graph = graph.unwrap();
        let inputs: Vec<(&str, &Tensor)> = graph
            .inputs()
            .map(|(name, _)| {
                let input = inputs.iter().find(|(input, _)| input == name);
                (name, &input.unwrap_or_else(|| panic!("no input {name}")).1)
            })
            .collect();
        let interpreted = interpret(&graph, &self.weights, &inputs).unwrap();
        compare_stages(&interpreted, expected, Tolerance::Stage)
            .unwrap_or_else(|report| panic!("{}, interpreted: {report}", self.name));
        let program = Cpu::new(2).compile(&graph, &self.weights, &Profile::default()).unwrap();
        let compiled = program.run(&inputs).unwrap();
        compare_stages(&compiled, expected, Tolerance::Stage)
            .unwrap_or_else(|report| panic!("{}, compiled: {report}", self.name));
        compiled
    }
}

/// The rows of the token table that the phrases use, in a table of full height.
fn token_table(file: &StageFile, config: &TextConfig) -> Tensor {
    let inputs = file.inputs("tokens");
    let find = |name: &str| &inputs.iter().find(|(input, _)| input == name).unwrap().1;
    let (used, rows) =
        (find("used").to_vec::<i64>().unwrap(), find("rows").to_vec::<f32>().unwrap());
    let mut table = vec![f32::NAN; config.vocabulary * config.width];
    for (row, token) in rows.chunks(config.width).zip(used) {
        table[token as usize * config.width..][..config.width].copy_from_slice(row);
    }
    Tensor::from_vec([config.vocabulary, config.width], table).unwrap()
}

/// The configuration that a fixture's model was built with.
fn config(file: &StageFile) -> Sam3Config {
    let json: serde_json::Value = serde_json::from_str(&file.metadata["config"]).unwrap();
    let number = |key: &str| json[key].as_u64().unwrap() as usize;
    let global = json["global_blocks"].as_array().unwrap();
    Sam3Config {
        trunk: VitConfig {
            image_size: number("patch") * number("grid"),
            patch: number("patch"),
            width: number("width"),
            depth: number("depth"),
            heads: number("heads"),
            mlp_width: (number("width") as f64 * json["mlp_ratio"].as_f64().unwrap()) as usize,
            window: number("window"),
            global_blocks: global.iter().map(|block| block.as_u64().unwrap() as usize).collect(),
            norm_epsilon: 1e-5,
        },
        positions: PositionTable {
            grid: number("pretrained_grid"),
            rows: PositionRows::ClassAndGrid,
        },
        finder: Some(FinderConfig {
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
        }),
        clicks: None,
    }
}

/// The stages whose names start with one of these.
fn only(stages: &[Named], starts: &[&str]) -> Vec<Named> {
    let wanted = |name: &str| starts.iter().any(|start| name.starts_with(start));
    stages.iter().filter(|(name, _)| wanted(name)).cloned().collect()
}

fn length(inputs: &[Named], name: &str) -> usize {
    inputs.iter().find(|(input, _)| input == name).map_or(0, |(_, tensor)| tensor.shape()[0])
}

#[test]
fn the_image_encoder_matches_meta_at_every_stage() {
    for model in MODELS.map(Model::load) {
        let stages = model.image.stages("image");
        let expected = only(&stages, &["detector.", "trunk"]);
        assert_eq!(expected.len(), model.config.trunk.depth + 2);
        model.check(trunk_stages(&model.config), &model.image.inputs("image"), &expected);
        let trunk = only(&stages, &["trunk"]);
        let mut levels = only(&stages, &["level."]);
        assert_eq!(levels.len(), 3);
        levels
            .push(("fusion".to_owned(), model.detector.stage(model.runs()[0], "fusion").unwrap()));
        model.check(image_side_graph(&model.config), &trunk, &levels);
    }
}

#[test]
fn text_and_exemplars_match_meta_at_every_stage() {
    for model in MODELS.map(Model::load) {
        for run in model.runs() {
            let name = format!("{run}.text");
            let inputs = model.detector.inputs(&name);
            let shape =
                TextShape { tokens: length(&inputs, "tokens"), kept: length(&inputs, "kept") };
            let hidden = usize::from(*run == "everything");
            assert_eq!(shape.tokens, shape.kept + hidden, "{run}");
            let graph = text_stages(&model.config, shape);
            model.check(graph, &inputs, &model.detector.stages(&name));
            let name = format!("{run}.geometry");
            let mut inputs = model.detector.inputs(&name);
            let shape = GeometryShape {
                boxes: length(&inputs, "boxes"),
                points: length(&inputs, "points"),
            };
            inputs.extend(model.detector.inputs("levels"));
            let graph = geometry_stages(&model.config, shape);
            model.check(graph, &inputs, &model.detector.stages(&name));
        }
    }
}

#[test]
fn the_detector_matches_meta_at_every_stage() {
    for model in MODELS.map(Model::load) {
        for run in model.runs() {
            let mut expected = model.detector.stages(run);
            let mut inputs = model.detector.inputs("levels");
            let fusion = expected.iter().position(|(name, _)| name == "fusion").unwrap();
            inputs.push(expected.remove(fusion));
            for part in ["text", "geometry"] {
                let tokens = model.detector.stage(&format!("{run}.{part}"), part).unwrap();
                inputs.push((part.to_owned(), tokens));
            }
            let tokens =
                |name: &str| inputs.iter().find(|(input, _)| input == name).unwrap().1.shape()[1];
            let shape = DetectorShape { text: tokens("text"), geometry: tokens("geometry") };
            model.check(detector_stages(&model.config, shape), &inputs, &expected);
        }
    }
}

/// Otherwise the comparison with the quiet model says nothing about them.
#[test]
fn the_quiet_model_is_quiet_and_reaches_every_bound() {
    let model = Model::load(QUIET);
    let numbers = |tensor: Tensor| tensor.to_vec::<f32>().unwrap();
    let stage = |name: &str| numbers(model.detector.stage("everything", name).unwrap());
    let small = |numbers: &[f32]| numbers.iter().all(|number| number.abs() < 0.03);
    for name in ["trunk", "level.2"] {
        assert!(small(&numbers(model.image.stage("image", name).unwrap())), "{name}");
    }
    for name in ["fusion", "detector.transformer.decoder.layers.1"] {
        assert!(small(&stage(name)), "{name}");
    }
    // Meta bounds scores, and means to bound presence by 10.
    assert!(stage("presence")[0].abs() > 11.0);
    let scores = stage("logits");
    assert!(scores.contains(&12.0) && scores.iter().any(|score| score.abs() < 12.0), "{scores:?}");
    let weights = model.detector.weights();
    let boxes = weights.get("detector.transformer.decoder.reference_points.weight").unwrap();
    assert!(numbers(boxes.tensor().unwrap()).iter().any(|logit| logit.abs() > 8.0));
}
