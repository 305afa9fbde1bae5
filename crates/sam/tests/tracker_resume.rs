//! Trackers that go on from a saved state.

use crate::support::Folder;
use crate::tracker::Clip;
use cutout_sam::{Direction, History, Prompt, StateNotes, TrackOptions, TrackedObject, Tracker};

/// With memory selection, frames far behind are read: they are kept, on disk or in memory, and in a saved state.
#[test]
fn sam3_goes_on_from_a_saved_state_with_either_history() {
    let clip = Clip::sam3("state");
    let expected = goes_on(&clip, "tracker-sam3-resume");
    let options = TrackOptions { memory_selection: Some(false), ..TrackOptions::default() };
    let mut last = clip.sam.track(options).unwrap();
    start(&clip, &mut last);
    follow_frames(&clip, &mut last, 0..40);
    assert!(follow_frames(&clip, &mut last, 40..60) != expected, "other frames are read");
}

/// Two buckets, one of them with a slot that was left.
#[test]
fn sam3_1_goes_on_from_a_saved_state_with_either_history() {
    goes_on(&Clip::multiplex("state"), "tracker-multiplex-resume");
}

/// Six objects on the first frame, of which one is removed.
fn start(clip: &Clip, tracker: &mut Tracker) {
    tracker.push(&clip.frames[0]).unwrap();
    for id in 0..5 {
        tracker.prompt(0, id, &Prompt::point(5 + 7 * id, 14)).unwrap();
    }
    tracker.prompt(0, 7, &Prompt::rect(27.0, 4.0, 46.0, 21.5)).unwrap();
    tracker.push(&clip.frames[1]).unwrap();
    tracker.remove(2).unwrap();
}

/// Logits of all objects on frames of a clip that repeats.
fn follow_frames(
    clip: &Clip,
    tracker: &mut Tracker,
    numbers: std::ops::Range<usize>,
) -> Vec<Vec<f32>> {
    let frame = |number: usize| &clip.frames[number % clip.frames.len()];
    let frames = numbers
        .map(|number| tracker.push_at(number, frame(number), Direction::Forward).unwrap().objects);
    let logits = |object: &TrackedObject| object.segment.logits().to_vec::<f32>().unwrap();
    frames.flat_map(|objects| objects.iter().map(logits).collect::<Vec<_>>()).collect()
}

/// Follows objects, saves the state on the way, and goes on from it. Returns what is found after that.
fn goes_on(clip: &Clip, name: &str) -> Vec<Vec<f32>> {
    let folder = Folder::new(name);
    let file = folder.0.join("state");
    let mut expected = None;
    for history in [History::Recent, History::Disk(folder.0.clone())] {
        let options = TrackOptions { history, ..TrackOptions::default() };
        let mut whole = clip.sam.track(options.clone()).unwrap();
        start(clip, &mut whole);
        follow_frames(clip, &mut whole, 0..40);
        whole.save(&file, &StateNotes::new()).unwrap();
        let there = follow_frames(clip, &mut whole, 40..60);
        let (mut resumed, _) = clip.sam.resume_track(&file, options).unwrap();
        let found = follow_frames(clip, &mut resumed, 40..60);
        assert!(found == there && !there.is_empty(), "a resumed tracker finds the same");
        assert!(*expected.get_or_insert_with(|| there.clone()) == there, "either history");
    }
    expected.unwrap()
}
