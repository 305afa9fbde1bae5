//! Records out of reach of memory attention: dropped, or stored in files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use cutout_weights::{Checkpoint, Metadata, WeightsError, write_safetensors};

use super::ObjectId;
use super::group::GroupId;
use super::object::Rated;
use super::options::{History, TrackError};
use super::state::Stored;
use super::timeline::{Recalled, Timeline};
use crate::model::Model;

/// Whose records are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    Object(ObjectId),
    Bucket(GroupId),
}

impl std::fmt::Display for Holder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holder::Object(id) => write!(out, "object-{id}"),
            Holder::Bucket(group) => write!(out, "bucket-{group}"),
        }
    }
}

/// Records stored in files.
pub(super) struct RecordStore {
    folder: Option<PathBuf>,
    /// Stored frames of each object and bucket.
    frames: HashMap<Holder, BTreeMap<usize, Sighting>>,
    /// Largest distance from the current frame at which a record is read.
    reach: usize,
}

/// What was seen of an object on a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sighting {
    pub(super) object_score: f32,
    pub(super) iou: f32,
    pub(super) rated: Rated,
}

/// Frames whose records are held in memory.
pub(super) struct WantedFrames {
    reach: RangeInclusive<usize>,
    /// Frames out of reach.
    farther: BTreeSet<usize>,
}

impl WantedFrames {
    fn contains(&self, frame: usize) -> bool {
        self.reach.contains(&frame) || self.farther.contains(&frame)
    }
}

impl RecordStore {
    /// Frames to hold when `frame` is the current one: those in reach, and `farther` ones.
    pub(super) fn wanted(&self, frame: usize, farther: Vec<usize>) -> WantedFrames {
        let reach = frame.saturating_sub(self.reach)..=frame.saturating_add(self.reach);
        WantedFrames { reach, farther: farther.into_iter().collect() }
    }

    pub(super) fn new(history: &History, reach: usize) -> Self {
        let folder = match history {
            History::Recent => None,
            History::Disk(folder) => Some(folder.clone()),
        };
        RecordStore { folder, frames: HashMap::new(), reach }
    }

    pub(super) fn reach(&self) -> usize {
        self.reach
    }

    /// Stores or drops records of frames that are not wanted, and loads stored records of those that are.
    pub(super) fn update<R: Stored + Recalled>(
        &mut self,
        holder: Holder,
        records: &mut Timeline<R>,
        wanted: &WantedFrames,
        model: &Model,
    ) -> Result<(), TrackError> {
        let frames = records.tracked.keys().copied();
        let far: Vec<usize> = frames.filter(|frame| !wanted.contains(*frame)).collect();
        for other in far {
            let Some(record) = records.tracked.remove(&other) else { continue };
            let Some(folder) = &self.folder else { continue };
            let (mut tensors, mut metadata) = (Vec::new(), Metadata::new());
            record.store("", &mut tensors, &mut metadata)?;
            write_safetensors(file(folder, holder, other), &tensors, &metadata)
                .map_err(|source| failed(holder, other, source))?;
            self.frames.entry(holder).or_default().insert(other, record.sighting());
        }
        let (Some(folder), Some(stored)) = (&self.folder, self.frames.get(&holder)) else {
            return Ok(());
        };
        for other in stored.keys().copied().filter(|frame| wanted.contains(*frame)) {
            if records.record(other).is_none() {
                records.tracked.insert(other, load(folder, holder, other, model)?);
            }
        }
        Ok(())
    }

    /// Stored frames of an object or bucket.
    pub(super) fn stored(&self, holder: Holder) -> impl Iterator<Item = usize> {
        self.frames.get(&holder).into_iter().flat_map(|frames| frames.keys().copied())
    }

    /// What was seen of an object on a stored frame.
    pub(super) fn sighting(&self, id: ObjectId, frame: usize) -> Option<Sighting> {
        self.frames.get(&Holder::Object(id))?.get(&frame).copied()
    }

    /// Declares that frames of an object or bucket are stored already.
    pub(super) fn set_stored<R: Stored>(
        &mut self,
        holder: Holder,
        frames: impl Iterator<Item = usize>,
        model: &Model,
    ) -> Result<(), TrackError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let seen = |frame| Ok((frame, load::<R>(folder, holder, frame, model)?.sighting()));
        let frames = frames.map(seen).collect::<Result<BTreeMap<_, _>, TrackError>>()?;
        self.frames.insert(holder, frames);
        Ok(())
    }

    /// Removes the files of an object or bucket.
    pub(super) fn forget(&mut self, holder: Holder) {
        let (Some(folder), Some(frames)) = (&self.folder, self.frames.remove(&holder)) else {
            return;
        };
        for frame in frames.into_keys() {
            // A file that cannot be removed is harmless: it is never read again.
            let _ignored = fs::remove_file(file(folder, holder, frame));
        }
    }
}

fn failed(holder: Holder, frame: usize, source: WeightsError) -> TrackError {
    TrackError::History {
        holder: holder.to_string().replace('-', " "),
        frame,
        source: Box::new(source),
    }
}

/// Reads a stored record.
fn load<R: Stored>(
    folder: &Path,
    holder: Holder,
    frame: usize,
    model: &Model,
) -> Result<R, TrackError> {
    let fail = |source| failed(holder, frame, source);
    let checkpoint = Checkpoint::open(file(folder, holder, frame)).map_err(fail)?;
    R::load(&checkpoint, "", model, &fail)
}

fn file(folder: &Path, holder: Holder, frame: usize) -> PathBuf {
    folder.join(format!("{holder}-frame-{frame}.safetensors"))
}
