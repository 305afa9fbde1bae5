//! Records out of reach of memory attention: dropped, or stored in files.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use cutout_weights::{Checkpoint, Metadata, WeightsError, write_safetensors};

use super::ObjectId;
use super::object::{FrameRecord, Object};
use super::options::{History, TrackError};
use crate::model::Model;

/// Records stored in files.
pub(super) struct RecordStore {
    folder: Option<PathBuf>,
    /// Stored frames of each object.
    frames: HashMap<ObjectId, BTreeSet<usize>>,
    /// Largest distance from the current frame at which a record is read.
    reach: usize,
}

impl RecordStore {
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

    /// Stores or drops records farther than `reach` from `frame`, and loads stored records within it.
    pub(super) fn update(
        &mut self,
        id: ObjectId,
        object: &mut Object,
        frame: usize,
        model: &Model,
    ) -> Result<(), TrackError> {
        let reach = frame.saturating_sub(self.reach)..=frame.saturating_add(self.reach);
        let far: Vec<usize> =
            object.tracked_frames.keys().copied().filter(|other| !reach.contains(other)).collect();
        for other in far {
            let Some(record) = object.tracked_frames.remove(&other) else { continue };
            let Some(folder) = &self.folder else { continue };
            let (mut tensors, mut metadata) = (Vec::new(), Metadata::new());
            record.store("", &mut tensors, &mut metadata)?;
            write_safetensors(file(folder, id, other), &tensors, &metadata)
                .map_err(|source| failed(id, other, source))?;
            self.frames.entry(id).or_default().insert(other);
        }
        let (Some(folder), Some(stored)) = (&self.folder, self.frames.get(&id)) else {
            return Ok(());
        };
        for other in stored.range(reach) {
            if object.record(*other).is_none() {
                let fail = |source| failed(id, *other, source);
                let checkpoint = Checkpoint::open(file(folder, id, *other)).map_err(fail)?;
                let record = FrameRecord::load(&checkpoint, "", model, &fail)?;
                object.tracked_frames.insert(*other, record);
            }
        }
        Ok(())
    }

    /// Stored frames of an object.
    pub(super) fn stored(&self, id: ObjectId) -> impl Iterator<Item = usize> {
        self.frames.get(&id).into_iter().flatten().copied()
    }

    /// Declares that frames of an object are stored already.
    pub(super) fn set_stored(&mut self, id: ObjectId, frames: BTreeSet<usize>) {
        self.frames.insert(id, frames);
    }

    /// Removes an object's files.
    pub(super) fn forget(&mut self, id: ObjectId) {
        let (Some(folder), Some(frames)) = (&self.folder, self.frames.remove(&id)) else { return };
        for frame in frames {
            // A file that cannot be removed is harmless: it is never read again.
            let _ignored = fs::remove_file(file(folder, id, frame));
        }
    }
}

fn failed(id: ObjectId, frame: usize, source: WeightsError) -> TrackError {
    TrackError::History { id, frame, source: Box::new(source) }
}

fn file(folder: &Path, id: ObjectId, frame: usize) -> PathBuf {
    folder.join(format!("object-{id}-frame-{frame}.safetensors"))
}
