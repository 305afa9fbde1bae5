//! Decisions on drawn clips against Meta's functions (fixtures/make_sam3_decisions.py).

use serde_json::Value;

use super::decisions::{Decisions, PhraseRecord, Shown};
use super::hot_start::FrameStep;
use super::matching::{Detected, Tracked, associate, suppress_duplicates};
use super::options::PhraseOptions;
use super::rules::{PhraseRules, Policy};
use crate::bits::{BitMask, Measure};

const FIXTURE: &str = include_str!("../../../../fixtures/sam3/decisions.json");

/// A mask from hexadecimal digits, four pixels each.
fn mask(value: &Value) -> BitMask {
    let digits = value.as_str().unwrap().chars().map(|digit| digit.to_digit(16).unwrap());
    let bits = digits.flat_map(|digit| (0..4).map(move |bit| digit >> (3 - bit) & 1));
    BitMask::of(&bits.map(|bit| bit as f32).collect::<Vec<f32>>())
}

fn numbers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as usize).collect()
}

fn detections(frame: &Value) -> Vec<Detected> {
    let scores = frame["scores"].as_array().unwrap().iter();
    let masks = frame["detections"].as_array().unwrap().iter().map(mask);
    let detected = |(score, mask): (&Value, BitMask)| Detected {
        score: score.as_f64().unwrap() as f32,
        mask,
        central: true,
    };
    scores.zip(masks).map(detected).collect()
}

fn tracks(frame: &Value) -> Vec<Tracked> {
    let masks = frame["tracks"].as_array().unwrap().iter().map(mask);
    numbers(&frame["ids"]).into_iter().zip(masks).map(|(id, mask)| Tracked { id, mask }).collect()
}

/// Returns an error that names what differs from Meta's.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, not {expected:?}")) }
}

/// What the detections and tracks of a frame have to do with each other, without a memory of earlier frames.
fn check_matches(frame: &Value, shown: &Shown<'_>, policy: Policy<'_>) -> Result<(), String> {
    let found = associate(shown.detections, shown.tracks, policy);
    same("unmatched", &found.unmatched, &numbers(&frame["unmatched"]))?;
    let expected: Vec<Vec<usize>> =
        frame["tracks_of"].as_array().unwrap().iter().map(numbers).collect();
    same("tracks of detections", &found.tracks_of, &expected)
}

fn check_decisions(
    frame: &Value,
    found: &Decisions,
    suppressed: &[usize],
    tracks: &[Tracked],
) -> Result<(), String> {
    same("new", &found.new, &numbers(&frame["new"]))?;
    same("removed", &found.removed, &numbers(&frame["removed"]))?;
    let suppressed: Vec<usize> = suppressed.iter().map(|position| tracks[*position].id).collect();
    same("suppressed", &suppressed, &numbers(&frame["suppressed"]))?;
    let renewing: Vec<Vec<usize>> =
        found.renewing.iter().map(|(id, detection)| vec![*id, *detection]).collect();
    let expected: Vec<Vec<usize>> =
        frame["renewing"].as_array().unwrap().iter().map(numbers).collect();
    same("renewing", &renewing, &expected)
}

/// Detections that are left of those of a frame.
fn left(all: Vec<Detected>, kept: &[usize]) -> Vec<Detected> {
    let numbered = all.into_iter().enumerate();
    numbered.filter(|(index, _)| kept.contains(index)).map(|(_, one)| one).collect()
}

/// What is not an option of the rules.
#[derive(Clone, Copy, Default)]
struct Otherwise {
    no_limit: bool,
    always_forward: bool,
}

/// Goes through all clips with these options. Returns the first decision that is not Meta's.
fn compare(options: &PhraseOptions, otherwise: Otherwise) -> Result<(), String> {
    let fixture: Value = serde_json::from_str(FIXTURE).unwrap();
    for (name, clip) in fixture["clips"].as_object().unwrap() {
        let backward = clip["backward"].as_bool().unwrap() && !otherwise.always_forward;
        let limit = clip["limit"].as_u64().unwrap() as usize;
        let limit = if otherwise.no_limit { usize::MAX } else { limit };
        let (mut record, mut next_id) = (PhraseRecord::default(), 0);
        for frame in clip["frames"].as_array().unwrap() {
            let step = FrameStep { frame: frame["frame"].as_u64().unwrap() as usize, backward };
            let about = |error| format!("{name}, frame {}: {error}", step.frame);
            let all = detections(frame);
            let policy = Policy { options, rules: PhraseRules::of(None) };
            let kept = suppress_duplicates(&all, policy);
            same("kept", &kept, &numbers(&frame["kept"])).map_err(about)?;
            let (detections, tracks) = (left(all, &kept), tracks(frame));
            let shown = Shown {
                detections: &detections,
                tracks: &tracks,
                next_id,
                room: limit.saturating_sub(tracks.len()),
                was_searched: true,
            };
            check_matches(frame, &shown, policy).map_err(about)?;
            let found = record.decide(step, &shown, policy);
            let suppressed = record.suppress(step, &tracks, &found.removed, policy);
            check_decisions(frame, &found, &suppressed, &tracks).map_err(about)?;
            next_id += found.new.len();
        }
    }
    Ok(())
}

#[test]
fn metas_decisions_are_made_on_every_frame() {
    compare(&PhraseOptions::default(), Otherwise::default()).unwrap();
}

/// Each rule decides something in the clips: without it the decisions are others.
#[test]
fn no_rule_can_be_left_out() {
    let usual = PhraseOptions::default;
    let without = [
        ("detection threshold", PhraseOptions { detection_threshold: 0.0, ..usual() }),
        ("repeated detections", PhraseOptions { duplicate_iou: 1.0, ..usual() }),
        ("detections on a track start none", PhraseOptions { match_iou: 1.1, ..usual() }),
        ("tracks without detection", PhraseOptions { unmatched_iou: 0.0, ..usual() }),
        ("new object threshold", PhraseOptions { new_object_threshold: 0.0, ..usual() }),
        ("removal of unconfirmed ones", PhraseOptions { unmatched_frames: 0, ..usual() }),
        ("removal of duplicates", PhraseOptions { duplicate_frames: 0, ..usual() }),
        ("end of probation", PhraseOptions { delay: 10_000, ..usual() }),
        ("score of renewing ones", PhraseOptions { recondition_score: 0.0, ..usual() }),
        ("overlap of renewing ones", PhraseOptions { recondition_iou: 0.3, ..usual() }),
        ("hidden tracks give way", PhraseOptions { occlusion_iou: 1.1, ..usual() }),
    ];
    for (rule, options) in without {
        assert!(compare(&options, Otherwise::default()).is_err(), "{rule}");
    }
    let no_limit = Otherwise { no_limit: true, ..Otherwise::default() };
    assert!(compare(&usual(), no_limit).is_err(), "the limit");
    let always_forward = Otherwise { always_forward: true, ..Otherwise::default() };
    assert!(compare(&usual(), always_forward).is_err(), "the direction");
}

/// Counts what no option switches off.
#[test]
fn every_rule_decides_something_in_the_clips() {
    let fixture: Value = serde_json::from_str(FIXTURE).unwrap();
    let rules = ["nms", "unmatched", "renewing", "shared", "limit", "duplicates", "removed"];
    for rule in rules.into_iter().chain(["suppressed"]) {
        assert!(fixture["fired"][rule].as_u64().unwrap() > 0, "{rule}");
    }
    let options = PhraseOptions::default();
    let (mut ambiguous, mut weak) = (0, 0);
    let clips = fixture["clips"].as_object().unwrap().values();
    for frame in clips.flat_map(|clip| clip["frames"].as_array().unwrap()) {
        let (found, tracks) = (left(detections(frame), &numbers(&frame["kept"])), tracks(frame));
        let new = numbers(&frame["new"]);
        let is_weak = |index: &&usize| found[**index].score < options.new_object_threshold;
        weak += new.iter().filter(is_weak).count();
        let close = |track: &Tracked| {
            let close = |one: &&Detected| {
                one.mask.overlap(&track.mask, Measure::Union) >= options.recondition_iou
            };
            found.iter().filter(close).count()
        };
        let rows = found.iter().filter(|one| {
            let shares = |track: &&Tracked| {
                one.mask.overlap(&track.mask, Measure::Union) >= options.recondition_iou
            };
            tracks.iter().filter(shares).count() > 1
        });
        ambiguous += rows.count() + tracks.iter().filter(|track| close(track) > 1).count();
    }
    assert!(ambiguous > 0, "detections and tracks with several partners");
    assert!(weak > 0, "without tracks, a detection of any score starts one");
}
