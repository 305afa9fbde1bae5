//! Records out of reach of memory attention: dropped, or stored in files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use cutout_weights::{Checkpoint, Metadata, WeightsError, write_safetensors};

use super::ObjectId;
use super::object::{FrameRecord, Object, Rated};
use super::options::{History, TrackError};
use crate::model::Model;

/// Records stored in files.
pub(super) struct RecordStore {
    folder: Option<PathBuf>,
    /// Stored frames of each object.
    frames: HashMap<ObjectId, BTreeMap<usize, Sighting>>,
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
    pub(super) fn update(
        &mut self,
        id: ObjectId,
        object: &mut Object,
        wanted: &WantedFrames,
        model: &Model,
    ) -> Result<(), TrackError> {
        let far: Vec<usize> = object
            .tracked_frames
            .keys()
            .copied()
            .filter(|frame| !wanted.contains(*frame))
            .collect();
        for other in far {
            let Some(record) = object.tracked_frames.remove(&other) else { continue };
            let Some(folder) = &self.folder else { continue };
            let (mut tensors, mut metadata) = (Vec::new(), Metadata::new());
            record.store("", &mut tensors, &mut metadata)?;
            write_safetensors(file(folder, id, other), &tensors, &metadata)
                .map_err(|source| failed(id, other, source))?;
            self.frames.entry(id).or_default().insert(other, record.sighting());
        }
        let (Some(folder), Some(stored)) = (&self.folder, self.frames.get(&id)) else {
            return Ok(());
        };
        for other in stored.keys().copied().filter(|frame| wanted.contains(*frame)) {
            if object.record(other).is_none() {
                let record = load(folder, id, other, model)?;
                object.tracked_frames.insert(other, record);
            }
        }
        Ok(())
    }

    /// Stored frames of an object.
    pub(super) fn stored(&self, id: ObjectId) -> impl Iterator<Item = usize> {
        self.frames.get(&id).into_iter().flat_map(|frames| frames.keys().copied())
    }

    /// What was seen of an object on a stored frame.
    pub(super) fn sighting(&self, id: ObjectId, frame: usize) -> Option<Sighting> {
        self.frames.get(&id)?.get(&frame).copied()
    }

    /// Declares that frames of an object are stored already.
    pub(super) fn set_stored(
        &mut self,
        id: ObjectId,
        frames: impl Iterator<Item = usize>,
        model: &Model,
    ) -> Result<(), TrackError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let seen = |frame| Ok((frame, load(folder, id, frame, model)?.sighting()));
        let frames = frames.map(seen).collect::<Result<BTreeMap<_, _>, TrackError>>()?;
        self.frames.insert(id, frames);
        Ok(())
    }

    /// Removes an object's files.
    pub(super) fn forget(&mut self, id: ObjectId) {
        let (Some(folder), Some(frames)) = (&self.folder, self.frames.remove(&id)) else { return };
        for frame in frames.into_keys() {
            // A file that cannot be removed is harmless: it is never read again.
            let _ignored = fs::remove_file(file(folder, id, frame));
        }
    }
}

fn failed(id: ObjectId, frame: usize, source: WeightsError) -> TrackError {
    TrackError::History { id, frame, source: Box::new(source) }
}

/// Reads a stored record.
fn load(
    folder: &Path,
    id: ObjectId,
    frame: usize,
    model: &Model,
) -> Result<FrameRecord, TrackError> {
    let fail = |source| failed(id, frame, source);
    let checkpoint = Checkpoint::open(file(folder, id, frame)).map_err(fail)?;
    FrameRecord::load(&checkpoint, "", model, &fail)
}

fn file(folder: &Path, id: ObjectId, frame: usize) -> PathBuf {
    folder.join(format!("object-{id}-frame-{frame}.safetensors"))
}
