//! A small random SamModel of `transformers`, opened from a file with its tensor names, stage by stage.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutout_cpu::Cpu;
use cutout_graph::{Backend, Graph, Named, Profile, Weights, interpret};
use cutout_sam::config::Sam1Config;
use cutout_sam::sam1::{PromptShape, decoder_stages, encoder_stages, image_side_graph};
use cutout_sam::{OpenError, PromptBatch, Sam1};
use cutout_tensor::{Tensor, Tolerance, compare};
use cutout_testing::{StageFile, compare_stages};
use cutout_weights::layout::{Dialect, Model};
use cutout_weights::{Checkpoint, Metadata, OutgoingTensor, write_safetensors};

const FIXTURE: &str = "sam1/hugging_face.safetensors";
const PROMPTS: [&str; 5] = ["point", "points", "box", "points_box", "points_mask"];

/// A file that is removed when the test ends.
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The fixture's weights under their own names, which are Hugging Face's.
fn stored(file: &StageFile) -> BTreeMap<String, Tensor> {
    let weights = file.weights();
    let names: Vec<String> = weights.paths().map(str::to_owned).collect();
    names
        .into_iter()
        .map(|name| (name.clone(), weights.get(&name).unwrap().tensor().unwrap()))
        .collect()
}

/// Tensors as a checkpoint file.
fn write(tensors: &BTreeMap<String, Tensor>, test: &str) -> File {
    let name = format!("cutout-hugging-face-{test}-{}.safetensors", std::process::id());
    let file = File(std::env::temp_dir().join(name));
    let outgoing: Vec<OutgoingTensor<'_>> =
        tensors.iter().map(|(name, tensor)| OutgoingTensor::new(name, tensor.clone())).collect();
    write_safetensors(&file.0, &outgoing, &Metadata::new()).unwrap();
    file
}

fn open(path: &Path) -> Result<Sam1, OpenError> {
    Sam1::open(path, Arc::new(Cpu::new(2)), Profile::default())
}

/// The weights of a file under the names that graphs ask for.
fn canonical(path: &Path) -> Weights {
    let checkpoint = Checkpoint::open(path).unwrap();
    let model = Model::of(&checkpoint).unwrap();
    assert_eq!(model.dialect(), Dialect::HuggingFace);
    let names: Vec<String> = model.tensors().map(|(name, ..)| name.to_owned()).collect();
    Weights::new(
        names.into_iter().map(|name| (name.clone(), model.tensor(&name).unwrap())).collect(),
    )
}

/// Runs by the interpreter and by the CPU's kernels, and compares both with the expected stages.
fn check(graph: &Graph, weights: &Weights, inputs: &[Named], expected: &[Named], what: &str) {
    let inputs: Vec<(&str, &Tensor)> =
        inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let program = Cpu::new(2).compile(graph, weights, &Profile::default()).unwrap();
    let runs = [
        ("interpreted", interpret(graph, weights, &inputs).unwrap()),
        ("compiled", program.run(&inputs).unwrap()),
    ];
    for (how, outputs) in runs {
        compare_stages(&outputs, expected, Tolerance::Stage)
            .unwrap_or_else(|report| panic!("{what}, {how}: {report}"));
    }
}

/// The file says all of the configuration that the fixture's model was built with.
#[test]
fn the_configuration_is_read_from_the_file() {
    let file = StageFile::load(FIXTURE).unwrap();
    let json: serde_json::Value = serde_json::from_str(&file.metadata["config"]).unwrap();
    let number = |key: &str| json[key].as_u64().unwrap() as usize;
    let sam = open(&write(&stored(&file), "configuration").0).unwrap();
    let (encoder, decoder) = (&sam.config().encoder, &sam.config().decoder);
    for (found, key) in [
        (encoder.image_size, "image_size"),
        (encoder.patch, "patch"),
        (encoder.width, "width"),
        (encoder.depth, "depth"),
        (encoder.heads, "heads"),
        (encoder.window, "window"),
        (sam.config().embedding, "embedding"),
        (decoder.width, "embedding"),
        (decoder.heads, "decoder_heads"),
        (decoder.mlp_width, "mlp"),
        (decoder.iou_width, "iou_width"),
        (4 * decoder.mask_channels, "mask_channels"),
    ] {
        assert_eq!(found, number(key), "{key}");
    }
    assert_eq!(serde_json::json!(encoder.global_blocks), json["global_blocks"]);
}

#[test]
fn image_encoder_matches_transformers_at_every_stage() {
    let file = StageFile::load(FIXTURE).unwrap();
    let path = write(&stored(&file), "encoder");
    let sam = open(&path.0).unwrap();
    let graph = encoder_stages(sam.config()).unwrap();
    let inputs = file.inputs("encoder");
    check(&graph, &canonical(&path.0), &inputs, &file.stages("encoder"), "encoder");

    let found = sam.encode(&inputs[0].1).unwrap().image().clone();
    let expected = file.stage("encoder", "embedding").unwrap();
    let difference = compare(&found, &expected, Tolerance::Stage).unwrap();
    assert!(difference.within, "embedding: {difference}");
}

/// The image's tensors that a decoder without masks takes.
fn image_side(config: &Sam1Config, weights: &Weights, embedding: &Tensor) -> Vec<Named> {
    let graph = image_side_graph(config).unwrap();
    let program = Cpu::new(2).compile(&graph, weights, &Profile::default()).unwrap();
    program.run(&[("embedding", embedding)]).unwrap()
}

#[test]
fn prompts_and_masks_match_transformers_at_every_stage() {
    let file = StageFile::load(FIXTURE).unwrap();
    let path = write(&stored(&file), "stages");
    let (sam, weights) = (open(&path.0).unwrap(), canonical(&path.0));
    let embedding = file.stage("encoder", "embedding").unwrap();
    let side = image_side(sam.config(), &weights, &embedding);
    for run in PROMPTS {
        let mut inputs = file.inputs(run);
        let (_, points) = inputs.iter().find(|(name, _)| name == "points").unwrap();
        let masks = inputs.iter().any(|(name, _)| name == "masks");
        let shape = PromptShape { prompts: points.shape()[0], points: points.shape()[1], masks };
        if masks {
            inputs.push(("embedding".to_owned(), embedding.clone()));
        } else {
            inputs.extend(side.iter().cloned());
        }
        let graph = decoder_stages(sam.config(), shape).unwrap();
        check(&graph, &weights, &inputs, &file.stages(run), run);
    }
}

#[test]
fn answers_match_transformers() {
    let file = StageFile::load(FIXTURE).unwrap();
    let sam = open(&write(&stored(&file), "answers").0).unwrap();
    let image = sam.encode(&file.inputs("encoder")[0].1).unwrap();
    for run in PROMPTS {
        let mut inputs: BTreeMap<String, Tensor> = file.inputs(run).into_iter().collect();
        let mut take = |name: &str| inputs.remove(name);
        let batch = PromptBatch {
            points: take("points").unwrap(),
            kinds: take("kinds").unwrap(),
            masks: take("masks"),
        };
        let decoded = sam.decode(&image, &batch).unwrap();
        for (stage, found) in [("logits", decoded.logits), ("iou", decoded.iou)] {
            let difference =
                compare(&found, &file.stage(run, stage).unwrap(), Tolerance::Stage).unwrap();
            assert!(difference.within, "{run}, {stage}: {difference}");
        }
    }
}

/// A wrong tensor under the right name is noticed by the comparison: what a mistake in the table of names would do.
#[test]
fn exchanged_tensors_are_noticed() {
    let file = StageFile::load(FIXTURE).unwrap();
    let expected = file.stage("encoder", "embedding").unwrap();
    for [one, other] in [
        ["vision_encoder.neck.layer_norm1.weight", "vision_encoder.neck.layer_norm2.weight"],
        ["vision_encoder.layers.0.layer_norm1.bias", "vision_encoder.layers.0.layer_norm2.bias"],
        ["vision_encoder.layers.2.attn.rel_pos_h", "vision_encoder.layers.2.attn.rel_pos_w"],
    ] {
        let mut tensors = stored(&file);
        let (a, b) = (tensors.remove(one).unwrap(), tensors.remove(other).unwrap());
        tensors.extend([(one.to_owned(), b), (other.to_owned(), a)]);
        let sam = open(&write(&tensors, "exchanged").0).unwrap();
        let found = sam.encode(&file.inputs("encoder")[0].1).unwrap().image().clone();
        let difference = compare(&found, &expected, Tolerance::Stage).unwrap();
        assert!(!difference.within, "{one} and {other} can be exchanged: {difference}");
    }
}
