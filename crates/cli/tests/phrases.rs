//! `cutout track --text`: objects of phrases, found and followed by a small random SAM 3.

use serde_json::Value;

use crate::support::{Ended, Folder, MODEL, SAM3, folder_with_model, folder_with_sam3_clip};

/// Options that let random weights find something.
const ANYTHING: [&str; 8] = [
    "--detection-threshold",
    "0",
    "--new-object-threshold",
    "0",
    "--fill-hole-area",
    "0",
    "--threads",
    "1",
];

fn track(folder: &Folder, more: &[&str]) -> Ended {
    let always = ["track", "clip", "--model", SAM3, "--text", "cat", "-o", "tracks.jsonl"];
    folder.cutout(&[&always[..], more].concat())
}

/// The frames that were written.
fn frames(folder: &Folder) -> Vec<Value> {
    let text = String::from_utf8(folder.read("tracks.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn objects(frame: &Value) -> &Vec<Value> {
    frame["objects"].as_array().unwrap()
}

#[test]
pub(crate) fn objects_of_phrases_are_numbered() {
    let folder = folder_with_sam3_clip();
    let bus = ["--text", "yellow school bus", "--overlay", "overlay"];
    track(&folder, &[&ANYTHING[..], &bus].concat()).succeeds();
    let frames = frames(&folder);
    assert_eq!(
        frames.iter().map(|it| it["frame"].as_u64().unwrap()).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    let phrases: Vec<&str> =
        objects(&frames[0]).iter().map(|object| object["phrase"].as_str().unwrap()).collect();
    assert!(phrases.contains(&"cat") && phrases.contains(&"yellow school bus"), "{phrases:?}");
    for object in objects(&frames[0]) {
        assert!(object["id"].as_u64().unwrap() >= 1);
        assert!(object["detection_score"].as_f64().unwrap() > 0.0);
        assert!(object["presence"].is_number() && object["predicted_iou"].is_number());
        assert!(object["probability"].is_number() && object["object_score"].is_number());
    }
    assert!(folder.has("overlay/00003.png"));
}

#[test]
pub(crate) fn thresholds_decide_what_is_an_object() {
    let folder = folder_with_sam3_clip();
    track(&folder, &ANYTHING).succeeds();
    let some = objects(&frames(&folder)[0]).len();
    assert!(some > 0);
    track(&folder, &["--detection-threshold", "1"]).succeeds();
    assert!(frames(&folder).iter().all(|frame| objects(frame).is_empty()), "a valid, empty answer");
    assert_eq!(frames(&folder).len(), 4);
    let both = [&ANYTHING[..], &["--text", "yellow school bus"]].concat();
    track(&folder, &both).succeeds();
    assert!(objects(&frames(&folder)[0]).len() > 1);
    track(&folder, &[&both[..], &["--max-objects", "1"]].concat()).succeeds();
    assert!(frames(&folder).iter().all(|frame| objects(frame).len() <= 1));
    let run = ["--detection-threshold", "2"];
    track(&folder, &run).wrong_usage(&["--detection-threshold", "between 0 and 1"]);
    track(&folder, &["--new-object-threshold", "-1"]).wrong_usage(&["--new-object-threshold"]);
}

#[test]
pub(crate) fn flags_of_phrases_are_checked() {
    let folder = folder_with_sam3_clip();
    for (flags, words) in [
        (&["-p", "3,3"][..], "--point"),
        (&["--both"], "--both"),
        (&["--resume"], "--resume"),
        (&["--raw", "raw"], "--raw"),
        (&["--history", "history"], "--history"),
    ] {
        track(&folder, flags).wrong_usage(&[words, "--text"]);
    }
    track(&folder, &["--instant", "--delay", "3"]).wrong_usage(&["--instant", "--delay"]);
    track(&folder, &["--recondition-every", "often"]).wrong_usage(&["--recondition-every"]);
    folder.cutout(&["track", "clip", "--delay", "3"]).wrong_usage(&["--text"]);
    folder.cutout(&["track", "clip", "-m", SAM3, "--text", ""]).fails(&["the phrase is empty"]);
    let other = folder_with_model();
    let run = ["track", "picture.png", "-m", MODEL, "--text", "cat"];
    other.cutout(&run).fails(&["needs SAM 3"]);
    assert!(!folder.has("tracks.jsonl"));
}
