//! A clip with made-up detections, against all of Meta's text pipeline but its detector (fixtures/make_sam3_phrases.py).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cutout_graph::DeviceValue;
use cutout_imaging::{Image, Size};
use cutout_tensor::Tensor;
use cutout_testing::{StageFile, rotation_tables};
use cutout_weights::{Checkpoint, Metadata, OutgoingTensor, write_safetensors};
use serde_json::Value;

use super::decisions::Decisions;
use super::frame::{Candidate, Followed, Searched, SettledFrame};
use super::hot_start::FrameStep;
use super::shrinking::areas;
use super::*;
use crate::bits::{BitMask, Measure};
use crate::find::QueryLogits;
use crate::model::config::MemoryForm;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sam3");

/// The numbers of the fixture.
fn options() -> PhraseOptions {
    PhraseOptions {
        delay: 6,
        unmatched_frames: 3,
        duplicate_frames: 3,
        recondition_every: 2,
        fill_hole_area: 4,
        ..PhraseOptions::default()
    }
}

/// The numbers of the fixture of SAM 3.1.
fn multiplex_options() -> PhraseOptions {
    PhraseOptions {
        delay: 6,
        unmatched_frames: 3,
        duplicate_frames: 3,
        recondition_every: 2,
        ..PhraseOptions::sam3_1()
    }
}

/// The tracker of the fixture's model, with changed biases of object scores and of masks, and its frames.
fn tracker(file: &StageFile, run: &Value) -> (PhraseTracker, Vec<Image>) {
    let added = |name: &str| {
        // Those of the interactive head stay.
        let followed = !name.contains("interactive_");
        let mask = name.contains(".output_hypernetworks_mlps.") && name.ends_with("layers.2.bias");
        match name.ends_with("pred_obj_score_head.layers.2.bias") {
            true if followed => run["confidence"].as_f64().unwrap() as f32,
            false if mask && followed => run["size"].as_f64().unwrap_or(0.0) as f32,
            true | false => 0.0,
        }
    };
    let weights = file.weights();
    let mut tensors: Vec<(String, Tensor)> = weights
        .paths()
        .map(|path| (path.to_owned(), weights.get(path).unwrap().tensor().unwrap()))
        .collect();
    for (name, tensor) in &mut tensors {
        let added = added(name);
        if added != 0.0 {
            let raised = tensor.cast(cutout_tensor::DType::F32).unwrap().to_vec::<f32>().unwrap();
            let raised = raised.into_iter().map(|bias| bias + added).collect();
            *tensor = Tensor::from_vec::<f32>(tensor.shape().clone(), raised).unwrap();
        }
    }
    tensors.extend(rotation_tables(&file.metadata["config"]).unwrap());
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("cutout-phrases-{}-{number}.safetensors", std::process::id());
    let path = std::env::temp_dir().join(name);
    let outgoing: Vec<OutgoingTensor> =
        tensors.into_iter().map(|(name, tensor)| OutgoingTensor::new(name, tensor)).collect();
    write_safetensors(&path, &outgoing, &Metadata::new()).unwrap();
    let sam = Sam::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let inputs = file.inputs("clip").into_iter();
    let frames = inputs.filter(|(name, _)| name == "frames").map(|(_, it)| it).next().unwrap();
    let [count, height, width, 3] = frames.shape()[..] else { panic!("{}", frames.ty()) };
    let pixels = frames.to_vec::<u8>().unwrap();
    let frame = |pixels: &[u8]| Image::from_rgb(Size::new(width, height), pixels.to_vec()).unwrap();
    let frames: Vec<Image> = pixels.chunks(pixels.len() / count).map(frame).collect();
    let options = PhraseOptions { length: Some(frames.len()), ..options() };
    let mut tracker = sam.track_phrases(&[], options).unwrap();
    // As Meta numbers objects. The detections are given, so that nothing reads the phrase.
    tracker.next_id = 0;
    tracker.queries.push(Query::new(Some("thing")));
    (tracker, frames)
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// The detections of a pass.
fn candidates(file: &Checkpoint, run: &str, pass: &Value) -> Vec<Candidate> {
    let masks = file.tensor(&format!("{run}.{}.detections", pass["pass"])).unwrap();
    let masks = masks.cast(cutout_tensor::DType::F32).unwrap().to_vec::<f32>().unwrap();
    let scores = numbers(&pass["detected"]);
    let size = masks.len() / scores.len().max(1);
    let all = Tensor::from_vec([scores.len(), size], masks.clone()).unwrap();
    let all = DeviceValue::new(all.ty().clone(), Arc::new(all), Arc::default());
    let candidate = |(index, score): (usize, &f64)| Candidate {
        score: *score as f32,
        logits: QueryLogits { masks: all.clone(), query: index },
        mask: BitMask::of(&masks[index * size..][..size]),
        central: pass["central"][index].as_bool().unwrap_or(true),
    };
    scores.iter().enumerate().map(candidate).collect()
}

/// Every second pixel of the masks that are remembered, compared with Meta's.
fn check_masks(
    file: &Checkpoint,
    run: &str,
    pass: &Value,
    followed: &[Followed],
) -> Result<(), String> {
    let ids: Vec<f64> = followed.iter().map(|one| f64::from(one.id)).collect();
    if ids != numbers(&pass["ids"]) {
        return Err(format!("objects {ids:?}, not {}", pass["ids"]));
    }
    if ids.is_empty() {
        return Ok(());
    }
    let expected =
        file.tensor(&format!("{run}.{}.masks", pass["pass"])).unwrap().to_vec::<f32>().unwrap();
    let side = followed[0].logits.len().isqrt();
    let half = side / 2;
    for (index, one) in followed.iter().enumerate() {
        for (position, wanted) in expected[index * half * half..][..half * half].iter().enumerate()
        {
            let found = one.logits[position / half * 2 * side + position % half * 2];
            if (found - wanted).abs() >= 2e-3 * wanted.abs().max(1.0) {
                return Err(format!("object {}: {found}, not {wanted}", one.id));
            }
        }
    }
    Ok(())
}

/// How often rules without an option took effect.
#[derive(Debug, Default)]
struct Fired {
    /// Masks that lose most of their pixels to others.
    shrunk: usize,
    empty: usize,
    /// New objects that share pixels when they start.
    overlapping: usize,
}

impl Fired {
    fn count_masks(&mut self, followed: &[Followed]) {
        let masks: Vec<&[f32]> = followed.iter().map(|one| &one.logits[..]).collect();
        let Some(side) = masks.first().map(|mask| mask.len().isqrt()) else { return };
        for area in areas(&masks, [side, 4 * side], &cutout_parallel::Pool::new(2)).unwrap() {
            self.empty += usize::from(area.is_empty());
            self.shrunk += usize::from(area.shrinks() && !area.is_empty());
        }
    }

    fn count_new(&mut self, found: &Searched, decisions: &Decisions) {
        let candidates = found.candidates.as_ref().unwrap();
        let mask = |index: &usize| candidates[*index].mask.clone();
        let new: Vec<BitMask> = decisions.new.iter().map(mask).collect();
        for (index, one) in new.iter().enumerate() {
            let shares = |other: &BitMask| one.overlap(other, Measure::Union) > 0.0;
            self.overlapping += usize::from(new[..index].iter().any(shares));
        }
    }
}

/// What is followed: detections, and the clip with its model.
const SAM3: [&str; 2] = ["phrases", "clip"];
const SAM3_1: [&str; 2] = ["multiplex_phrases", "multiplex_clip"];

/// Goes through the clips with these options. Returns the first thing that is not as Meta's, or what took effect.
fn follow(fixture: [&str; 2], options: &PhraseOptions) -> Result<Fired, String> {
    let form = if fixture == SAM3_1 { MemoryForm::Sam3_1 } else { MemoryForm::Sam3 };
    follow_by(PhraseRules::of(Some(form)), fixture, options)
}

/// The same by other rules than those of the model.
fn follow_by(
    rules: PhraseRules,
    [detections, clip]: [&str; 2],
    options: &PhraseOptions,
) -> Result<Fired, String> {
    let file = Checkpoint::open(format!("{FOLDER}/{detections}.safetensors")).unwrap();
    let runs = file.metadata().get("runs").unwrap().to_string();
    let runs: serde_json::Map<String, Value> = serde_json::from_str(&runs).unwrap();
    let clip = StageFile::load(&format!("sam3/{clip}.safetensors")).unwrap();
    let mut fired = Fired::default();
    for (name, run) in &runs {
        let (mut tracker, frames) = tracker(&clip, run);
        tracker.options = PhraseOptions { length: Some(frames.len()), ..options.clone() };
        tracker.rules = rules;
        for pass in run["passes"].as_array().unwrap() {
            let passed = follow_pass((&file, name, pass), &mut tracker, &frames, &mut fired);
            passed.map_err(|error| format!("{name}, pass {}: {error}", pass["pass"]))?;
        }
    }
    Ok(fired)
}

fn follow_pass(
    (file, run, pass): (&Checkpoint, &str, &Value),
    tracker: &mut PhraseTracker,
    frames: &[Image],
    fired: &mut Fired,
) -> Result<(), String> {
    let frame = pass["frame"].as_u64().unwrap() as usize;
    let step = FrameStep { frame, backward: false };
    let looked = tracker.tracker.look(frame, &frames[frame], Direction::Forward, false);
    tracker.tracker.finish_following(looked.unwrap()).unwrap();
    let candidates = Some(tracker.distinct(candidates(file, run, pass)));
    let found = [Searched { phrase: Some(0), candidates }];
    let before = tracker.next_id;
    let (decisions, followed) = tracker.settle_masks(step, &found).unwrap();
    check_masks(file, run, pass, &followed)?;
    fired.count_masks(&followed);
    fired.count_new(&found[0], &decisions[0]);
    let settled = tracker.settle_objects(step, &found, &decisions, followed);
    let SettledFrame { answer, removed, unconfirmed } = settled.unwrap();
    if let Some(expected) = pass.get("unconfirmed").map(numbers) {
        let found: Vec<f64> = unconfirmed.iter().map(|id| *id as f64).collect();
        if found != expected {
            return Err(format!("not told yet {found:?}, not {expected:?}"));
        }
    }
    let new = (tracker.next_id - before) as usize;
    if new != numbers(&pass["new"]).len() {
        return Err(format!("{new} new objects, not {}", pass["new"]));
    }
    let removed: Vec<f64> = removed.iter().map(|id| *id as f64).collect();
    if removed != numbers(&pass["removed"]) {
        return Err(format!("removed {removed:?}, not {}", pass["removed"]));
    }
    for object in &answer.objects {
        let area = pass["areas"][object.id.to_string()].as_u64().unwrap_or(0);
        if area.abs_diff(object.mask.area() as u64) > 2 {
            return Err(format!("object {}: {} pixels, not {area}", object.id, object.mask.area()));
        }
    }
    Ok(())
}

#[test]
fn a_clip_is_followed_as_by_metas_pipeline() {
    let fired = follow(SAM3, &options()).unwrap();
    assert!(fired.shrunk > 0 && fired.empty > 0 && fired.overlapping > 0, "{fired:?}");
}

/// Each of these rules takes effect in the clips: without it the masks or objects are others.
#[test]
fn no_rule_of_the_pipeline_can_be_left_out() {
    let without = [
        ("holes and islands", PhraseOptions { fill_hole_area: 0, ..options() }),
        ("renewal", PhraseOptions { recondition_every: 0, ..options() }),
        ("renewal of visible objects", PhraseOptions { recondition_logit: -1e9, ..options() }),
        ("suppression", PhraseOptions { occlusion_iou: 1.1, ..options() }),
        ("removal", PhraseOptions { unmatched_frames: 0, duplicate_frames: 0, ..options() }),
    ];
    for (rule, options) in without {
        assert!(follow(SAM3, &options).is_err(), "{rule}");
    }
}

/// Objects are born together, join buckets, open new ones, leave, hide and return.
#[test]
fn a_clip_is_followed_as_by_metas_pipeline_of_sam_3_1() {
    let fired = follow(SAM3_1, &multiplex_options()).unwrap();
    assert!(fired.empty > 0 && fired.overlapping > 0, "{fired:?}");
}

#[test]
fn no_rule_of_the_pipeline_of_sam_3_1_can_be_left_out() {
    let usual = multiplex_options;
    let without = [
        ("renewal", PhraseOptions { recondition_every: 0, ..usual() }),
        ("score of renewing ones", PhraseOptions { recondition_score: 0.0, ..usual() }),
        ("new object threshold", PhraseOptions { new_object_threshold: 0.9, ..usual() }),
        ("repeated detections", PhraseOptions { duplicate_iou: 1.0, ..usual() }),
        ("suppression", PhraseOptions { occlusion_iou: 1.1, ..usual() }),
        ("removal", PhraseOptions { unmatched_frames: 0, duplicate_frames: 0, ..usual() }),
    ];
    let mut ineffective: Vec<&str> = Vec::new();
    for (rule, options) in without {
        ineffective.extend(follow(SAM3_1, &options).is_ok().then_some(rule));
    }
    let own = PhraseRules::of(Some(MemoryForm::Sam3_1));
    let without = [
        ("overlap by the smaller area", PhraseRules { measure: Measure::Union, ..own }),
        ("three confirmations", PhraseRules { confirmations: 2, ..own }),
        ("masks that detections edit", PhraseRules { edits_masks: false, ..own }),
    ];
    for (rule, rules) in without {
        ineffective.extend(follow_by(rules, SAM3_1, &usual()).is_ok().then_some(rule));
    }
    assert!(ineffective.is_empty(), "{ineffective:?}");
}
