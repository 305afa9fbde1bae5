//! Prompts while a video is followed by a small SAM 3 whose memory is drawn at random.

use std::collections::BTreeSet;

use cutout_imaging::{Mask, Rle, Size};

use super::whole_tests::{model, options};
use super::*;
use crate::find::{Find, FindError};
use crate::prompt::{Label, Prompt, Rect};

const SIZE: Size = Size::new(40, 30);
const RECT: Rect = Rect { x0: 4.0, y0: 5.0, x1: 20.0, y1: 22.0 };

fn frame(number: usize) -> Image {
    let pixel = |i: usize| {
        let shifted = i + 3 * number;
        [(shifted * 7 % 251) as u8, (i / 3 % 256) as u8, (shifted * shifted % 239) as u8]
    };
    Image::from_rgb(SIZE, (0..SIZE.width * SIZE.height).flat_map(pixel).collect()).unwrap()
}

/// Objects are never removed, and answers come at once.
fn at_once() -> PhraseOptions {
    PhraseOptions { delay: 0, unmatched_frames: 0, duplicate_frames: 0, ..options() }
}

/// Follows frames; returns what is told of each.
fn follow(tracker: &mut PhraseTracker, frames: std::ops::Range<usize>) -> Vec<PhraseFrame> {
    frames.filter_map(|number| tracker.push(&frame(number)).unwrap()).collect()
}

fn ids(frame: &PhraseFrame) -> Vec<ObjectId> {
    frame.objects.iter().map(|object| object.id).collect()
}

/// Masks of the objects of a phrase, without their numbers.
fn masks(frames: &[PhraseFrame], phrase: &str) -> Vec<Vec<Rle>> {
    let of = |frame: &PhraseFrame| {
        let own = frame.objects.iter().filter(|one| frame.phrase_of(one) == Some(phrase));
        own.map(|object| object.mask.clone()).collect()
    };
    frames.iter().map(of).collect()
}

#[test]
fn a_phrase_is_added_without_a_change_to_the_others() {
    let (sam, _) = model("added");
    let mut alone = sam.track_phrases(&["cat"], at_once()).unwrap();
    let expected = follow(&mut alone, 0..6);
    let mut tracker = sam.track_phrases(&["cat"], at_once()).unwrap();
    let mut found = follow(&mut tracker, 0..3);
    assert_eq!(tracker.add_phrase("yellow school bus").unwrap(), 1);
    found.extend(follow(&mut tracker, 3..6));
    assert_eq!(masks(&found, "cat"), masks(&expected, "cat"));
    let buses = masks(&found, "yellow school bus");
    assert!(buses[..3].iter().all(Vec::is_empty) && !buses[3].is_empty(), "{buses:?}");
    // The frame is run a second time, in which the new objects are followed.
    let bus = |object: &&PhraseObject| object.phrase == Some(1);
    let mut new = found[3].objects.iter().filter(bus);
    assert!(new.any(|object| object.object_score.is_some()));
    // As if the video had begun there, but for numbers and the length behind.
    let mut later = sam.track_phrases(&["yellow school bus"], at_once()).unwrap();
    later.step(3, &frame(3), Direction::Forward).unwrap();
    let first = later.ready().unwrap().unwrap();
    assert_eq!(masks(&[first], "yellow school bus")[0], buses[3]);
}

#[test]
fn exemplars_alone_are_found_on_their_frame_and_followed() {
    let (sam, _) = model("alone");
    let options = PhraseOptions { delay: 15, latency: Some(0), unmatched_frames: 2, ..options() };
    let mut tracker = sam.track_phrases(&[], options).unwrap();
    assert_eq!(tracker.add_exemplars(1, None, &Find::like(RECT)).unwrap(), 0);
    let mut found = follow(&mut tracker, 0..2);
    let begun: BTreeSet<ObjectId> = tracker.objects().collect();
    assert!(found[0].objects.is_empty() && !found[1].objects.is_empty());
    found.extend(follow(&mut tracker, 2..12));
    // Meta's code looks for nothing on later frames and takes it that nothing is there.
    assert_eq!(tracker.objects().collect::<BTreeSet<_>>(), begun);
    assert!(found.iter().all(|frame| frame.taken_back.is_empty()));
    assert_eq!(found[1].phrase_of(&found[1].objects[0]), Some("visual"));
    assert!(found[1].objects.iter().all(|object| object.presence.is_some()));
    assert!(found[2].objects.iter().all(|object| object.presence.is_none()), "it is not searched");
    assert!(found.iter().flat_map(ids).all(|id| begun.contains(&id)));
}

#[test]
fn exemplars_change_what_a_phrase_finds_on_their_frame() {
    let (sam, _) = model("exemplars");
    let scores = |exemplars: &[Find]| -> Vec<Vec<f32>> {
        let mut tracker = sam.track_phrases(&["cat"], at_once()).unwrap();
        for exemplar in exemplars {
            tracker.add_exemplars(1, Some(0), exemplar).unwrap();
        }
        let presence = |frame: &PhraseFrame| {
            let mut all: Vec<f32> = frame.objects.iter().filter_map(|it| it.presence).collect();
            all.dedup();
            all
        };
        follow(&mut tracker, 0..3).iter().map(presence).collect()
    };
    let unwanted = Find::default().with_rect(RECT, Label::Negative);
    let plain = scores(&[]);
    let wanted = scores(&[Find::like(RECT)]);
    let not_wanted = scores(std::slice::from_ref(&unwanted));
    let both = scores(&[Find::like(RECT), unwanted]);
    assert_eq!([&wanted[0], &wanted[2]], [&plain[0], &plain[2]], "on their frame only");
    let all = [&plain[1], &wanted[1], &not_wanted[1], &both[1]];
    for (index, one) in all.iter().enumerate() {
        assert!(!one.is_empty() && all[..index].iter().all(|other| other != one), "{all:?}");
    }
}

#[test]
fn one_object_is_corrected_and_the_others_go_on() {
    let (sam, _) = model("corrected");
    let phrases = ["cat", "yellow school bus"];
    let mut plain = sam.track_phrases(&phrases, at_once()).unwrap();
    let expected = follow(&mut plain, 0..6);
    let mut tracker = sam.track_phrases(&phrases, at_once()).unwrap();
    let mut found = follow(&mut tracker, 0..3);
    let cat = |frame: &PhraseFrame| frame.objects.iter().position(|it| it.phrase == Some(0));
    let id = found[2].objects[cat(&found[2]).unwrap()].id;
    let before = tracker.kept().prompted_frames;
    let corrected = tracker.prompt(2, id, &Prompt::point(30, 20).not(5, 5)).unwrap();
    // The click takes the place of the detection's mask nearby, for all that began with the object.
    assert_eq!(tracker.kept().prompted_frames, before);
    assert_eq!((corrected.id, corrected.score, corrected.probability), (id, 1.0, 1.0));
    found.extend(follow(&mut tracker, 3..6));
    let bus = phrases[1];
    assert_eq!(masks(&found, bus), masks(&expected, bus), "another phrase");
    let of = |frames: &[PhraseFrame]| -> Vec<Option<Rle>> {
        let one = |frame: &PhraseFrame| frame.objects.iter().find(|it| it.id == id).cloned();
        frames[3..].iter().map(|frame| one(frame).map(|object| object.mask)).collect()
    };
    assert_ne!(of(&found), of(&expected), "the correction lasts");
    assert_eq!(plain.objects().collect::<Vec<_>>(), tracker.objects().collect::<Vec<_>>());
    let later = found[4].objects.iter().find(|object| object.id == id).map(|object| object.score);
    assert!(later.is_none_or(|score| score == 1.0), "{later:?}");
}

#[test]
fn what_is_pointed_at_is_not_removed_for_lack_of_detections() {
    let (sam, _) = model("confirmed");
    let options = PhraseOptions { delay: 15, unmatched_frames: 2, ..options() };
    let mut tracker = sam.track_phrases(&["cat"], options).unwrap();
    tracker.step(0, &frame(0), Direction::Forward).unwrap();
    let all: Vec<ObjectId> = tracker.objects().collect();
    tracker.prompt(0, all[0], &Prompt::rect(4.0, 5.0, 20.0, 22.0)).unwrap();
    (1..9).for_each(|number| drop(tracker.push(&frame(number)).unwrap()));
    let left: BTreeSet<ObjectId> = tracker.objects().collect();
    assert!(left.contains(&all[0]));
    assert!(all[1..].iter().any(|id| !left.contains(id)), "others are removed: {all:?}, {left:?}");
}

#[test]
fn objects_begin_by_clicks_and_masks() {
    let (sam, _) = model("clicked");
    let mut tracker = sam.track_phrases(&["cat"], options()).unwrap();
    tracker.visit(0, &frame(0)).unwrap();
    let inside = |i: usize| (5..20).contains(&(i % 40)) && (5..20).contains(&(i / 40));
    let mask = Mask::from_pixels(SIZE, (0..1200).map(inside).collect()).unwrap();
    assert_eq!(tracker.prompt(0, 7, &mask).unwrap().mask.area(), 225);
    tracker.step(0, &frame(0), Direction::Forward).unwrap();
    // Options hold answers back for one frame: the new one is in it.
    let clicked = tracker.prompt(0, tracker.next_id(), &Prompt::point(30, 20)).unwrap();
    assert!(clicked.id > 8 && clicked.phrase.is_none());
    assert!(tracker.ready().unwrap().is_none());
    let first = tracker.push(&frame(1)).unwrap().unwrap();
    let found = ids(&first);
    assert!(found.contains(&7) && found.contains(&clicked.id), "{found:?}");
    assert!(first.objects.iter().any(|object| object.phrase == Some(0) && object.id > 7));
    let second = tracker.finish().unwrap().unwrap();
    let object = second.objects.iter().find(|object| object.id == 7).unwrap();
    assert!(object.object_score.is_some() && object.score == 1.0 && object.phrase.is_none());
}

#[test]
fn a_removed_object_is_in_no_answer() {
    let (sam, _) = model("removed");
    let mut plain = sam.track_phrases(&["cat"], options()).unwrap();
    assert!(plain.push(&frame(0)).unwrap().is_none());
    let shown = ids(&plain.push(&frame(1)).unwrap().unwrap());
    let mut tracker = sam.track_phrases(&["cat"], options()).unwrap();
    tracker.step(0, &frame(0), Direction::Forward).unwrap();
    let all: Vec<ObjectId> = tracker.objects().collect();
    tracker.remove(shown[0]).unwrap();
    // The answer was held back with the object in it.
    let first = tracker.push(&frame(1)).unwrap().unwrap();
    assert_eq!((first.frame, ids(&first)), (0, shown[1..].to_vec()));
    let left: Vec<ObjectId> = tracker.objects().collect();
    assert!(!left.contains(&shown[0]));
    assert!(all.iter().all(|id| *id == shown[0] || left.contains(id)), "the others go on");
}

#[test]
fn videos_are_followed_both_ways() {
    let (sam, _) = model("ways");
    let options = PhraseOptions { goes_back: true, delay: 4, recondition_every: 1, ..options() };
    let mut tracker = sam.track_phrases(&["cat"], options).unwrap();
    let mut found = Vec::new();
    for number in 4..12 {
        tracker.step(number, &frame(number), Direction::Forward).unwrap();
        found.extend(tracker.ready().unwrap());
    }
    assert_eq!(tracker.held_back(), 3);
    tracker.step(3, &frame(3), Direction::Backward).unwrap();
    while let Some(frame) = tracker.ready().unwrap() {
        found.push(frame);
    }
    assert_eq!((found.len(), tracker.held_back()), (8, 1), "the way forward is settled");
    for number in (0..3).rev() {
        found.extend(tracker.push_back(&frame(number)).unwrap());
    }
    while let Some(frame) = tracker.finish().unwrap() {
        found.push(frame);
    }
    let order: Vec<usize> = found.iter().map(|frame| frame.frame).collect();
    assert_eq!(order, [4, 5, 6, 7, 8, 9, 10, 11, 3, 2, 1, 0]);
    let ids_of = |frames: &[PhraseFrame]| frames.iter().flat_map(ids).collect::<BTreeSet<_>>();
    let (there, back) = (ids_of(&found[..8]), ids_of(&found[8..]));
    assert!(there.intersection(&back).next().is_some(), "{there:?}, {back:?}");
    let before = tracker.push_back(&frame(0));
    assert!(matches!(before, Err(PhraseTrackError::Track(TrackError::BeforeTheFirst))));
}

#[test]
fn what_is_shown_at_once_is_taken_back_later() {
    let (sam, _) = model("taken-back");
    let sure = PhraseOptions { delay: 6, unmatched_frames: 2, ..options() };
    let now = PhraseOptions { latency: Some(0), ..sure.clone() };
    let mut tracker = sam.track_phrases(&["cat"], now).unwrap();
    let frames = follow(&mut tracker, 0..12);
    assert_eq!(frames.len(), 12, "each at once");
    let taken: Vec<TakenBack> = frames.iter().flat_map(|it| it.taken_back.clone()).collect();
    assert!(!taken.is_empty());
    let mut tracker = sam.track_phrases(&["cat"], sure).unwrap();
    let mut settled = follow(&mut tracker, 0..12);
    while let Some(frame) = tracker.finish().unwrap() {
        settled.push(frame);
    }
    assert!(settled.iter().all(|frame| frame.taken_back.is_empty()));
    // What is shown at once, less what is taken back, is what is shown late.
    for (now, late) in frames.iter().zip(&settled) {
        let gone = |id: &ObjectId| {
            let covers = |it: &TakenBack| (it.first..=it.last).contains(&now.frame);
            taken.iter().any(|it| it.id == *id && covers(it))
        };
        let left: Vec<ObjectId> = ids(now).into_iter().filter(|id| !gone(id)).collect();
        assert_eq!(left, ids(late), "frame {}", now.frame);
    }
}

#[test]
fn logits_are_in_answers_that_ask_for_them() {
    let (sam, _) = model("logits");
    for logits in [false, true] {
        let options = PhraseOptions { logits, ..at_once() };
        let mut tracker = sam.track_phrases(&["cat"], options).unwrap();
        let found = follow(&mut tracker, 0..2);
        assert!(found.iter().all(|it| it.objects.iter().all(|it| it.logits.is_some() == logits)));
        assert!(tracker.kept().bytes > 0 && tracker.kept().objects > 0);
    }
}

#[test]
fn wrong_questions_are_errors() {
    use PhraseTrackError as Error;
    let (sam, _) = model("errors");
    let begin = |options| sam.track_phrases(&["cat"], options);
    assert!(matches!(sam.track_phrases(&[" "], options()), Err(Error::Find(_))));
    let wrong = PhraseOptions { match_iou: 1.5, ..options() };
    assert!(matches!(begin(wrong), Err(Error::OutOfRange { .. })));
    let short = PhraseOptions { length: Some(3), max_objects: 1, ..options() };
    let mut tracker = begin(short).unwrap();
    let like = Find::like(RECT);
    let beyond = tracker.add_exemplars(3, None, &like);
    assert!(matches!(beyond, Err(Error::Beyond { frame: 3, length: 3 })));
    let nothing = tracker.add_exemplars(0, None, &Find::default());
    assert!(matches!(nothing, Err(Error::Find(FindError::Nothing))));
    let phrase = tracker.add_exemplars(0, None, &Find::phrase("cat"));
    assert!(matches!(phrase, Err(Error::PhraseAmongExemplars)));
    let unknown = tracker.add_exemplars(0, Some(1), &like);
    assert!(matches!(unknown, Err(Error::UnknownPhrase { phrase: 1, count: 1 })));
    assert!(matches!(tracker.add_phrase(""), Err(Error::Find(_))));
    assert!(matches!(tracker.push_back(&frame(0)), Err(Error::Track(TrackError::NoFrame))));
    let click = Prompt::point(3, 3);
    assert!(matches!(tracker.prompt(0, 1, &click), Err(Error::Track(TrackError::NoFrame))));
    tracker.push(&frame(0)).unwrap();
    let far = Find::like(Rect { x1: 400.0, ..RECT });
    assert!(matches!(tracker.add_exemplars(1, None, &far), Err(Error::Find(_))));
    let one = tracker.objects().next().unwrap();
    assert!(matches!(tracker.prompt(1, one, &click), Err(Error::Track(_))), "another frame");
    let more = tracker.next_id();
    assert!(matches!(tracker.prompt(0, more, &click), Err(Error::Full { most: 1 })));
    tracker.remove(one).unwrap();
    let unknown = tracker.remove(one);
    assert!(matches!(unknown, Err(Error::Track(TrackError::UnknownObject { .. }))));
    assert!(matches!(tracker.prompt(0, one, &click), Err(Error::Ended { .. })));
    let other = Image::filled(Size::new(9, 9), [0; 3]).unwrap();
    let size = tracker.push(&other);
    assert!(matches!(size, Err(Error::Track(TrackError::FrameSize { frame: 1, .. }))));
    // Nothing is lost: the frame before it is still there, and the next one can be the right one.
    tracker.step(1, &frame(1), Direction::Forward).unwrap();
    assert_eq!(tracker.finish().unwrap().unwrap().frame, 0);
    assert_eq!(tracker.finish().unwrap().unwrap().frame, 1);
    tracker.push(&frame(2)).unwrap();
    assert!(matches!(tracker.push(&frame(3)), Err(Error::Beyond { frame: 3, length: 3 })));
}
