//! Identification of the published checkpoints, and translation of Hugging Face's names to Meta's.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::Folder;
use cutout_tensor::{Shape, SharedBytes, Tensor, TensorType};
use cutout_weights::layout::{Dialect, Family, Identity, Model, Report, Size, identify};
use cutout_weights::{
    Checkpoint, Metadata, OutgoingTensor, WeightsError, write_gguf, write_safetensors,
};

type Keys = BTreeMap<String, Shape>;

/// Names and shapes of one checkpoint; see tests/data/README.md.
fn keys(name: &str) -> Keys {
    let path = format!("{}/tests/data/{name}.keys", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut keys = Keys::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let shape: Shape = match fields[2] {
            "scalar" => Shape::new(&[]),
            axes => axes.split(',').map(|axis| axis.parse::<usize>().unwrap()).collect(),
        };
        for number in numbers(fields[1]) {
            let name = fields[0].replacen('#', &number, 1);
            assert!(keys.insert(name, shape.clone()).is_none(), "{line}");
        }
    }
    keys
}

/// Expands a list of ranges: `0-2,5` is 0, 1, 2 and 5; `-` is one empty text.
fn numbers(text: &str) -> Vec<String> {
    if text == "-" {
        return vec![String::new()];
    }
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<usize>().unwrap()..=last.parse::<usize>().unwrap()
    };
    text.split(',').flat_map(range).map(|number| number.to_string()).collect()
}

/// A safetensors file with these names and shapes. Its data is never read.
fn file(keys: &Keys, prefix: &str) -> Checkpoint {
    let mut header = serde_json::Map::new();
    let mut offset = 0;
    for (name, shape) in keys {
        let end = offset + shape.elements();
        let fields = serde_json::json!(
            {"dtype": "U8", "shape": &shape[..], "data_offsets": [offset, end]});
        header.insert(format!("{prefix}{name}"), fields);
        offset = end;
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    // Zeroed pages take no memory until they are accessed.
    let mut whole = vec![0u8; bytes.len() + offset];
    whole[..bytes.len()].copy_from_slice(&bytes);
    Checkpoint::from_bytes(format!("{prefix}model"), Arc::new(whole) as SharedBytes).unwrap()
}

fn identity_of(keys: &Keys) -> Option<Identity> {
    identify(keys.iter().map(|(name, shape)| (name.as_str(), &shape[..])))
}

#[test]
fn every_published_checkpoint_is_recognised() {
    for (name, family, size) in [
        ("sam1_vit_b_official", Family::Sam1, Size::Base),
        ("sam1_vit_l_official", Family::Sam1, Size::Large),
        ("sam1_vit_h_official", Family::Sam1, Size::Huge),
        ("sam1_vit_b_hf", Family::Sam1, Size::Base),
        ("sam1_vit_l_hf", Family::Sam1, Size::Large),
        ("sam1_vit_h_hf", Family::Sam1, Size::Huge),
        ("sam2.0_tiny_official", Family::Sam2, Size::Tiny),
        ("sam2.1_tiny_official", Family::Sam2_1, Size::Tiny),
        ("sam2.1_small_official", Family::Sam2_1, Size::Small),
        ("sam2.1_base_plus_official", Family::Sam2_1, Size::BasePlus),
        ("sam2.1_large_official", Family::Sam2_1, Size::Large),
        ("sam2.1_tiny_hf_Sam2VideoModel", Family::Sam2_1, Size::Tiny),
        ("sam2.1_tiny_hf_Sam2Model", Family::Sam2Image, Size::Tiny),
        ("sam3_official_full", Family::Sam3, Size::Only),
        ("sam3_hf_Sam3Model", Family::Sam3, Size::Only),
        ("sam3_hf_Sam3VideoModel", Family::Sam3, Size::Only),
        ("sam3_hf_Sam3TrackerVideoModel", Family::Sam3, Size::Only),
        ("sam3_hf_Sam3TrackerModel", Family::Sam3, Size::Only),
    ] {
        let keys = keys(name);
        assert_eq!(identity_of(&keys), Some(Identity { family, size }), "{name}");
        for prefix in ["model.", "module.model.", "sam_model."] {
            let prefixed =
                keys.iter().map(|(name, shape)| (format!("{prefix}{name}"), shape.clone()));
            let found = identity_of(&prefixed.collect());
            assert_eq!(found, Some(Identity { family, size }), "{prefix}{name}");
        }
    }
    assert_eq!(
        identity_of(&Keys::from([("conv1.weight".into(), Shape::new(&[64, 3, 7, 7]))])),
        None
    );
    assert_eq!(identity_of(&Keys::new()), None);
}

#[test]
fn unpublished_sizes_are_called_custom() {
    let mut small = keys("sam1_vit_b_official");
    small.retain(|name, _| !name.contains("blocks.") || name.contains("blocks.1."));
    small.insert("image_encoder.patch_embed.proj.weight".into(), Shape::new(&[40, 3, 16, 16]));
    let identity = identity_of(&small).unwrap();
    assert_eq!(identity.size, Size::Custom { width: 40, depth: 2 });
    assert_eq!(identity.to_string(), "SAM 1, 40 channels, 2 blocks");
}

/// Checks that renaming turns the list `from` into the list `to`, without the names that `except` accepts.
fn becomes(from: &str, to: &str, except: impl Fn(&str) -> bool) {
    let file = file(&keys(from), "");
    let model = Model::of(&file).unwrap();
    assert_eq!(model.dialect(), Dialect::HuggingFace);
    let wanted = keys(to).into_iter().filter(|(name, _)| !except(name));
    let found = model.tensors().map(|(name, _, shape)| (name.to_owned(), shape)).collect();
    let report = Report::compare(wanted, found);
    assert!(report.is_exact(), "{from}:\n{report}");
}

#[test]
fn hugging_face_names_become_metas_for_sam1() {
    for size in ["b", "l", "h"] {
        becomes(&format!("sam1_vit_{size}_hf"), &format!("sam1_vit_{size}_official"), |_| false);
    }
}

#[test]
fn hugging_face_names_become_metas_for_sam2() {
    becomes("sam2.1_tiny_hf_Sam2VideoModel", "sam2.1_tiny_official", |_| false);
    // The image model has no memory.
    let memory = |name: &str| {
        let parts = ["memory_", "obj_ptr", "maskmem", "no_mem_pos", "no_obj", "mask_downsample."];
        parts.iter().any(|part| name.starts_with(part))
    };
    becomes("sam2.1_tiny_hf_Sam2Model", "sam2.1_tiny_official", memory);
}

#[test]
fn hugging_face_names_become_metas_for_sam3() {
    // Tensors that no graph reads, or that Hugging Face's files lack.
    let left_out = |name: &str| {
        let parts = [".freqs_cis", ".points_", "encoder.text_projection", "trunk.pos_embed"];
        parts.iter().any(|part| name.contains(part))
    };
    let same_keys = |from: &str, keys_of: &Keys, belongs: &dyn Fn(&str) -> bool| {
        let file = file(keys_of, "");
        let model = Model::of(&file).unwrap();
        let wanted = keys("sam3_official_full").into_iter();
        let wanted = wanted.filter(|(name, _)| belongs(name) && !left_out(name));
        let found = model.tensors().map(|(name, _, shape)| (name.to_owned(), shape)).collect();
        let mut report = Report::compare(wanted, found);
        report
            .unused
            .retain(|tensor| !left_out(&tensor.name) && !tensor.name.contains("text_projection"));
        assert!(report.is_exact(), "{from}:\n{report}");
    };
    let same = |from: &str, belongs: &dyn Fn(&str) -> bool| same_keys(from, &keys(from), belongs);
    let clicks = |name: &str| name.contains(".sam2_convs.");
    let detector = |name: &str| name.starts_with("detector.");
    same("sam3_hf_Sam3VideoModel", &|_| true);
    same("sam3_hf_Sam3Model", &|name| detector(name) && !clicks(name));
    let tracker = |name: &str| name.contains(".trunk.") || clicks(name) || !detector(name);
    same("sam3_hf_Sam3TrackerVideoModel", &tracker);
    let memory = |name: &str| {
        let parts = [
            "maskmem_",
            "transformer.",
            "no_obj_",
            "no_mem_pos_enc",
            "mask_downsample.",
            "obj_ptr_",
        ];
        parts
            .iter()
            .any(|part| name.strip_prefix("tracker.").is_some_and(|name| name.starts_with(part)))
    };
    same("sam3_hf_Sam3TrackerModel", &|name| tracker(name) && !memory(name));
    // The names in saved files differ from the names of the module's parameters.
    let rename = |from: &str, new: &dyn Fn(&str) -> String| -> Keys {
        keys(from).into_iter().map(|(name, shape)| (new(&name), shape)).collect()
    };
    let saved =
        rename("sam3_hf_Sam3VideoModel", &|name| match name.strip_prefix("tracker_model.") {
            Some(_) => format!("tracker_model.{name}"),
            None => name.to_owned(),
        });
    same_keys("Sam3VideoModel, saved", &saved, &|_| true);
    let saved = rename("sam3_hf_Sam3TrackerVideoModel", &|name| {
        let name = name.replace("vision_encoder.neck.", "tracker_neck.");
        format!(
            "tracker_model.{}",
            name.replace("vision_encoder.backbone.", "detector_model.vision_encoder.backbone.")
        )
    });
    same_keys("Sam3TrackerVideoModel, saved", &saved, &tracker);
}

/// The report about a file of [`file`], whose elements are bytes so that it is small.
fn report<'n>(model: &Model<'_>, needed: impl Iterator<Item = (&'n String, &'n Shape)>) -> Report {
    let report = model.report(needed.map(|(name, shape)| (name.as_str(), shape.clone())));
    assert!(report.unsuitable.iter().all(|tensor| tensor.stored == "u8"));
    Report { unsuitable: Vec::new(), ..report }
}

#[test]
fn computed_tensors_are_not_reported_as_unused() {
    let all = keys("sam3_official_full");
    let file = file(&all, "");
    let model = Model::of(&file).unwrap();
    let rotation = |name: &str| name.ends_with(".attn.freqs_cis");
    assert_eq!(all.keys().filter(|name| rotation(name)).count(), 32);
    let needed = all.iter().filter(|(name, _)| !rotation(name));
    let report = report(&model, needed);
    assert!(report.is_exact(), "{report}");
    for name in all.keys() {
        assert_eq!(Model::computed(name).is_some(), rotation(name), "{name}");
    }
}

/// A small file in Hugging Face's layout of SAM 3, with these projections of the first block's attention.
fn split_attention(name: &str, parts: &[(&str, Tensor)]) -> (Folder, Checkpoint) {
    let folder = Folder::new(name);
    let path = folder.0.join("model");
    let patch = Tensor::zeros(&TensorType::f32([6, 3, 2, 2])).unwrap();
    let mut tensors = vec![OutgoingTensor::new(
        "vision_encoder.backbone.embeddings.patch_embeddings.projection.weight",
        patch,
    )];
    for (part, tensor) in parts {
        let name = format!("vision_encoder.backbone.layers.0.attention.{part}.weight");
        tensors.push(OutgoingTensor::new(name, tensor.clone()));
    }
    write_safetensors(&path, &tensors, &Metadata::new()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    (folder, checkpoint)
}

#[test]
fn queries_keys_and_values_are_stacked() {
    let rows = |first: f32| Tensor::from_vec([2, 1], vec![first, first + 1.0]).unwrap();
    let parts = [("v_proj", rows(5.0)), ("q_proj", rows(1.0)), ("k_proj", rows(3.0))];
    let (_folder, checkpoint) = split_attention("parts", &parts);
    let model = Model::of(&checkpoint).unwrap();
    let whole = "detector.backbone.vision_backbone.trunk.blocks.0.attn.qkv.weight";
    let tensor = model.tensor(whole).unwrap();
    assert_eq!(tensor.shape()[..], [6, 1]);
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let (_, ty, shape) = model.tensors().find(|(name, ..)| *name == whole).unwrap();
    assert_eq!((ty.unwrap().shape, shape.clone()), (shape, Shape::new(&[6, 1])));
    let refused = |name: &str, parts: &[(&str, Tensor)]| {
        let (_folder, checkpoint) = split_attention(name, parts);
        Model::of(&checkpoint).map(drop).unwrap_err().to_string()
    };
    let missing = refused("missing_part", &parts[..2]);
    assert!(missing.contains("attn.qkv.weight") && missing.contains("2 of the three"), "{missing}");
    let mut unlike = parts;
    unlike[2].1 = Tensor::from_vec([3, 1], vec![0f32; 3]).unwrap();
    let unlike = refused("unlike_part", &unlike);
    assert!(unlike.contains("f32 [2, 1], f32 [3, 1]"), "{unlike}");
}

#[test]
fn metas_names_are_kept_and_prefixes_stripped() {
    for name in ["sam1_vit_b_official", "sam2.1_large_official", "sam3_official_full"] {
        for prefix in ["", "model.", "module."] {
            let mut wanted = keys(name);
            wanted.retain(|name, _| Model::computed(name).is_none());
            let file = file(&wanted, prefix);
            let model = Model::of(&file).unwrap();
            assert_eq!(model.dialect(), Dialect::Meta);
            let report = report(&model, wanted.iter());
            assert!(report.is_exact(), "{prefix}{name}:\n{report}");
        }
    }
    // A file with the detector only, without its prefix.
    let detector: Keys = keys("sam3_official_full")
        .into_iter()
        .filter_map(|(name, shape)| Some((name.strip_prefix("detector.")?.to_owned(), shape)))
        .collect();
    let file = file(&detector, "");
    let model = Model::of(&file).unwrap();
    assert!(model.tensors().all(|(name, ..)| name.starts_with("detector.")));
}

#[test]
fn tensors_of_no_known_model_are_an_error() {
    let other = file(&Keys::from([("conv1.weight".into(), Shape::new(&[1]))]), "");
    let error = Model::of(&other).map(drop).unwrap_err();
    assert!(matches!(error, WeightsError::UnknownModel { tensors: 1, .. }), "{error}");
}

#[test]
fn rows_of_a_fused_tensor_become_tensors() {
    let folder = Folder::new("rows");
    let path = folder.0.join("model");
    let zeros = |shape: &[usize]| Tensor::zeros(&TensorType::f32(shape)).unwrap();
    let points = Tensor::from_vec([4, 3], (0..12).map(|i| i as f32).collect()).unwrap();
    let matrix = Tensor::from_vec([2, 2], vec![1f32, 2.0, 3.0, 4.0]).unwrap();
    let tensors = [
        ("vision_encoder.backbone.patch_embed.projection.weight", zeros(&[6, 3, 7, 7])),
        ("prompt_encoder.point_embed.weight", points),
        ("shared_image_embedding.positional_embedding", matrix.clone()),
        ("prompt_encoder.shared_embedding.positional_embedding", matrix),
    ];
    let tensors = tensors.map(|(name, tensor)| OutgoingTensor::new(name, tensor));
    write_safetensors(&path, &tensors, &Metadata::new()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let model = Model::of(&checkpoint).unwrap();
    let row = model.tensor("sam_prompt_encoder.point_embeddings.2.weight").unwrap();
    assert_eq!(row.shape()[..], [1, 3]);
    assert_eq!(row.to_vec::<f32>().unwrap(), [6.0, 7.0, 8.0]);
    // Written under canonical names, the file is identified as Meta's.
    let encoding = cutout_weights::Encoding::Keep;
    write_gguf(&path, &model.outgoing().tensors, &Metadata::new(), encoding).unwrap();
    let written = Checkpoint::open(&path).unwrap();
    let again = Model::of(&written).unwrap();
    assert_eq!(again.dialect(), Dialect::Meta);
    let (names, expected): (Vec<_>, Vec<_>) =
        (again.tensors().collect(), model.tensors().collect());
    assert_eq!(names, expected);
}

#[test]
fn a_report_lists_all_differences() {
    let wanted = keys("sam1_vit_b_official");
    let mut damaged = wanted.clone();
    let shape = damaged.remove("mask_decoder.iou_token.weight").unwrap();
    damaged.insert("mask_decoder.iou_tokn.weight".into(), shape);
    damaged.insert("image_encoder.neck.1.bias".into(), Shape::new(&[128]));
    damaged.insert("left.over".into(), Shape::new(&[1]));
    let file = file(&damaged, "");
    let model = Model::of(&file).unwrap();
    let report = report(&model, wanted.iter());
    assert!(!report.is_usable());
    assert_eq!(report.missing.len(), 1);
    assert_eq!(report.missing[0].nearest.as_deref(), Some("mask_decoder.iou_tokn.weight"));
    assert_eq!(report.misshapen.len(), 1);
    assert_eq!(report.unused.len(), 2);
    let text = report.to_string();
    for line in [
        "mask_decoder.iou_token.weight: missing [1, 256] (did you mean mask_decoder.iou_tokn.weight?)",
        "image_encoder.neck.1.bias: expected [256], the checkpoint has [128]",
        "left.over: not used [1]",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\nnot in\n{text}");
    }
    let error = model.tensor("mask_decoder.iou_token.weight").unwrap_err();
    assert!(error.to_string().contains("iou_tokn"), "{error}");
}
