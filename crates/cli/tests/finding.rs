//! Phrases and exemplars of `cutout segment`: valid ones, and the errors for others.

use std::process::Stdio;

use cutout_imaging::{DecodeLimits, open};
use cutout_tensor::DType;
use cutout_weights::Checkpoint;
use serde_json::Value;

use crate::segment::npy;
use crate::support::{Folder, MODEL, SAM3, folder_with_sam3};

fn annotations(document: &Value) -> &Vec<Value> {
    document["annotations"].as_array().unwrap()
}

#[test]
fn overlays_name_objects() {
    let folder = folder_with_sam3();
    let find = |name: &str, phrase: &str| {
        folder.find(&["--text", phrase, "--threshold", "0", "--overlay", name]).succeeds();
        open(folder.path(name), &DecodeLimits::default()).unwrap().into_rgb()
    };
    let over = find("cat.png", "cat");
    // The same tokens: the same masks under another name.
    assert_ne!(over, find("capital.png", "CAT"), "the names are not drawn");
    assert_eq!(over, find("again.png", "cat"));
}

#[test]
fn points_are_exemplars_too() {
    let folder = folder_with_sam3();
    let find = |more: &[&str]| {
        let found = folder.find(&[&["--threshold", "0", "--json"], more].concat()).json();
        annotations(&found).clone()
    };
    let alone = find(&["--exemplar", "20,11"]);
    assert_eq!(alone.len(), 5);
    assert_eq!(alone, find(&["--exemplar", "+0.4,0.354838709677419", "--normalized"]));
    assert_ne!(alone, find(&["--exemplar", "-20,11"]));
    let cat = find(&["--text", "cat"]);
    assert_ne!(cat, find(&["--text", "cat", "--exemplar", "20,11"]));
    assert_ne!(
        find(&["--text", "cat", "--exemplar", "20,11", "--exemplar", "-40,25"]),
        find(&["--text", "cat", "--exemplar", "20,11", "--exemplar", "-10,5,40,25"])
    );
    folder.find(&["--exemplar", "20,99"]).fails(&["exemplar", "outside"]);
    // Hugging Face's checkpoints lack the point encoder.
    let weights = cutout_testing::SmallSam3::load().unwrap().weights().unwrap();
    let boxes = weights.into_iter().filter(|(name, _)| !name.contains("geometry_encoder.points_"));
    folder.checkpoint("boxes.safetensors", boxes.collect());
    let point = ["segment", "picture.png", "-m", "boxes.safetensors", "--exemplar", "20,11"];
    folder.cutout(&point).fails(&["boxes as exemplars", "sam3.pt"]);
}

#[test]
fn phrases_and_thresholds_are_checked() {
    let folder = folder_with_sam3();
    for phrase in ["", " ", "\t\n ", "\u{1}\u{7f}", "\u{feff}", "&nbsp;"] {
        folder.find(&["--text", phrase]).fails(&["the phrase is empty"]);
        folder.find(&["--text", "cat", "--text", phrase]).fails(&["the phrase is empty"]);
    }
    folder.find(&["--text", &"x".repeat(5000)]).fails(&["at most 4096 bytes", "5000"]);
    for threshold in ["2", "-0.1"] {
        let cat = ["--text", "cat", "--threshold", threshold];
        folder.find(&cat).wrong_usage(&["--threshold", "between 0 and 1", threshold]);
        let cat = ["--text", "cat", "--mask-nms-thresh", threshold];
        folder.find(&cat).wrong_usage(&["--mask-nms-thresh", "between 0 and 1", threshold]);
    }
    for flag in ["--threshold", "--mask-threshold", "--mask-nms-thresh"] {
        for wrong in ["nan", "inf", "half", ""] {
            folder.find(&["--text", "cat", flag, wrong]).wrong_usage(&[flag, "not a number"]);
        }
    }
    folder.find(&["--text", "cat", "-p", "3,3"]).wrong_usage(&["--text", "one after the other"]);
    folder.find(&["--semantic", "-p", "3,3"]).wrong_usage(&["--semantic", "--text"]);
    folder.find(&[]).wrong_usage(&["nothing to segment", "--text"]);
    folder.cutout(&["segment", "picture.png", "--text", "cat"]).fails(&["SAM 2", "needs SAM 3"]);
    let sam1 = ["segment", "picture.png", "-m", MODEL, "--exemplar", "1,1,9,9"];
    folder.cutout(&sam1).fails(&["SAM 1", "needs SAM 3"]);
    let clicked = folder.find(&["-p", "20,11", "--json"]).json();
    assert_eq!(annotations(&clicked).len(), 1, "SAM 3 answers clicks too");
    assert_eq!(clicked["categories"], serde_json::json!([{"id": 1, "name": "object"}]));
    assert!(!folder.has("picture.mask.png") && folder.temporary_files().is_empty());
}

/// Errors in prompts are reported before the picture is encoded, so no scene is saved.
#[test]
fn invalid_prompts_are_rejected_before_encoding() {
    let folder = folder_with_sam3();
    folder.write("small.npy", npy(&[0.0; 4], 2));
    for (model, wrong) in [
        (SAM3, &["--text", ""][..]),
        (SAM3, &["--exemplar", "1,1,99,9"]),
        (MODEL, &["--text", "cat"]),
        (SAM3, &["-p", "51,3"]),
        (MODEL, &["-p", "20,11", "-p", "51,3,0"]),
        (MODEL, &["-b", "1,1,9,9", "-b", "1,1,99,9"]),
        (MODEL, &["--mask-input", "small.npy"]),
    ] {
        let always = ["segment", "picture.png", "--model", model, "--save-scene", "scene"];
        let ended = folder.cutout(&[&always[..], wrong].concat());
        assert_eq!(ended.code, Some(1), "{wrong:?}: {}", ended.stderr);
        assert!(!folder.has("scene"), "{wrong:?}");
    }
    folder.find(&["--text", "cat", "--save-scene", "scene"]).succeeds();
    assert!(folder.has("scene"));
}

#[test]
fn phrases_in_any_script() {
    let folder = folder_with_sam3();
    for phrase in ["🐈", "猫 кошка قطة", "a\u{1}cat\u{1b}[31m"] {
        let outputs = ["--threshold", "0", "--json", "--overlay", "over.png"];
        let ended = folder.find(&[&["--text", phrase], &outputs[..]].concat());
        assert_eq!(ended.stderr, "", "{phrase:?}");
        let document = ended.json();
        assert_eq!(document["categories"][0]["name"], phrase);
        assert_eq!(annotations(&document).len(), 5);
        // Control characters are escaped, so that a terminal does not act on them.
        let none = folder.find(&["--text", phrase, "--threshold", "1"]);
        assert!(!none.stderr.contains('\u{1b}'), "{:?}", none.stderr);
    }
    let long = "cat ".repeat(40);
    let ended = folder.find(&["--text", &long, "--json"]);
    assert!(ended.stderr.contains("longer than the model reads"), "{}", ended.stderr);
}

#[test]
fn phrases_are_independent() {
    let folder = folder_with_sam3();
    let many: Vec<String> = (0..100).map(|index| format!("{index} cats")).collect();
    let arguments: Vec<&str> = many.iter().flat_map(|phrase| ["--text", phrase.as_str()]).collect();
    let document = folder.find(&[&arguments[..], &["--threshold", "0", "--json"]].concat()).json();
    assert_eq!(document["categories"].as_array().unwrap().len(), 100);
    assert_eq!(document["categories"][99], serde_json::json!({"id": 100, "name": "99 cats"}));
    assert_eq!(annotations(&document).len(), 500);
    // A phrase that is given twice gives two categories.
    let twice = ["--text", "cat", "--text", "cat", "--threshold", "0", "--json"];
    let twice = folder.find(&twice).json();
    assert_eq!(twice["categories"].as_array().unwrap().len(), 2);
    let records = annotations(&twice);
    assert_eq!(records.len(), 10);
    for (first, second) in records[..5].iter().zip(&records[5..]) {
        assert_eq!((&first["score"], &first["area"]), (&second["score"], &second["area"]));
        assert_eq!((&first["category_id"], &second["category_id"]), (&1.into(), &2.into()));
    }
}

#[test]
fn raw_tensors_of_phrases_keep_their_names() {
    let folder = folder_with_sam3();
    let shapes = [
        ("pred_logits", &[5][..]),
        ("presence_logit", &[1]),
        ("pred_boxes", &[5, 4]),
        ("pred_masks", &[5, 36, 36]),
        ("semantic", &[1, 36, 36]),
    ];
    folder.find(&["--text", "cat", "--raw", "cat.safetensors"]).succeeds();
    let one = Checkpoint::open(folder.path("cat.safetensors")).unwrap();
    folder.find(&["--text", "visual", "--text", "cat", "--raw", "two.safetensors"]).succeeds();
    let two = Checkpoint::open(folder.path("two.safetensors")).unwrap();
    assert_eq!((one.tensors().len(), two.tensors().len()), (5, 10));
    for (name, shape) in shapes {
        let tensor = one.tensor(name).unwrap();
        assert_eq!((&tensor.shape()[..], tensor.dtype()), (shape, DType::F32), "{name}");
        let second = two.tensor(&format!("1/{name}")).unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), second.to_vec::<f32>().unwrap(), "{name}");
    }
    assert!(folder.has(SAM3) && !folder.has("picture.mask.png"));
}

/// Peak resident memory of a command, in KiB.
#[cfg(target_os = "linux")]
fn peak_memory(folder: &Folder, arguments: &[&str]) -> u64 {
    let mut child = folder.command(arguments).stderr(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let found = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
        peak = peak.max(found.unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(child.wait().unwrap().success());
    peak
}

#[test]
#[cfg(target_os = "linux")]
fn raw_tensors_are_streamed_to_the_file() {
    let folder = folder_with_sam3();
    let peak = |count: usize| {
        let mut run = vec!["segment", "picture.png", "--model", SAM3, "--raw", "raw"];
        run.extend((0..count).flat_map(|_| ["--text", "cat"]));
        peak_memory(&folder, &run)
    };
    let (few, many) = (peak(20), peak(1000));
    let written = folder.read("raw").len() as u64 / 1024;
    assert!(written > 30_000, "{written} KiB are enough to see");
    // Holding everything until the end would add all of it. Resident memory varies from run to run, so the bound is wide.
    assert!(many < few + written * 3 / 4, "{few} KiB, then {many}, {written} of them written");
}
