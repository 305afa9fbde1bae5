//! The state of a run in a file, so that `--resume` goes on after the last frame written.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cutout_sam::{Direction, Sam, StateNotes, TrackOptions, Tracker};

use crate::failure::Usage;
use crate::stdio;

/// Time between two states of a run that may be killed.
const INTERVAL: Duration = Duration::from_secs(30);

/// The last frame of a run, and how many there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) frame: usize,
    pub(super) direction: Direction,
    pub(super) done: usize,
}

/// Where the state of a run is kept.
pub(super) struct StateFile {
    path: PathBuf,
    /// Prompts and options, as text: a state is used for the same ones only.
    question: String,
    /// Whether the state is written from time to time.
    is_kept: bool,
    saved: Instant,
}

impl StateFile {
    /// The file beside an output.
    pub(super) fn beside(output: &Path, question: String, is_kept: bool) -> Self {
        StateFile { path: path_beside(output), question, is_kept, saved: Instant::now() }
    }

    /// The tracker and its position, if there is a state.
    pub(super) fn load(
        &self,
        sam: &Sam,
        options: &TrackOptions,
    ) -> Result<Option<(Tracker, Position)>> {
        if !self.path.exists() {
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
        let position = position(&notes)
            .with_context(|| format!("{}: the state has no position", self.path.display()))?;
        Ok(Some((tracker, position)))
    }

    /// Writes the state if it is time to.
    pub(super) fn keep(&mut self, tracker: &Tracker, position: Position) -> Result<()> {
        if self.is_kept && self.saved.elapsed() > INTERVAL {
            self.save(tracker, position)?;
        }
        Ok(())
    }

    fn save(&mut self, tracker: &Tracker, position: Position) -> Result<()> {
        self.saved = Instant::now();
        let Position { frame, direction, done } = position;
        let entries = [
            ("question", self.question.clone()),
            ("frame", frame.to_string()),
            ("direction", format!("{direction:?}")),
            ("done", done.to_string()),
        ];
        let notes = entries.map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
        Ok(tracker.save(&self.path, &notes)?)
    }

    /// Writes the state of a run that broke off, and says how to go on.
    pub(super) fn break_off(&mut self, tracker: &Tracker, position: Position) {
        match self.save(tracker, position) {
            Ok(()) => stdio::note(&format!(
                "up to frame {} the masks are written; the same command with --resume goes on from there",
                position.frame
            )),
            Err(error) => stdio::note(&format!("the state cannot be kept for --resume: {error}")),
        }
    }

    /// Removes the state of a run that is complete.
    pub(super) fn remove(&self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("{}: cannot be removed", self.path.display()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
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
    })
}
