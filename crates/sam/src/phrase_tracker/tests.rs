//! Decisions on drawn clips against Meta's functions (fixtures/make_sam3_decisions.py).

use serde_json::Value;

use super::bits::BitMask;
use super::decisions::{PhraseRecord, Shown};
use super::hot_start::FrameStep;
use super::matching::{Detected, Tracked, associate, suppress_duplicates};
use super::options::PhraseOptions;

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
    let detected =
        |(score, mask): (&Value, BitMask)| Detected { score: score.as_f64().unwrap() as f32, mask };
    scores.zip(masks).map(detected).collect()
}

fn tracks(frame: &Value) -> Vec<Tracked> {
    let masks = frame["tracks"].as_array().unwrap().iter().map(mask);
    numbers(&frame["ids"]).into_iter().zip(masks).map(|(id, mask)| Tracked { id, mask }).collect()
}

/// What the detections and tracks of a frame have to do with each other, without a memory of earlier frames.
fn check_matches(about: &str, frame: &Value, shown: &Shown<'_>) {
    let found = associate(shown.detections, shown.tracks, &PhraseOptions::default());
    assert_eq!(found.unmatched, numbers(&frame["unmatched"]), "{about}");
    let expected: Vec<Vec<usize>> =
        frame["tracks_of"].as_array().unwrap().iter().map(numbers).collect();
    assert_eq!(found.tracks_of, expected, "{about}");
}

#[test]
fn metas_decisions_are_made_on_every_frame() {
    let fixture: Value = serde_json::from_str(FIXTURE).unwrap();
    let options = PhraseOptions::default();
    for (name, clip) in fixture["clips"].as_object().unwrap() {
        let backward = clip["backward"].as_bool().unwrap();
        let limit = clip["limit"].as_u64().unwrap() as usize;
        let (mut record, mut next_id) = (PhraseRecord::default(), 0);
        for frame in clip["frames"].as_array().unwrap() {
            let step = FrameStep { frame: frame["frame"].as_u64().unwrap() as usize, backward };
            let about = format!("{name}, frame {}", step.frame);
            let all = detections(frame);
            let kept =
                suppress_duplicates(&all, options.detection_threshold, options.duplicate_iou);
            assert_eq!(kept, numbers(&frame["kept"]), "{about}");
            let mut all: Vec<Option<Detected>> = all.into_iter().map(Some).collect();
            let detections: Vec<Detected> =
                kept.iter().map(|index| all[*index].take().unwrap()).collect();
            let tracks = tracks(frame);
            let room = limit.saturating_sub(tracks.len());
            let shown = Shown { detections: &detections, tracks: &tracks, next_id, room };
            check_matches(&about, frame, &shown);
            let found = record.decide(step, &shown, &options);
            assert_eq!(found.new, numbers(&frame["new"]), "{about}");
            assert_eq!(found.removed, numbers(&frame["removed"]), "{about}");
            let suppressed: Vec<usize> =
                found.suppressed.iter().map(|position| tracks[*position].id).collect();
            assert_eq!(suppressed, numbers(&frame["suppressed"]), "{about}");
            let renewing: Vec<Vec<usize>> =
                found.renewing.iter().map(|(id, detection)| vec![*id, *detection]).collect();
            let expected: Vec<Vec<usize>> =
                frame["renewing"].as_array().unwrap().iter().map(numbers).collect();
            assert_eq!(renewing, expected, "{about}");
            next_id += found.new.len();
        }
    }
}

#[test]
fn every_rule_decides_something_in_the_clips() {
    let fixture: Value = serde_json::from_str(FIXTURE).unwrap();
    let rules = ["nms", "unmatched", "renewing", "shared", "limit", "duplicates", "removed"];
    for rule in rules.into_iter().chain(["suppressed"]) {
        assert!(fixture["fired"][rule].as_u64().unwrap() > 0, "{rule}");
    }
}
