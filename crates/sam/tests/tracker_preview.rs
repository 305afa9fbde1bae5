//! Previews of prompts: the mask of the prompt, of which nothing is remembered.

use crate::tracker::Clip;
use cutout_sam::{Direction, Prompt, TrackError, TrackOptions, Tracker};

/// A tracker that is or is not asked for a preview before each prompt, and what it found.
struct Story<'a> {
    clip: &'a Clip,
    tracker: Tracker,
    previews: bool,
    logits: Vec<Vec<f32>>,
}

impl Story<'_> {
    fn visit(&mut self, frame: usize) {
        self.tracker.visit(frame, &self.clip.frames[frame]).unwrap();
    }

    fn preview(&mut self, frame: usize, object: u32, prompt: &Prompt) -> Vec<f32> {
        let found = self.tracker.preview(frame, object, prompt).unwrap();
        assert_eq!(found.id, object);
        found.segment.logits().to_vec::<f32>().unwrap()
    }

    fn prompt(&mut self, frame: usize, object: u32, prompt: &Prompt) {
        self.visit(frame);
        let preview = self.previews.then(|| self.preview(frame, object, prompt));
        let found = self.tracker.prompt(frame, object, prompt).unwrap();
        let logits = found.segment.logits().to_vec::<f32>().unwrap();
        assert!(preview.is_none_or(|preview| preview == logits), "frame {frame}, object {object}");
        self.logits.push(logits);
    }

    fn track(&mut self, frames: std::ops::Range<usize>) {
        for frame in frames {
            let image = &self.clip.frames[frame];
            let found = self.tracker.push_at(frame, image, Direction::Forward).unwrap();
            let logits = found.objects.iter().map(|object| object.segment.logits());
            self.logits.extend(logits.map(|logits| logits.to_vec::<f32>().unwrap()));
        }
    }

    /// Looks at objects that are never marked, here and on another frame.
    fn look_around(&mut self, frame: usize, other: usize) {
        if self.previews {
            self.preview(frame, 77, &Prompt::rect(3.0, 4.0, 20.0, 18.5));
            self.visit(other);
            self.preview(other, 78, &Prompt::point(30, 10));
        }
    }
}

fn found(clip: &Clip, previews: bool) -> Vec<Vec<f32>> {
    let tracker = clip.sam.track(TrackOptions::default()).unwrap();
    let mut story = Story { clip, tracker, previews, logits: Vec::new() };
    story.prompt(0, 1, &Prompt::point(12, 14));
    story.look_around(0, 3);
    story.prompt(0, 1, &Prompt::point(12, 14).not(40, 3));
    story.prompt(0, 2, &Prompt::point(33, 20));
    story.track(0..4);
    story.look_around(3, 1);
    // A correction of a frame that is tracked, which reads memories.
    story.prompt(3, 1, &Prompt::point(14, 16));
    story.track(3..6);
    let objects: Vec<u32> = story.tracker.objects().collect();
    assert_eq!(objects, [1, 2], "a preview makes no object");
    story.logits
}

#[test]
fn previews_show_the_mask_of_the_prompt_and_change_nothing() {
    for clip in [
        Clip::load("2.0", "preview"),
        Clip::load("2.1", "preview"),
        Clip::sam3("preview"),
        Clip::multiplex("preview"),
    ] {
        assert!(found(&clip, true) == found(&clip, false), "{}", clip.sam.description());
    }
}

#[test]
fn a_preview_needs_its_frame_and_a_valid_prompt() {
    let clip = Clip::load("2.1", "preview-errors");
    let mut tracker = clip.sam.track(TrackOptions::default()).unwrap();
    let point = Prompt::point(12, 14);
    assert!(matches!(tracker.preview(0, 1, &point), Err(TrackError::NoFrame)));
    tracker.visit(2, &clip.frames[2]).unwrap();
    let other = tracker.preview(0, 1, &point);
    assert!(matches!(other, Err(TrackError::OtherFrame { asked: 0, current: 2 })));
    assert!(tracker.preview(2, 1, &Prompt::point(5000, 1)).is_err());
}
