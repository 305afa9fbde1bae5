//! The frames that an object is tracked through.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cutout_imaging::{Image, Size, Threshold};
use cutout_sam::{Prompt, Sam, TrackOptions, Tracker};
use cutout_video::{FrameSource, OpenOptions, open};

use super::samples::Samples;
use super::{at, made_up_picture};
use crate::environment::Environment;

/// What to call the object.
const OBJECT: u32 = 1;

/// A clip that begins again when it ends: its frames in the order of time, without end.
pub(super) enum Clip {
    /// From a folder, an animation or a video file.
    File { path: PathBuf, options: OpenOptions, source: Box<dyn FrameSource> },
    /// Made up: a picture whose discs move.
    MadeUp { frames: usize, next: usize },
}

impl Clip {
    /// A number of frames that are made up, or what `cutout track` reads, where there is something of that name.
    pub(super) fn open(name: &Path) -> Result<Self> {
        let number = name.to_str().and_then(|name| name.parse().ok());
        if let Some(frames) = number.filter(|_| !name.exists()) {
            ensure!(frames > 0, "a clip has at least one frame");
            return Ok(Clip::MadeUp { frames, next: 0 });
        }
        let tools = Environment::read().video_tools();
        let options = OpenOptions { tools, ..OpenOptions::default() };
        let source = open(name, &options)?;
        Ok(Clip::File { path: name.to_owned(), options, source })
    }

    fn next(&mut self) -> Result<Image> {
        match self {
            Clip::MadeUp { frames, next } => {
                let frame = *next % *frames;
                *next += 1;
                made_up_picture(Size::new(1280, 720), 8 * frame)
            }
            Clip::File { path, options, source } => {
                if let Some(image) = source.next() {
                    return Ok(image?);
                }
                *source = open(&*path, options)?;
                let empty = || format!("{}: there are no frames", path.display());
                Ok(source.next().with_context(empty)??)
            }
        }
    }
}

/// Tracks an object until its memory is full, then so many frames more: how long each takes, from a decoded frame to the
/// mask at its size.
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

/// One frame, to the masks at its size.
fn step(tracker: &mut Tracker, image: &Image) -> Result<()> {
    for object in tracker.push(image)?.objects {
        object.segment.summary(Threshold::default());
    }
    Ok(())
}
