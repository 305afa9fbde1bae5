//! `cutout segment`: prompts, outputs and ways to run.

use cutout_imaging::{DecodeLimits, Size, open};
use cutout_tensor::{DType, Tensor};
use cutout_weights::Checkpoint;
use serde_json::Value;

use crate::support::{Folder, MODEL, folder_with_model, folder_with_sam3};

/// The records of `--json`.
fn annotations(document: &Value) -> &Vec<Value> {
    document["annotations"].as_array().unwrap()
}

/// Pixels of a PNG that are not black.
fn area(folder: &Folder, name: &str) -> u64 {
    let image = open(folder.path(name), &DecodeLimits::default()).unwrap();
    assert_eq!(image.size(), Size::new(50, 31), "{name}");
    image.as_rgb().chunks_exact(3).filter(|pixel| *pixel != [0, 0, 0]).count() as u64
}

#[test]
fn without_outputs_a_mask_and_an_overlay_are_written() {
    let folder = folder_with_model();
    let ended = folder.segment(&[]);
    assert!(ended.stderr.contains("wrote picture.mask.png and picture.overlay.png"));
    assert_eq!(ended.succeeds(), "");
    let mask = area(&folder, "picture.mask.png");
    assert!(mask > 0 && mask < 50 * 31, "{mask} pixels: neither nothing nor everything");
    assert_eq!(
        open(folder.path("picture.overlay.png"), &DecodeLimits::default()).unwrap().size(),
        Size::new(50, 31)
    );
    assert!(folder.temporary_files().is_empty());
}

#[test]
pub(crate) fn every_output_holds_the_same_mask() {
    let folder = folder_with_model();
    let document = folder
        .segment(&[
            "-o",
            "mask.png",
            "--output",
            "mask.json",
            "-o",
            "mask.svg",
            "-o",
            "mask.geojson",
            "-o",
            "mask.npy",
            "--overlay",
            "over.png",
            "--cutout",
            "cut.png",
            "--json",
        ])
        .json();
    assert_eq!(document, folder.json("mask.json"));
    assert_eq!(document["images"][0]["width"], 50);
    assert_eq!(document["images"][0]["height"], 31);
    let [record] = &annotations(&document)[..] else { panic!("one prompt, one mask") };
    let pixels = record["area"].as_u64().unwrap();
    assert_eq!(area(&folder, "mask.png"), pixels);
    let npy = folder.read("mask.npy");
    assert_eq!(npy[npy.len() - 50 * 31..].iter().filter(|byte| **byte == 1).count() as u64, pixels);
    // Colour type 6: red, green, blue and alpha.
    assert_eq!(folder.read("cut.png")[25], 6);
    let svg = String::from_utf8(folder.read("mask.svg")).unwrap();
    assert!(svg.contains("viewBox=\"0 0 50 31\"") && svg.contains("<path"), "{svg}");
    let feature = &folder.json("mask.geojson")["features"][0];
    assert_eq!(feature["properties"]["area"], record["area"]);
    assert!(feature["geometry"]["coordinates"].is_array());
    let photo = open(folder.path("picture.png"), &DecodeLimits::default()).unwrap();
    let over = open(folder.path("over.png"), &DecodeLimits::default()).unwrap();
    let pairs = photo.as_rgb().chunks_exact(3).zip(over.as_rgb().chunks_exact(3));
    let changed = pairs.filter(|(photo, over)| photo != over).count() as u64;
    assert!(changed > 0 && changed <= 50 * 31, "{changed}");
    assert!(!folder.has("picture.mask.png"), "only what was asked for");
    folder.segment(&["-o", "mask.bmp"]).wrong_usage(&["--output", ".png, .json, .svg"]);
}

#[test]
pub(crate) fn points_boxes_and_candidates() {
    let folder = folder_with_model();
    let one = folder.segment(&["--json"]).json();
    let refined = folder.segment(&["-p", "3,3,0", "--json"]).json();
    assert_ne!(one["annotations"], refined["annotations"], "a second point changes the answer");
    assert_eq!(annotations(&refined).len(), 1, "points belong to one object");
    let fractions =
        ["segment", "picture.png", "--model", MODEL, "-p", "0.4,0.5", "--normalized", "--json"];
    let pixels = ["segment", "picture.png", "-m", MODEL, "-p", "20,15.5", "--json"];
    assert_eq!(folder.cutout(&fractions).json(), folder.cutout(&pixels).json());
    let boxes = ["--box", "2,3,30,20", "-b", "10,10,49,30", "--json", "-o", "labels.png"];
    let boxes = [&["segment", "picture.png", "-m", MODEL], &boxes[..]].concat();
    let boxes = folder.cutout(&boxes).json();
    let prompts: Vec<&Value> = annotations(&boxes).iter().map(|record| &record["prompt"]).collect();
    assert_eq!(prompts, [0, 1]);
    // Colour type 3: palette indices, one for each object.
    assert_eq!(folder.read("labels.png")[25], 3);
    let three = folder.segment(&["--multimask", "--json"]).json();
    let best = annotations(&three).iter().filter(|record| record["best"] == true).count();
    assert_eq!((annotations(&three).len(), best), (3, 1));
    folder.segment(&["-b", "0,0,9,9", "-b", "9,9,20,20"]).wrong_usage(&["several boxes"]);
    folder.cutout(&["segment", "picture.png", "-m", MODEL]).wrong_usage(&["nothing to segment"]);
    folder.segment(&["-p", "3"]).wrong_usage(&["--point", "X,Y"]);
    folder.segment(&["-b", "1,2,3"]).wrong_usage(&["--box", "X0,Y0,X1,Y1"]);
}

#[test]
pub(crate) fn thresholds_drop_masks_and_pixels() {
    let folder = folder_with_model();
    let none = folder.segment(&["--threshold", "1", "--json", "-o", "none.png"]).json();
    assert!(annotations(&none).is_empty());
    assert_eq!(area(&folder, "none.png"), 0);
    let all = folder.segment(&["--json"]).json();
    assert_eq!(annotations(&all).len(), 1);
    let everything = folder.segment(&["--mask-threshold", "-1000", "--json"]).json();
    assert_eq!(annotations(&everything)[0]["area"], 50 * 31);
    let nothing = folder.segment(&["--mask-threshold", "1000", "--json"]).json();
    assert_eq!(annotations(&nothing)[0]["area"], 0);
    assert_eq!(annotations(&nothing)[0]["stability_score"], Value::Null);
}

/// Logits of one mask as NumPy writes them.
pub(crate) fn npy(logits: &[f32], side: usize) -> Vec<u8> {
    let mut header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({side}, {side}), }}");
    header.push_str(&" ".repeat(117 - header.len()));
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    file.extend(logits.iter().flat_map(|value| value.to_le_bytes()));
    file
}

#[test]
pub(crate) fn raw_tensors_can_be_fed_back() {
    let folder = folder_with_model();
    folder.segment(&["--multimask", "--raw", "raw.safetensors"]).succeeds();
    let raw = Checkpoint::open(folder.path("raw.safetensors")).unwrap();
    for (name, shape, dtype) in [
        ("image_embedding", &[1, 32, 5, 5][..], DType::F32),
        ("low_res_logits", &[1, 3, 20, 20], DType::F32),
        ("iou", &[1, 3], DType::F32),
        ("masks", &[1, 3, 31, 50], DType::U8),
    ] {
        let tensor = raw.tensor(name).unwrap();
        assert_eq!((&tensor.shape()[..], tensor.dtype()), (shape, dtype), "{name}");
    }
    let plain = folder.segment(&["--json"]).json();
    let refined = folder.segment(&["--mask-input", "raw.safetensors", "--json"]).json();
    assert_ne!(plain["annotations"], refined["annotations"]);
    let iou = raw.tensor("iou").unwrap().to_vec::<f32>().unwrap();
    let best = (0..3).max_by(|a, b| iou[*a].total_cmp(&iou[*b])).unwrap();
    let logits = raw.tensor("low_res_logits").unwrap().slice(1, best..best + 1).unwrap();
    folder.write("best.npy", npy(&logits.to_vec::<f32>().unwrap(), 20));
    let same = folder.segment(&["--mask-input", "best.npy", "--json"]).json();
    assert_eq!(same, refined, "the best of the file, in either format");
    folder.write("small.npy", npy(&[0.0; 9], 3));
    folder.segment(&["--mask-input", "small.npy"]).fails(&["20"]);
    folder.segment(&["--mask-input", MODEL]).fails(&[MODEL, "--raw"]);
    folder.segment(&["--mask-input", "absent.npy"]).fails(&["absent.npy"]);
}

#[test]
pub(crate) fn phrases_find_objects() {
    let folder = folder_with_sam3();
    let phrases = ["--text", "cat", "--text", "yellow school bus", "--threshold", "0"];
    let outputs = ["--json", "-o", "found.json", "--overlay", "over.png", "-o", "found.geojson"];
    let document = folder.find(&[&phrases[..], &outputs].concat()).json();
    assert_eq!(document, folder.json("found.json"));
    assert_eq!(document["categories"][0], serde_json::json!({"id": 1, "name": "cat"}));
    assert_eq!(document["categories"][1]["name"], "yellow school bus");
    let records = annotations(&document);
    assert_eq!(records.len(), 10, "all five queries of both phrases");
    for (index, record) in records.iter().enumerate() {
        let phrase = ["cat", "yellow school bus"][index / 5];
        assert_eq!(record["phrase"], phrase);
        assert_eq!(record["category_id"], index / 5 + 1);
        assert!(record["score"].as_f64() <= record["presence"].as_f64());
        assert!(record["detected_bbox"][3].is_number() && record["predicted_iou"].is_null());
    }
    let scores: Vec<f64> = records.iter().map(|one| one["score"].as_f64().unwrap()).collect();
    assert!(scores[..5].is_sorted_by(|a, b| a >= b));
    let features = folder.json("found.geojson");
    assert_eq!(features["features"][9]["properties"]["phrase"], "yellow school bus");
    // One between two scores, and one above all.
    let between = ((scores[1] + scores[2]) / 2.0).to_string();
    let fewer = folder.find(&["--text", "cat", "--threshold", &between, "--json"]).json();
    assert_eq!(annotations(&fewer)[..], records[..2]);
    let none = folder.find(&["--text", "cat", "--threshold", "1", "--json"]);
    let note = "\"cat\": nothing found; the best score is 0.0";
    assert!(none.stderr.contains(note) && none.stderr.contains("presence 0."), "{}", none.stderr);
    assert!(annotations(&none.json()).is_empty());
}

#[test]
pub(crate) fn exemplars_and_semantic_masks() {
    let folder = folder_with_sam3();
    let find = |more: &[&str]| {
        let found = folder.find(&[&["--threshold", "0", "--json"], more].concat()).json();
        annotations(&found).clone()
    };
    let alone = find(&["--exemplar", "+10,5,40,25"]);
    assert_eq!(alone, find(&["--exemplar", "10,5,40,25"]));
    assert_eq!(
        alone,
        find(&["--exemplar", "0.2,0.161290322580645,0.8,0.806451612903226", "--normalized"])
    );
    assert!(alone.iter().all(|record| record["phrase"].is_null()));
    let not = find(&["--exemplar", "-10,5,40,25"]);
    assert_ne!(alone, not);
    assert_ne!(find(&["--text", "cat"]), find(&["--text", "cat", "--exemplar", "-10,5,40,25"]));
    let apart = find(&["--text", "cat", "--mask-nms-thresh", "0.1"]);
    assert!(!apart.is_empty() && apart.len() < find(&["--text", "cat"]).len());
    let semantic = find(&["--text", "cat", "--semantic"]);
    assert_eq!(semantic.len(), 1);
    assert_eq!(semantic[0]["score"], semantic[0]["presence"]);
    // A threshold above all scores drops every object but not the semantic mask.
    let above = folder.find(&["--text", "cat", "--semantic", "--threshold", "1", "--json"]);
    assert_eq!(annotations(&above.json())[..], semantic[..]);
    folder.find(&["--exemplar", "10,5,10,25"]).fails(&["exemplar", "no area"]);
    folder.find(&["--exemplar", "10,5,99,25"]).fails(&["exemplar", "outside"]);
    folder.find(&["--exemplar", "1,2,3"]).wrong_usage(&["--exemplar", "X0,Y0,X1,Y1", "X,Y"]);
}

#[test]
pub(crate) fn a_saved_scene_replaces_the_encoder() {
    let folder = folder_with_model();
    folder.segment(&["--save-scene", "scene.safetensors"]).succeeds();
    assert!(!folder.has("picture.mask.png"), "only what was asked for");
    let again = folder.segment(&["--scene", "scene.safetensors", "--json"]).json();
    assert_eq!(again, folder.segment(&["--json"]).json());
    folder.picture("other.png", Size::new(31, 50));
    let other = ["segment", "other.png", "-m", MODEL, "-p", "3,3", "--scene", "scene.safetensors"];
    folder.cutout(&other).fails(&["scene.safetensors", "50", "31"]);
    folder.segment(&["--scene", MODEL]).fails(&["not a scene"]);
    let mut tensors = crate::support::model_tensors();
    for (name, tensor) in &mut tensors {
        if name == "image_encoder.neck.1.weight" {
            let doubled = tensor.to_vec::<f32>().unwrap().iter().map(|value| value * 2.0).collect();
            *tensor = Tensor::from_vec::<f32>(tensor.shape().clone(), doubled).unwrap();
        }
    }
    folder.checkpoint("other.safetensors", tensors);
    let refused = ["segment", "picture.png", "-m", "other.safetensors", "-p", "3,3", "--scene"];
    let refused = [&refused[..], &["scene.safetensors"]].concat();
    folder.cutout(&refused).fails(&["made with other weights"]);
}

#[test]
pub(crate) fn devices_threads_and_precisions() {
    let folder = folder_with_model();
    let plain = folder.segment(&["--json"]).json();
    for same in [["--threads", "1"], ["--threads", "3"], ["--device", "cpu"], ["--device", "auto"]]
    {
        assert_eq!(folder.segment(&[&same[..], &["--json"]].concat()).json(), plain, "{same:?}");
    }
    let int8 = folder.segment(&["--precision", "int8", "--json"]).json();
    assert_eq!(annotations(&int8).len(), 1);
    assert_ne!(int8, plain, "int8 was not used");
    let bf16 = folder.segment(&["--precision", "bf16", "--json"]).json();
    assert_eq!(annotations(&bf16).len(), 1);
    assert_ne!(bf16, plain, "bf16 was not used");
    folder.segment(&["--precision", "f16"]).fails(&["the CPU multiplies in f32, bf16 or int8"]);
    folder.segment(&["--device", "cuda:4711"]).fails(&["cuda:4711"]);
    folder.segment(&["--device", "cuda:all"]).wrong_usage(&["cuda:all", "cutout batch", "cuda:N"]);
    folder.segment(&["--device", "abacus"]).wrong_usage(&["abacus", "auto, cpu, cuda"]);
    folder.segment(&["--threads", "0"]).wrong_usage(&["--threads"]);
    for bad in ["0", "6GB", "-1", "99999999999999999999", "17179869184GiB"] {
        folder.segment(&["--vram-limit", bad]).wrong_usage(&["--vram-limit", "800MiB"]);
    }
    assert_eq!(folder.segment(&["--vram-limit", "1KiB", "--json"]).json(), plain, "on the CPU");
    folder.segment(&["--precision", "f64"]).wrong_usage(&["f32, f16, bf16, int8, auto"]);
}

#[test]
pub(crate) fn profiles_are_applied_and_checked() {
    let folder = folder_with_model();
    let plain = folder.segment(&["--json"]).json();
    folder.write("int8.toml", "threads = 1\nprecision = \"int8\"\n");
    let quantized = folder.segment(&["--profile", "int8.toml", "--json"]).json();
    assert_ne!(quantized, plain);
    let on_top = folder.segment(&["--profile", "int8.toml", "--precision", "f32", "--json"]).json();
    assert_eq!(on_top, plain, "flags stand above the profile");
    folder.write("wrong.toml", "threads = 1\nspeed = \"ludicrous\"\n");
    folder.segment(&["--profile", "wrong.toml"]).fails(&["wrong.toml", "line 2", "speed"]);
    folder.segment(&["--profile", "absent.toml"]).fails(&["absent.toml"]);
    folder.write("cutout.toml", "precision = \"int8\"\n");
    assert_eq!(folder.segment(&["--json"]).json(), quantized, "the profile beside the checkpoint");
}

#[test]
fn the_built_in_model_is_the_default() {
    let folder = folder_with_model();
    let ended = folder.cutout(&["segment", "picture.png", "--box", "5,5,40,25", "--json"]);
    assert!(ended.stderr.starts_with("using the small built-in model"), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1);
    let document = ended.json();
    assert!(document["info"]["description"].as_str().unwrap().starts_with("SAM 2.1"));
    assert_eq!(annotations(&document).len(), 1);
}

#[test]
fn help_has_examples_and_unknown_flags_are_refused() {
    let folder = folder_with_model();
    let help = folder.cutout(&["segment", "--help"]).succeeds();
    assert!(help.contains("Examples:") && help.contains("--mask-threshold"), "{help}");
    folder.segment(&["--pionts", "3,4"]).wrong_usage(&["--pionts", "--point"]);
    folder.cutout(&["segment"]).wrong_usage(&["<IMAGE>"]);
    folder.cutout(&["dissect"]).wrong_usage(&["dissect"]);
    assert!(folder.cutout(&["--version"]).succeeds().starts_with("cutout "));
}
