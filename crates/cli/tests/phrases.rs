//! `cutout track --text`: objects of phrases, found and followed by a small random SAM 3.

use std::collections::{BTreeMap, BTreeSet};

use cutout_imaging::Size;
use cutout_weights::Checkpoint;
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

/// Objects of a frame by number, with their phrase.
fn phrases_of(frame: &Value) -> BTreeMap<u64, Option<String>> {
    let one = |object: &Value| {
        (object["id"].as_u64().unwrap(), object["phrase"].as_str().map(str::to_owned))
    };
    objects(frame).iter().map(one).collect()
}

#[test]
pub(crate) fn prompts_on_any_frame() {
    let folder = folder_with_sam3_clip();
    let run = |more: &[&str]| {
        let always = ["track", "clip", "--model", SAM3, "-o", "tracks.jsonl", "--instant"];
        folder.cutout(&[&always[..], &ANYTHING, more].concat()).succeeds();
        frames(&folder)
    };
    // Exemplars alone, on their frame, are followed from there.
    let alone = run(&["--frame", "1", "--exemplar", "3,4,20,20"]);
    let numbers: Vec<u64> = alone.iter().map(|it| it["frame"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert!(phrases_of(&alone[0]).values().all(|phrase| phrase.as_deref() == Some("visual")));
    assert!(!objects(&alone[0]).is_empty());
    // An unwanted example changes what a phrase finds.
    let plain = run(&["--text", "cat"]);
    let unlike = run(&["--text", "cat", "--exemplar", "-3,4,20,20"]);
    assert_ne!(plain, unlike);
    // A second phrase later, an object that is removed, one that is corrected and one that is new.
    let first = *phrases_of(&plain[0]).keys().next().unwrap();
    let (gone, clicked) = (first.to_string(), "90");
    let prompts = ["--frame", "1", "--remove", &gone, "--object", clicked, "-p", "20,10"];
    let later = ["--frame", "2", "--text", "yellow school bus", "--text", "cat"];
    let found = run(&[&["--text", "cat"], &prompts[..], &later].concat());
    assert!(phrases_of(&found[0]).contains_key(&first));
    assert!(found[1..].iter().all(|frame| !phrases_of(frame).contains_key(&first)));
    assert_eq!(phrases_of(&found[1])[&90], None, "it has no phrase");
    let buses = |frame: &Value| {
        phrases_of(frame).values().flatten().filter(|it| it.contains("bus")).count()
    };
    assert_eq!([buses(&found[0]), buses(&found[1])], [0, 0]);
    assert!(buses(&found[2]) > 0 && phrases_of(&found[2]).keys().any(|id| *id > 90));
    // Backward from the last frame, and both ways from the middle.
    let order = |frames: &[Value]| -> Vec<u64> {
        frames.iter().map(|frame| frame["frame"].as_u64().unwrap()).collect()
    };
    assert_eq!(order(&run(&["--frame", "3", "--text", "cat", "--reverse"])), [3, 2, 1, 0]);
    let both = ["--frame", "2", "--text", "cat", "--both", "--history", "history"];
    assert_eq!(order(&run(&both)), [2, 3, 1, 0]);
}

#[test]
pub(crate) fn answers_at_once_are_corrected_later() {
    let folder = folder_with_sam3_clip();
    for number in 4..20 {
        folder.picture(&format!("clip/{number:05}.png"), Size::new(40, 30));
    }
    let run = |more: &[&str]| {
        track(&folder, &[&ANYTHING[..], more, &["-o", "tracks.txt"]].concat()).succeeds();
        frames(&folder)
    };
    let seen: Vec<Value> = run(&["--latency", "0"]);
    let taken: Vec<u64> =
        seen.iter().filter_map(|line| line["taken_back"]["id"].as_u64()).collect();
    assert!(!taken.is_empty());
    let boxes = String::from_utf8(folder.read("tracks.txt")).unwrap();
    let has = |id: u64| boxes.lines().any(|line| line.split(',').nth(1) == Some(&id.to_string()));
    assert!(taken.iter().all(|id| !has(*id)), "boxes of what was no object are removed");
    let sure = run(&[]);
    assert!(sure.iter().all(|line| line.get("taken_back").is_none()));
    let numbers = |lines: &[Value]| -> BTreeSet<u64> {
        let frames = lines.iter().filter(|line| line.get("objects").is_some());
        frames.flat_map(|frame| phrases_of(frame).into_keys()).collect()
    };
    let kept: BTreeSet<u64> = numbers(&seen).into_iter().filter(|id| !taken.contains(id)).collect();
    assert_eq!(kept, numbers(&sure));
}

#[test]
pub(crate) fn results_in_every_layout() {
    let folder = folder_with_sam3_clip();
    let outputs =
        ["-o", "tracks.json", "-o", "tracks.txt", "-o", "masks", "--raw", "raw", "--verbose"];
    let ended = track(&folder, &[&ANYTHING[..], &outputs].concat());
    assert!(ended.stderr.contains("kept at the end: "), "{}", ended.stderr);
    ended.succeeds();
    let lines = frames(&folder);
    let whole = folder.json("tracks.json");
    assert_eq!(whole["videos"][0]["length"], 4);
    assert_eq!(whole["categories"][0]["name"], "cat");
    let boxes = String::from_utf8(folder.read("tracks.txt")).unwrap();
    let mut count = 0;
    for (index, line) in lines.iter().enumerate() {
        for object in objects(line) {
            let same = |it: &&Value| it["id"] == object["id"];
            let annotation = whole["annotations"].as_array().unwrap().iter().find(same);
            if object["area"] == 0 {
                continue;
            }
            let annotation = annotation.unwrap();
            assert_eq!(annotation["segmentations"][index], object["segmentation"]);
            assert_eq!(annotation["bboxes"][index], object["bbox"]);
            let start = format!("{},{},", index + 1, object["id"]);
            assert!(boxes.lines().any(|line| line.starts_with(&start)), "{start}");
            count += 1;
        }
        let raw = Checkpoint::open(folder.path(&format!("raw/{index:05}.safetensors"))).unwrap();
        let ids = raw.tensor("object_ids").unwrap().to_vec::<i64>().unwrap();
        let expected: Vec<i64> =
            objects(line).iter().map(|object| object["id"].as_i64().unwrap()).collect();
        assert_eq!(ids, expected);
        assert!(folder.has(&format!("masks/{index:05}.png")));
    }
    assert!(count > 0 && boxes.lines().count() == count);
}

#[test]
fn the_next_frame_may_be_encoded_meanwhile() {
    let folder = folder_with_sam3_clip();
    track(&folder, &ANYTHING).succeeds();
    let one_by_one = folder.read("tracks.jsonl");
    let ahead = [&ANYTHING[..], &["--look-ahead", "always"]].concat();
    track(&folder, &ahead).succeeds();
    assert_eq!(folder.read("tracks.jsonl"), one_by_one);
    track(&folder, &[&ahead[..], &["--max-frames", "2"]].concat()).succeeds();
    assert_eq!(frames(&folder).len(), 2);
    // A broken next frame does not prevent the ones before it from being written.
    folder.write("clip/00003.png", "no picture");
    track(&folder, &ahead).fails(&["00003.png"]);
    assert_eq!(frames(&folder).len(), 3);
}

#[test]
fn finished_frames_are_kept_when_a_frame_is_broken() {
    let folder = folder_with_sam3_clip();
    // Answers are held back for longer than the clip.
    folder.write("clip/00003.png", "no picture");
    let outputs = ["-o", "tracks.json"];
    track(&folder, &[&ANYTHING[..], &outputs].concat()).fails(&["00003.png"]);
    assert_eq!(frames(&folder).len(), 3);
    assert_eq!(folder.json("tracks.json")["videos"][0]["length"], 3);
    folder.picture("clip/00003.png", Size::new(41, 30));
    track(&folder, &ANYTHING).fails(&["differ in size"]);
    assert_eq!(frames(&folder).len(), 3);
    let gone = [&ANYTHING[..], &["--frame", "1", "--remove", "77"]].concat();
    track(&folder, &gone).fails(&["object 77 is not tracked"]);
    assert_eq!(frames(&folder).len(), 2);
}

#[test]
pub(crate) fn flags_of_phrases_are_checked() {
    let folder = folder_with_sam3_clip();
    track(&folder, &["--resume"]).wrong_usage(&["--resume", "--text"]);
    track(&folder, &["--frame", "9", "--exemplar", "1,1,5,5"]).fails(&["no frame 9"]);
    track(&folder, &["--exemplar", "1,1,50,5"]).fails(&["exemplar"]);
    track(&folder, &["--exemplar", "1,1,5"]).wrong_usage(&["--exemplar"]);
    track(&folder, &["-p", "300,3"]).fails(&["object 1 on frame 0"]);
    track(&folder, &["--instant", "--delay", "3"]).wrong_usage(&["--instant", "--delay"]);
    track(&folder, &["--recondition-every", "often"]).wrong_usage(&["--recondition-every"]);
    for flags in [&["--delay", "3"][..], &["--latency", "0"], &["--instant"]] {
        folder.cutout(&[&["track", "clip"], flags].concat()).wrong_usage(&["--text"]);
    }
    let removal = ["track", "clip", "-p", "3,3", "--remove", "1"];
    folder.cutout(&removal).wrong_usage(&["--remove", "--text"]);
    folder.cutout(&["track", "clip", "-m", SAM3, "--text", ""]).fails(&["the phrase is empty"]);
    let other = folder_with_model();
    let run = ["track", "picture.png", "-m", MODEL, "--text", "cat"];
    other.cutout(&run).fails(&["needs SAM 3"]);
    assert!(!folder.has("tracks.jsonl"));
}
