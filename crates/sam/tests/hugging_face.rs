//! A small random SamModel of `transformers`, opened from a file with its tensor names, stage by stage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support::SmallModel;
use cutout_graph::{DeviceValue, Named};
use cutout_sam::Candidates;
use cutout_sam::device;
use cutout_sam::model::config::EncoderConfig;
use cutout_sam::model::part::{Part, Stages, graph_of};
use cutout_sam::parts::{Decode, Encode, Encoded, Pixels, PrepareImage};
use cutout_tensor::{Tensor, Tolerance, compare};
use cutout_testing::{StageFile, check_graph};
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

fn open(path: &Path) -> SmallModel {
    let checkpoint = Checkpoint::open(path).unwrap();
    assert_eq!(Model::of(&checkpoint).unwrap().dialect(), Dialect::HuggingFace);
    SmallModel::open(&checkpoint).unwrap()
}

/// Compares the stages of a part on every backend; returns the outputs.
fn check<P: Part>(
    SmallModel(model): &SmallModel,
    part: &P,
    values: &[Named],
    expected: &[Named],
) -> Vec<Named> {
    let (graph, _) = graph_of(part, model.config(), Stages::Shown).unwrap();
    check_graph(&graph, model.weights(), values, expected, &device::backends(2))
        .unwrap_or_else(|report| panic!("{part:?}, {report}"))
}

fn encode(SmallModel(model): &SmallModel, file: &StageFile) -> Encoded<DeviceValue> {
    let pixels = model.upload(&file.inputs("encoder")[0].1).unwrap();
    model.run(&Encode { pictures: 1 }, Pixels { pixels }).unwrap().pictures.remove(0)
}

fn embedding(model: &SmallModel, file: &StageFile) -> Tensor {
    encode(model, file).embedding.unwrap().fetch().unwrap()
}

/// The configuration of the fixture's model is read from the file.
#[test]
fn the_configuration_is_read_from_the_file() {
    let file = StageFile::load(FIXTURE).unwrap();
    let json: serde_json::Value = serde_json::from_str(&file.metadata["config"]).unwrap();
    let number = |key: &str| json[key].as_u64().unwrap() as usize;
    let SmallModel(model) = open(&write(&stored(&file), "configuration").0);
    let decoder = model.config().decoder().unwrap();
    let EncoderConfig::Vit { trunk: encoder, embedding } = &model.config().encoder else {
        panic!("another encoder");
    };
    for (found, key) in [
        (encoder.image_size, "image_size"),
        (encoder.patch, "patch"),
        (encoder.width, "width"),
        (encoder.depth, "depth"),
        (encoder.heads, "heads"),
        (encoder.window, "window"),
        (*embedding, "embedding"),
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
    let model = open(&path.0);
    let mut expected = file.stages("encoder");
    for (name, _) in expected.iter_mut().filter(|(name, _)| name == "embedding") {
        *name = "pictures.0.embedding".to_owned();
    }
    check(&model, &Encode { pictures: 1 }, &file.inputs("encoder"), &expected);
    let expected = file.stage("encoder", "embedding").unwrap();
    let difference = compare(&embedding(&model, &file), &expected, Tolerance::Stage).unwrap();
    assert!(difference.within, "embedding: {difference}");
}

#[test]
fn prompts_and_masks_match_transformers_at_every_stage() {
    let file = StageFile::load(FIXTURE).unwrap();
    let path = write(&stored(&file), "stages");
    let model = open(&path.0);
    let embedding = [("embedding".to_owned(), file.stage("encoder", "embedding").unwrap())];
    let image = check(&model, &PrepareImage, &embedding, &embedding);
    for run in PROMPTS {
        let mut inputs = file.inputs(run);
        let (_, kinds) = inputs.iter().find(|(name, _)| name == "kinds").unwrap();
        let (prompts, points) = (kinds.shape()[0], kinds.shape()[1]);
        let masks = inputs.iter().any(|(name, _)| name == "masks");
        let part = Decode { prompts, points, masks, wanted: Candidates::Three };
        inputs.extend(image.clone());
        let rename = |(name, tensor): Named| match name.as_str() {
            "logits" | "iou" => (format!("decoder.{name}"), tensor),
            _ => (name, tensor),
        };
        let expected: Vec<Named> = file.stages(run).into_iter().map(rename).collect();
        check(&model, &part, &inputs, &expected);
    }
}

/// Swapped tensors fail the comparison, as a mistake in the name table would.
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
        let found = embedding(&open(&write(&tensors, "exchanged").0), &file);
        let difference = compare(&found, &expected, Tolerance::Stage).unwrap();
        assert!(!difference.within, "{one} and {other} can be exchanged: {difference}");
    }
}
