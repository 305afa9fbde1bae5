//! Whole models from checkpoint files: written in every format and layout, opened by content, and run.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::path::Path;
use std::sync::Arc;

use cutout_cpu::Cpu;
use cutout_graph::{Backend, Profile};
use cutout_sam::{Config, OpenError, PromptBatch, Sam1, inspect, sam2};
use cutout_tensor::{Tensor, Tolerance, compare};
use cutout_testing::StageFile;
use cutout_weights::layout::Family;
use cutout_weights::{Checkpoint, Encoding, Metadata, write_gguf, write_safetensors};
use support::{Folder, Tensors, outgoing, sam2_metadata, tensors};

fn open(path: &Path) -> Result<Sam1, OpenError> {
    Sam1::open(path, Arc::new(Cpu::new(2)), Profile::default())
}

/// The fixture with a decoder of eight heads, which is what every checkpoint has.
fn embedding_of(sam: &Sam1, file: &StageFile) -> Tensor {
    let pixels = file.inputs("encoder").remove(0).1;
    sam.encode(&pixels).unwrap().image().clone()
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
        assert_eq!(sam.config().encoder.window, 3);
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
    let sam = open(&path).unwrap();
    let image = sam.encode(&file.inputs("encoder").remove(0).1).unwrap();
    let inputs = file.inputs("points_mask");
    let input = |name: &str| inputs.iter().find(|(other, _)| other == name).unwrap().1.clone();
    for masks in [None, Some(input("masks"))] {
        let batch = PromptBatch { points: input("points"), kinds: input("kinds"), masks };
        let decoded = sam.decode(&image, &batch).unwrap();
        assert_eq!(decoded.logits.shape()[..], [2, 4, 20, 20]);
        assert_eq!(decoded.iou.shape()[..], [2, 4]);
        assert!(decoded.logits.to_f64_vec().unwrap().iter().all(|x| x.is_finite()));
    }
}

#[test]
fn what_does_not_fit_is_listed_at_once() {
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
    let Config::Sam1(config) = inside.config else { panic!("another family") };
    assert_eq!(config.encoder.window, 3);
    let missing = open(&folder.0.join("absent.pth")).map(|_| ()).unwrap_err().to_string();
    assert!(missing.contains("no such file"), "{missing}");
}

/// The weights of a small SAM 2, and what made them.
fn small_sam2(version: &str) -> (Tensors, [StageFile; 2]) {
    let files = ["image", "memory"]
        .map(|part| StageFile::load(&format!("sam2/{version}_{part}.safetensors")).unwrap());
    (tensors(&files), files)
}

/// What no shape of the small models tells, and a number that every shape leaves open.
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
            let loaded = sam2::load(&Checkpoint::open(path).unwrap()).unwrap();
            assert_eq!(loaded.config.metadata(), metadata);
            let known = if version == "2.0" { Family::Sam2 } else { Family::Sam2_1 };
            assert_eq!(loaded.identity.family, known);
            let graph = sam2::encoder_graph(&loaded.config).unwrap();
            let program =
                Cpu::new(2).compile(&graph, &loaded.weights, &Profile::default()).unwrap();
            let pixels = file.inputs("encoder").remove(0).1;
            let outputs = program.run(&[("pixels", &pixels)]).unwrap();
            let expected = file.stage("encoder", "embedding").unwrap();
            let (_, found) = outputs.iter().find(|(name, _)| name == "embedding").unwrap();
            let difference = compare(found, &expected, Tolerance::Stage).unwrap();
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
        sam2::load(&Checkpoint::open(&path).unwrap()).map(|_| ()).unwrap_err().to_string()
    };
    let unknown = failure(&tensors, &Metadata::new());
    assert!(unknown.starts_with("sam2.image_size: SAM 2.1, 8 channels, 8 blocks"), "{unknown}");
    let mut metadata = metadata_of(&file);
    metadata.insert("sam2.windows".to_owned(), "4,6,6,3".into());
    let windows = failure(&tensors, &metadata);
    assert!(windows.contains("image_encoder.trunk.pos_embed_window"), "{windows}");
    tensors.remove("no_obj_ptr").unwrap();
    tensors.remove("sam_mask_decoder.obj_score_token.weight").unwrap();
    let missing = failure(&tensors, &metadata_of(&file));
    assert!(missing.contains("no_obj_ptr"), "{missing}");
    assert!(missing.contains("sam_mask_decoder.obj_score_token.weight"), "{missing}");
}
