//! The clip for the tracking benchmark.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cutout_imaging::{Image, Size, Threshold};
use cutout_sam::{PhraseOptions, PhraseTracker, Prompt, Sam, TrackOptions, Tracker};
use cutout_video::{FrameSource, OpenOptions, open};

use super::at;
use super::samples::Samples;
use crate::environment::Environment;

/// Number of the tracked object.
const OBJECT: u32 = 1;

/// An endless clip: after its last frame it starts again.
pub(super) enum Clip {
    /// Frames from a folder, an animation or a video file.
    File { path: PathBuf, options: OpenOptions, source: Box<dyn FrameSource> },
    /// Generated frames with moving discs.
    Generated { frames: usize, next: usize },
}

impl Clip {
    /// Opens a file or folder; if `name` does not exist and is a number, generates that many frames.
    pub(super) fn open(name: &Path) -> Result<Self> {
        let number = name.to_str().and_then(|name| name.parse().ok());
        if let Some(frames) = number.filter(|_| !name.exists()) {
            ensure!(frames > 0, "--track needs at least one frame");
            return Ok(Clip::Generated { frames, next: 0 });
        }
        let tools = Environment::read().video_tools();
        let options = OpenOptions { tools, ..OpenOptions::default() };
        let source = open(name, &options)?;
        Ok(Clip::File { path: name.to_owned(), options, source })
    }

    fn next(&mut self) -> Result<Image> {
        match self {
            Clip::Generated { frames, next } => {
                let frame = *next % *frames;
                *next += 1;
                crate::picture::drawn(Size::new(1280, 720), 8 * frame)
            }
            Clip::File { path, options, source } => {
                if let Some(image) = source.next() {
                    return Ok(image?);
                }
                *source = open(&*path, options)?;
                let empty = || format!("{}: the clip has no frames", path.display());
                Ok(source.next().with_context(empty)??)
            }
        }
    }
}

/// Tracks an object until its memory is full, then times `repeat` more frames, from the decoded frame to the mask at the
/// size of the frame.
pub(super) fn track(sam: &Sam, clip: &mut Clip, repeat: u32) -> Result<Samples> {
    let mut tracker = sam.track(TrackOptions::default())?;
    let first = clip.next()?;
    tracker.visit(0, &first)?;
    let click: Prompt = at(first.size(), 0.4, 0.6);
    tracker.prompt(0, OBJECT, &click)?;
    step(&mut tracker, &first)?;
    for _ in 1..tracker.reach() {
        step(&mut tracker, &clip.next()?)?;
    }
    let mut samples = Samples::default();
    for _ in 0..repeat {
        let image = clip.next()?;
        samples.time(|| step(&mut tracker, &image))?;
    }
    Ok(samples)
}

/// Tracks one frame and upsamples its masks.
fn step(tracker: &mut Tracker, image: &Image) -> Result<()> {
    for object in tracker.push(image)?.objects {
        object.segment.summary(Threshold::default())?;
    }
    Ok(())
}

/// Times of frames that are searched for a phrase.
pub(super) struct PhraseTimes {
    /// With one phrase.
    pub(super) one: Samples,
    /// With a second phrase, whose objects are not followed: its detector alone is added.
    pub(super) two: Samples,
    /// Objects that were followed.
    pub(super) objects: usize,
}

/// Follows the objects of a phrase until their memories are full, then times `repeat` more frames, and as many with a second
/// phrase.
pub(super) fn track_phrase(
    sam: &Sam,
    clip: &mut Clip,
    phrases: [&str; 2],
    repeat: u32,
) -> Result<PhraseTimes> {
    let warm = sam.track(TrackOptions::default())?.reach();
    let mut times = |phrases: &[&str], most: usize| -> Result<(Samples, usize)> {
        let options = PhraseOptions { max_objects: most, ..sam.phrase_options().at_once() };
        let mut tracker = sam.track_phrases(phrases, options)?;
        for _ in 0..warm {
            find(&mut tracker, &clip.next()?)?;
        }
        let mut samples = Samples::default();
        for _ in 0..repeat {
            let image = clip.next()?;
            samples.time(|| find(&mut tracker, &image))?;
        }
        Ok((samples, tracker.objects().count()))
    };
    let (one, objects) = times(&phrases[..1], sam.phrase_options().max_objects)?;
    let (two, _) = times(&phrases, objects)?;
    Ok(PhraseTimes { one, two, objects })
}

/// Follows one frame; its masks are at the size of the frame.
fn find(tracker: &mut PhraseTracker, image: &Image) -> Result<()> {
    Ok(tracker.push(image).map(drop)?)
}
