//! The state of a run in a file, so that `--resume` goes on after the last frame written.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cutout_sam::{Direction, Sam, StateNotes, TrackOptions, Tracker};

use crate::failure::{self, Usage};
use crate::stdio;

/// Shortest time between two states of a run that may be killed.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(2);
/// Least time between two states for each second that writing one takes: at most 2 % of the run.
const SHARE: u32 = 50;

/// The last frame of a run, how many there were, and fingerprints that tell whether the video is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) frame: usize,
    pub(super) direction: Direction,
    pub(super) done: usize,
    /// [`cutout_imaging::Image::fingerprint`] of the first frame of the run.
    pub(super) first_pixels: u64,
    /// That of the last one.
    pub(super) last_pixels: u64,
}

impl Position {
    /// The frames done, in the order of the run, which began at frame `first`.
    pub(super) fn frames(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        let (start, end) = match self.direction {
            Direction::Forward => (first, self.frame + 1),
            Direction::Backward => (self.frame, self.frame + self.done),
        };
        (first..end).chain((start..first).rev())
    }
}

/// Where the state of a run is kept.
pub(super) struct StateFile {
    path: PathBuf,
    /// Prompts and options as text. A state of other prompts or options is not used.
    question: String,
    /// Number of frames of the video, as text. Masks depend on it.
    length: String,
    /// Whether the state is written from time to time, for a run that may be killed.
    is_kept: bool,
    saved: Instant,
    /// Time between two states.
    interval: Duration,
}

impl StateFile {
    /// The file beside an output.
    pub(super) fn beside(output: &Path, question: String, length: Option<usize>) -> Self {
        let length = length.map_or("unknown".to_owned(), |length| length.to_string());
        let path = path_beside(output);
        let (saved, interval) = (Instant::now(), SHORTEST_INTERVAL);
        StateFile { path, question, length, is_kept: true, saved, interval }
    }

    /// Sets whether the state is written from time to time.
    pub(super) fn kept(self, is_kept: bool) -> Self {
        StateFile { is_kept, ..self }
    }

    /// Whether a later run can go on from the state.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Whether there is a state.
    pub(super) fn exists(&self) -> bool {
        self.path.exists()
    }

    /// The tracker and its position, if there is a state.
    pub(super) fn load(
        &self,
        sam: &Sam,
        options: &TrackOptions,
    ) -> Result<Option<(Tracker, Position)>> {
        if !self.exists() {
            stdio::note("there is no state to go on from: beginning with the first frame");
            return Ok(None);
        }
        let (tracker, notes) = sam.resume_track(&self.path, options.clone())?;
        if notes.get("question") != Some(&self.question) {
            let path = self.path.display();
            return Err(Usage::error(format!(
                "{path}: the run that broke off had other prompts or options; repeat them, or remove this file"
            )));
        }
        let length = notes.get("length").map_or("unknown", String::as_str);
        if length != self.length {
            let path = self.path.display();
            return Err(Usage::error(format!(
                "{path}: the video has changed since the run that broke off: its length was {length}, and is {}; leave out --resume to begin with the first frame",
                self.length
            )));
        }
        let position = position(&notes)
            .with_context(|| format!("{}: the state has no position", self.path.display()))?;
        Ok(Some((tracker, position)))
    }

    /// Writes the state if it is time to. If that fails, says so once and goes on: only `--resume` needs it.
    pub(super) fn keep(&mut self, tracker: &Tracker, position: Position) {
        if !self.is_kept || self.saved.elapsed() < self.interval {
            return;
        }
        let started = Instant::now();
        if let Err(error) = self.save(tracker, position) {
            self.is_kept = false;
            stdio::warn(&cannot_be_kept(&error));
        }
        self.saved = Instant::now();
        self.interval = (SHARE * started.elapsed()).max(SHORTEST_INTERVAL);
    }

    fn save(&self, tracker: &Tracker, position: Position) -> Result<()> {
        let Position { frame, direction, done, first_pixels, last_pixels } = position;
        let entries = [
            ("question", self.question.clone()),
            ("length", self.length.clone()),
            ("frame", frame.to_string()),
            ("direction", format!("{direction:?}")),
            ("done", done.to_string()),
            ("first_pixels", first_pixels.to_string()),
            ("last_pixels", last_pixels.to_string()),
        ];
        let notes = entries.map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
        Ok(tracker.save(&self.path, &notes)?)
    }

    /// Writes the state of a run that broke off, and says how to go on.
    pub(super) fn break_off(&self, tracker: &Tracker, position: Position) {
        match self.save(tracker, position) {
            Ok(()) => stdio::note(&format!(
                "up to frame {} the masks are written; the same command with --resume goes on from there",
                position.frame
            )),
            Err(error) => stdio::note(&cannot_be_kept(&error)),
        }
    }

    /// Removes the state of a run that is complete, or of which nothing is left. A folder at its place is somebody else's.
    pub(super) fn remove(&self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(_) if self.path.is_dir() => Ok(()),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("{}: cannot be removed", self.path.display()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn cannot_be_kept(error: &anyhow::Error) -> String {
    format!("the state cannot be kept for --resume: {}", failure::message(error))
}

/// The state file of an output.
pub(super) fn path_beside(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".state");
    output.with_file_name(name)
}

fn position(notes: &StateNotes) -> Option<Position> {
    Some(Position {
        frame: notes.get("frame")?.parse().ok()?,
        direction: match notes.get("direction")?.as_str() {
            "Forward" => Direction::Forward,
            "Backward" => Direction::Backward,
            _ => return None,
        },
        done: notes.get("done")?.parse().ok()?,
        first_pixels: notes.get("first_pixels")?.parse().ok()?,
        last_pixels: notes.get("last_pixels")?.parse().ok()?,
    })
}
