//! A run through a video, frame by frame.

use anyhow::Result;
use cutout_imaging::Image;
use cutout_sam::{Direction, Kept, TrackedFrame, Tracker};
use cutout_video::{FrameResult, ObjectMask};

use super::outputs::Writers;
use super::recorded::Recorded;
use super::resume::{Position, StateFile};
use crate::progress::Progress;
use crate::{interrupt, stdio};

/// After how many frames `--verbose` says again what is kept.
const VERBOSE_EVERY: usize = 100;

/// What `--verbose` says after a frame, if it is time.
pub(super) fn note_kept(verbose: bool, done: usize, kept: impl FnOnce() -> Kept) {
    if verbose && done.is_multiple_of(VERBOSE_EVERY) {
        stdio::note(&format!("kept after {done} frames: {}", kept()));
    }
}

/// What `--verbose` says at the end.
pub(super) fn note_kept_at_the_end(verbose: bool, kept: impl FnOnce() -> Kept) {
    if verbose {
        stdio::note(&format!("kept at the end: {}", kept()));
    }
}

/// A run through a video.
pub(super) struct Run {
    pub(super) tracker: Tracker,
    pub(super) writers: Writers,
    pub(super) progress: Progress,
    pub(super) started: std::time::Instant,
    pub(super) state: StateFile,
    /// The last frame that was written.
    pub(super) position: Option<Position>,
    /// Frames written by this process.
    pub(super) done_here: usize,
    /// Number of frames after which to stop.
    pub(super) most: usize,
    /// Whether the next frame is encoded while the current one is tracked.
    pub(super) looks_ahead: bool,
    /// Whether to say what is kept.
    pub(super) verbose: bool,
}

impl Run {
    /// Frames written so far.
    pub(super) fn done(&self) -> usize {
        self.position.map_or(0, |position| position.done)
    }

    pub(super) fn is_over(&self) -> bool {
        self.done() >= self.most || interrupt::requested()
    }

    /// Tracks all frames after `frame`.
    pub(super) fn follow_to_the_end(
        &mut self,
        mut frame: usize,
        recorded: &mut Recorded,
    ) -> Result<()> {
        let mut next = Ok(None);
        if !self.is_over() {
            next = recorded.after(frame);
        }
        while let Some(image) = next? {
            frame += 1;
            next = Ok(None);
            if self.looks_ahead && self.done() + 1 < self.most {
                // An error of the next frame is reported after the current one is written.
                next = recorded.after(frame);
                self.tracker.visit(frame, &image)?;
            }
            if let Ok(Some(next)) = &next {
                self.tracker.look_ahead(next);
            }
            self.step(frame, &image, Direction::Forward)?;
            if self.is_over() {
                break;
            }
            if !self.looks_ahead {
                next = recorded.after(frame);
            }
        }
        Ok(())
    }

    pub(super) fn step(&mut self, frame: usize, image: &Image, direction: Direction) -> Result<()> {
        let tracked = self.tracker.push_at(frame, image, direction)?;
        let objects = objects(&tracked)?;
        self.writers.write(&FrameResult { index: frame, image, objects: &objects }, &tracked)?;
        let last_pixels = image.fingerprint();
        let first_pixels = self.position.map_or(last_pixels, |position| position.first_pixels);
        let done = self.done() + 1;
        let position = Position { frame, direction, done, first_pixels, last_pixels };
        self.position = Some(position);
        self.state.keep(&self.tracker, position);
        self.done_here += 1;
        note_kept(self.verbose, self.done_here, || self.tracker.kept());
        self.progress.set(position.done as u64);
        let speed = self.done_here as f64 / self.started.elapsed().as_secs_f64();
        let memory =
            crate::memory::resident_mib().map_or(String::new(), |mib| format!(", {mib:.0} MiB"));
        self.progress.say(format!("{speed:.2} frames/s{memory}"));
        Ok(())
    }
}

/// The masks of a frame at the size of the frame.
fn objects(tracked: &TrackedFrame) -> Result<Vec<ObjectMask>> {
    let object = |object: &cutout_sam::TrackedObject| {
        let score = object.segment.object_score().unwrap_or(0.0);
        Ok(ObjectMask { id: object.id, mask: object.segment.rle()?, score, found: None })
    };
    tracked.objects.iter().map(object).collect()
}
