//! Small random SAM 3 detectors.

use std::collections::HashMap;

use cutout_graph::{Named, Weights};
use cutout_tensor::Tensor;
use cutout_testing::StageFile;

use super::{Sizes, check, named, take};
use crate::model::config::{
    DetectorConfig, EncoderConfig, Exemplars, FinderConfig, ModelConfig, PositionRows,
    PositionTable, TextConfig, VitConfig,
};
use crate::model::part::Part;
use crate::parts::{Detect, Encode, EncodeExemplars, EncodeText, FindFeatures};

/// In the quiet model, inputs of norms are as small as their epsilons and outputs reach their clamps.
const MODELS: [&str; 3] = ["tiny", "wide", QUIET];
const QUIET: &str = "quiet";

const RUNS: [&str; 6] = ["text", "box", "boxes", "points", "everything", "long"];

/// A small model with the stages of Meta's modules.
struct Model {
    name: &'static str,
    config: ModelConfig,
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

    fn check<P: Part>(&self, part: &P, values: &[Named], expected: &[Named]) {
        check(part, &self.config, &self.weights, values, expected);
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
fn config(file: &StageFile) -> ModelConfig {
    let sizes = Sizes::of(file);
    let number = |key: &str| sizes.number(key);
    let trunk = VitConfig {
        image_size: number("patch") * number("grid"),
        patch: number("patch"),
        width: number("width"),
        depth: number("depth"),
        heads: number("heads"),
        mlp_width: (number("width") as f64 * sizes.0["mlp_ratio"].as_f64().unwrap()) as usize,
        window: number("window"),
        global_blocks: sizes.list("global_blocks"),
        norm_epsilon: 1e-5,
    };
    let rows = PositionRows::ClassAndGrid;
    let positions = PositionTable { grid: number("pretrained_grid"), rows };
    ModelConfig {
        encoder: EncoderConfig::RotaryVit { trunk, positions },
        decoder: None,
        memory: None,
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
    }
}

/// Fixture names as the ports are called.
fn ported(tensors: Vec<Named>) -> Vec<Named> {
    let port = |name: String| match name.as_str() {
        "trunk" => "pictures.0.trunk".to_owned(),
        "geometry" => "exemplars".to_owned(),
        "boxes" => "boxes.coordinates".to_owned(),
        "box_labels" => "boxes.labels".to_owned(),
        "points" => "points.coordinates".to_owned(),
        "point_labels" => "points.labels".to_owned(),
        _ => name.replace("level.", "level"),
    };
    tensors.into_iter().map(|(name, tensor)| (port(name), tensor)).collect()
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
        let trunk = only(&stages, &["trunk"]);
        let expected = ported(only(&stages, &["detector.", "trunk"]));
        let EncoderConfig::RotaryVit { trunk: config, .. } = &model.config.encoder else {
            panic!("another encoder");
        };
        assert_eq!(expected.len(), config.depth + 2);
        model.check(&Encode { pictures: 1 }, &model.image.inputs("image"), &expected);
        let mut levels = ported(only(&stages, &["level."]));
        assert_eq!(levels.len(), 3);
        levels
            .push(("fusion".to_owned(), model.detector.stage(model.runs()[0], "fusion").unwrap()));
        model.check(&FindFeatures, &trunk, &levels);
    }
}

#[test]
fn text_and_exemplars_match_meta_at_every_stage() {
    for model in MODELS.map(Model::load) {
        for run in model.runs() {
            let name = format!("{run}.text");
            let inputs = model.detector.inputs(&name);
            let part =
                EncodeText { tokens: length(&inputs, "tokens"), kept: length(&inputs, "kept") };
            let hidden = usize::from(*run == "everything");
            assert_eq!(part.tokens, part.kept + hidden, "{run}");
            model.check(&part, &inputs, &model.detector.stages(&name));
            let name = format!("{run}.geometry");
            let mut inputs = model.detector.inputs(&name);
            let (boxes, points) = (length(&inputs, "boxes"), length(&inputs, "points"));
            inputs.extend(model.detector.inputs("levels"));
            let part = EncodeExemplars { boxes, points };
            model.check(&part, &ported(inputs), &model.detector.stages(&name));
        }
    }
}

#[test]
fn the_detector_matches_meta_at_every_stage() {
    for model in MODELS.map(Model::load) {
        for run in model.runs() {
            let mut expected = model.detector.stages(run);
            let mut inputs = model.detector.inputs("levels");
            let fusion = take(&mut expected, "fusion").unwrap();
            inputs.push(("fusion".to_owned(), fusion));
            for part in ["text", "geometry"] {
                let tokens = model.detector.stage(&format!("{run}.{part}"), part).unwrap();
                inputs.push((part.to_owned(), tokens));
            }
            let inputs = ported(inputs);
            let tokens = |name: &str| named(&inputs, name).unwrap().shape()[1];
            let part = Detect { text: tokens("text"), exemplars: tokens("exemplars") };
            model.check(&part, &inputs, &expected);
        }
    }
}

/// Guards the fixture: without small inputs and clamped outputs the quiet model tests nothing.
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
    // Meta's code clamps scores; its clamp of presence to 10 has no effect.
    assert!(stage("presence")[0].abs() > 11.0);
    let scores = stage("logits");
    assert!(scores.contains(&12.0) && scores.iter().any(|score| score.abs() < 12.0), "{scores:?}");
    let weights = model.detector.weights();
    let boxes = weights.get("detector.transformer.decoder.reference_points.weight").unwrap();
    assert!(numbers(boxes.tensor().unwrap()).iter().any(|logit| logit.abs() > 8.0));
}
