//! Whole models from checkpoint files: written in every format and layout, opened by content, and run.

use std::path::Path;

use crate::support::{Folder, SmallModel, Tensors, outgoing, sam2_metadata, tensors};
use cutout_sam::model::config::EncoderConfig;
use cutout_sam::parts::{Decode, DecodeInputs, Encode, Encoded, Pixels, PrepareImage};
use cutout_sam::{Candidates, OpenError, inspect, load};
use cutout_tensor::{Tensor, Tolerance, compare};
use cutout_testing::StageFile;
use cutout_weights::layout::Family;
use cutout_weights::{Checkpoint, Encoding, Metadata, write_gguf, write_safetensors};

fn open(path: &Path) -> Result<SmallModel, OpenError> {
    SmallModel::open(&Checkpoint::open(path)?)
}

/// The features of the fixture's picture.
fn encode(model: &SmallModel, file: &StageFile) -> Encoded<cutout_graph::DeviceValue> {
    let pixels = model.0.upload(&file.inputs("encoder").remove(0).1).unwrap();
    let mut encoded = model.0.run(&Encode { pictures: 1 }, Pixels { pixels }).unwrap();
    encoded.pictures.remove(0)
}

fn embedding_of(model: &SmallModel, file: &StageFile) -> Tensor {
    encode(model, file).embedding.unwrap().fetch().unwrap()
}

fn window(config: &cutout_sam::model::config::ModelConfig) -> usize {
    let EncoderConfig::Vit { trunk, .. } = &config.encoder else { panic!("another encoder") };
    trunk.window
}

#[test]
fn every_format_gives_the_same_embedding() {
    let file = StageFile::load("sam1/wide.safetensors").unwrap();
    let tensors = tensors([&file]);
    let expected = file.stage("encoder", "embedding").unwrap();
    let folder = Folder::new("checkpoints-formats");
    let [safetensors, gguf] = ["model.safetensors", "model.gguf"].map(|name| folder.0.join(name));
    write_safetensors(&safetensors, &outgoing(&tensors), &Metadata::new()).unwrap();
    write_gguf(&gguf, &outgoing(&tensors), &Metadata::new(), Encoding::Keep).unwrap();
    for path in [&safetensors, &gguf] {
        let sam = open(path).unwrap();
        let found = embedding_of(&sam, &file);
        let difference = compare(&found, &expected, Tolerance::Stage).unwrap();
        assert!(difference.within, "{}: {difference}", path.display());
        assert_eq!(window(sam.0.config()), 3);
    }
}

#[test]
fn half_precision_weights_stay_close() {
    let file = StageFile::load("sam1/wide.safetensors").unwrap();
    let tensors = tensors([&file]);
    let folder = Folder::new("checkpoints-half");
    let path = folder.0.join("model.gguf");
    write_gguf(&path, &outgoing(&tensors), &Metadata::new(), Encoding::F16).unwrap();
    let found = embedding_of(&open(&path).unwrap(), &file);
    let expected = file.stage("encoder", "embedding").unwrap();
    let difference = compare(&found, &expected, Tolerance::HalfPrecision).unwrap();
    assert!(difference.normalised_square_error < 1e-5, "{difference}");
    assert!(difference.largest > 0.0, "half precision was not used");
}

#[test]
fn a_prompt_is_answered() {
    let file = StageFile::load("sam1/wide.safetensors").unwrap();
    let tensors = tensors([&file]);
    let folder = Folder::new("checkpoints-prompt");
    let path = folder.0.join("model.safetensors");
    write_safetensors(&path, &outgoing(&tensors), &Metadata::new()).unwrap();
    let SmallModel(model) = open(&path).unwrap();
    let features = encode(&SmallModel::open(&Checkpoint::open(&path).unwrap()).unwrap(), &file);
    let image = model.run(&PrepareImage, features).unwrap();
    let inputs = file.inputs("points_mask");
    let input = |name: &str| {
        model.upload(&inputs.iter().find(|(other, _)| other == name).unwrap().1).unwrap()
    };
    for (masks, wanted) in [(false, Candidates::Three), (true, Candidates::One)] {
        let kinds = input("kinds");
        let part = Decode { prompts: 2, points: kinds.ty().shape[1], masks, wanted };
        let unmasked = |value: &cutout_graph::DeviceValue| (!masks).then(|| value.clone());
        let inputs = DecodeInputs {
            points: input("points"),
            kinds,
            masks: masks.then(|| input("masks")),
            embedding: masks.then(|| image.embedding.clone()),
            image: unmasked(&image.image),
            positions: unmasked(&image.positions),
            first: (!masks).then(|| image.first.clone()),
            level0: None,
            level1: None,
        };
        let answers = model.run(&part, inputs).unwrap();
        let count = if masks { 1 } else { 3 };
        assert_eq!(answers.logits.ty().shape[..], [2, count, 20, 20]);
        assert_eq!(answers.iou.ty().shape[..], [2, count]);
        assert!(answers.object_score.is_none());
        let logits = answers.logits.fetch().unwrap().to_f64_vec().unwrap();
        assert!(logits.iter().all(|logit| logit.is_finite()));
    }
}

#[test]
fn all_missing_and_misshapen_tensors_are_listed() {
    let file = StageFile::load("sam1/wide.safetensors").unwrap();
    let mut tensors = tensors([&file]);
    tensors.remove("mask_decoder.iou_token.weight").unwrap();
    tensors.insert(
        "image_encoder.neck.3.bias".to_owned(),
        Tensor::from_vec([3], vec![0f32; 3]).unwrap(),
    );
    let folder = Folder::new("checkpoints-misfit");
    let path = folder.0.join("model.safetensors");
    write_safetensors(&path, &outgoing(&tensors), &Metadata::new()).unwrap();
    let message = open(&path).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("mask_decoder.iou_token.weight"), "{message}");
    assert!(message.contains("image_encoder.neck.3.bias"), "{message}");
    let inside = inspect(&Checkpoint::open(&path).unwrap()).unwrap().inside.unwrap();
    assert_eq!(inside.report.missing[0].name, "mask_decoder.iou_token.weight");
    assert_eq!(inside.report.misshapen[0].name, "image_encoder.neck.3.bias");
    assert_eq!(window(&inside.config), 3);
    let missing = open(&folder.0.join("absent.pth")).map(|_| ()).unwrap_err().to_string();
    assert!(missing.contains("no such file"), "{missing}");
}

/// The weights of a small SAM 2, with its fixtures.
fn small_sam2(version: &str) -> (Tensors, [StageFile; 2]) {
    let files = ["image", "memory"]
        .map(|part| StageFile::load(&format!("sam2/{version}_{part}.safetensors")).unwrap());
    (tensors(&files), files)
}

/// Metadata of the small models, with a number of pointer frames.
fn metadata_of(file: &StageFile) -> Metadata {
    let mut metadata = sam2_metadata(file);
    metadata.insert("sam2.pointer_frames".to_owned(), "9".into());
    metadata
}

#[test]
fn sam2_is_opened_from_every_format() {
    let folder = Folder::new("checkpoints-sam2");
    for version in ["2.0", "2.1"] {
        let (tensors, [file, _]) = small_sam2(version);
        let metadata = metadata_of(&file);
        let [safetensors, gguf] =
            ["safetensors", "gguf"].map(|end| folder.0.join(format!("{version}.{end}")));
        write_safetensors(&safetensors, &outgoing(&tensors), &metadata).unwrap();
        write_gguf(&gguf, &outgoing(&tensors), &metadata, Encoding::Keep).unwrap();
        for path in [&safetensors, &gguf] {
            let checkpoint = Checkpoint::open(path).unwrap();
            let known = if version == "2.0" { Family::Sam2 } else { Family::Sam2_1 };
            assert_eq!(inspect(&checkpoint).unwrap().identity.family, known);
            let model = SmallModel::open(&checkpoint).unwrap();
            assert_eq!(model.0.config().metadata(), metadata);
            let expected = file.stage("encoder", "embedding").unwrap();
            let difference =
                compare(&embedding_of(&model, &file), &expected, Tolerance::Stage).unwrap();
            assert!(difference.within, "{}: {difference}", path.display());
        }
    }
}

#[test]
fn sam2_that_does_not_fit_is_explained() {
    let folder = Folder::new("checkpoints-sam2-misfit");
    let path = folder.0.join("model.safetensors");
    let (mut tensors, [file, _]) = small_sam2("2.1");
    let failure = |tensors: &Tensors, metadata: &Metadata| {
        write_safetensors(&path, &outgoing(tensors), metadata).unwrap();
        load(&Checkpoint::open(&path).unwrap()).map(|_| ()).unwrap_err().to_string()
    };
    let unknown = failure(&tensors, &Metadata::new());
    assert!(unknown.contains("sam2.image_size: SAM 2.1, 8 channels, 8 blocks"), "{unknown}");
    assert!(unknown.starts_with(&path.display().to_string()), "{unknown}");
    let mut metadata = metadata_of(&file);
    metadata.insert("sam2.windows".to_owned(), "4,6,6,3".into());
    let windows = failure(&tensors, &metadata);
    assert!(windows.contains("image_encoder.trunk.pos_embed_window"), "{windows}");
    tensors.remove("no_obj_ptr").unwrap();
    tensors.remove("sam_mask_decoder.obj_score_token.weight").unwrap();
    let missing = failure(&tensors, &metadata_of(&file));
    assert!(missing.contains("no_obj_ptr"), "{missing}");
    assert!(missing.contains("2 tensors are missing") && !missing.contains('\n'), "{missing}");
}
