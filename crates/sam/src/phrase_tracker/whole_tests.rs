//! Phrases from the first frame to the last: a small SAM 3 whose memory is drawn at random.

use std::collections::BTreeMap;

use cutout_imaging::Rle;
use cutout_testing::SmallSam3;
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};

use cutout_imaging::Size;
use cutout_tensor::Tensor;

use super::*;

pub(super) fn opened(name: &str, tensors: &BTreeMap<String, Tensor>) -> Sam {
    let path =
        std::env::temp_dir().join(format!("cutout-{name}-{}.safetensors", std::process::id()));
    let outgoing = tensors.iter().map(|(name, it)| OutgoingTensor::new(name.clone(), it.clone()));
    write_safetensors(&path, &outgoing.collect::<Vec<_>>(), &Metadata::new()).unwrap();
    let sam = Sam::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    sam
}

/// A model with detector and memory, and a picture.
pub(super) fn model(test: &str) -> (Sam, Image) {
    let tensors = SmallSam3::load().unwrap().weights_with_memory().unwrap();
    let size = Size::new(40, 30);
    let pixel = |i: usize| [(i * 7 % 251) as u8, (i / 3 % 256) as u8, (i * i % 239) as u8];
    let pixels = (0..size.width * size.height).flat_map(pixel).collect();
    (opened(test, &tensors), Image::from_rgb(size, pixels).unwrap())
}

pub(super) fn options() -> PhraseOptions {
    PhraseOptions {
        detection_threshold: 0.0,
        new_object_threshold: 0.0,
        duplicate_iou: 1.0,
        fill_hole_area: 0,
        delay: 2,
        ..PhraseOptions::default()
    }
}

fn all_frames(tracker: &mut PhraseTracker, image: &Image, count: usize) -> Vec<PhraseFrame> {
    let mut frames: Vec<PhraseFrame> =
        (0..count).filter_map(|_| tracker.push(image).unwrap()).collect();
    assert!(frames.len() < count || count == 0 || tracker.held_back() == 0);
    while let Some(frame) = tracker.finish().unwrap() {
        frames.push(frame);
    }
    frames
}

#[test]
fn objects_keep_their_numbers_and_share_no_pixel() {
    let (sam, image) = model("numbers");
    let mut tracker = sam.track_phrases(&["cat", "yellow school bus"], options()).unwrap();
    let frames = all_frames(&mut tracker, &image, 4);
    assert_eq!(frames.iter().map(|frame| frame.frame).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(!frames[0].objects.is_empty());
    for frame in &frames {
        let ids: Vec<ObjectId> = frame.objects.iter().map(|object| object.id).collect();
        assert!(ids.is_sorted() && ids.iter().all(|id| *id >= FIRST_ID), "{ids:?}");
        for phrase in [0, 1] {
            let own = frame.objects.iter().filter(|object| object.phrase == Some(phrase));
            let masks: Vec<&Rle> = own.map(|object| &object.mask).collect();
            let all: usize = masks.iter().map(|mask| mask.area()).sum();
            assert!(all <= image.width() * image.height(), "phrase {phrase}: {all}");
        }
    }
    // A number means one phrase through the whole clip.
    let mut phrases = BTreeMap::new();
    for object in frames.iter().flat_map(|frame| &frame.objects) {
        assert_eq!(*phrases.entry(object.id).or_insert(object.phrase), object.phrase);
    }
    assert!([0, 1].iter().all(|phrase| phrases.values().any(|of| *of == Some(*phrase))));
}

#[test]
fn a_second_phrase_does_not_change_the_first() {
    let (sam, image) = model("phrases");
    let masks = |phrases: &[&str]| -> Vec<Vec<Rle>> {
        let mut tracker = sam.track_phrases(phrases, options()).unwrap();
        let frames = all_frames(&mut tracker, &image, 3);
        let first = |frame: &PhraseFrame| {
            let own = frame.objects.iter().filter(|object| object.phrase == Some(0));
            own.map(|object| object.mask.clone()).collect()
        };
        frames.iter().map(first).collect()
    };
    assert_eq!(masks(&["cat"]), masks(&["cat", "yellow school bus"]));
}

#[test]
fn answers_are_held_back_as_long_as_asked() {
    let (sam, image) = model("delay");
    for (delay, shown_at_once) in [(0, true), (1, true), (2, false)] {
        let options = PhraseOptions { delay, ..options() };
        let mut tracker = sam.track_phrases(&["cat"], options).unwrap();
        assert_eq!(tracker.push(&image).unwrap().is_some(), shown_at_once, "{delay}");
    }
}

#[test]
fn objects_end_by_number() {
    let (sam, image) = model("removal");
    let mut tracker = sam.track_phrases(&["cat"], options()).unwrap();
    tracker.push(&image).unwrap();
    let ids: Vec<ObjectId> = tracker.objects().collect();
    tracker.remove(ids[0]).unwrap();
    assert!(matches!(tracker.remove(ids[0]), Err(PhraseTrackError::Track(_))));
    tracker.push(&image).unwrap();
    assert!(!tracker.objects().any(|id| id == ids[0]), "a number is not used again");
}
