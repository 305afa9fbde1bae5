//! Records out of reach of memory attention: dropped, or stored in files.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use cutout_tensor::Tensor;
use cutout_weights::{
    Checkpoint, Metadata, MetadataValue, OutgoingTensor, WeightsError, write_safetensors,
};

use super::ObjectId;
use super::object::{FrameRecord, Object};
use super::options::{Direction, History, TrackError};
use crate::model::{Model, ModelError};
use crate::parts::FrameMemory;

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
            let tensors = tensors(&record)?;
            write_safetensors(file(folder, id, other), &tensors, &metadata(&record))
                .map_err(|source| failed(id, other, source))?;
            self.frames.entry(id).or_default().insert(other);
        }
        let (Some(folder), Some(stored)) = (&self.folder, self.frames.get(&id)) else {
            return Ok(());
        };
        for other in stored.range(reach) {
            if object.record(*other).is_none() {
                let checkpoint = Checkpoint::open(file(folder, id, *other));
                let checkpoint = checkpoint.map_err(|source| failed(id, *other, source))?;
                let tensor = |name: &str| {
                    checkpoint.tensor(name).map_err(|source| failed(id, *other, source))
                };
                object.tracked_frames.insert(*other, load(&checkpoint, &tensor, model)?);
            }
        }
        Ok(())
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

/// The stored tensors of a record. Keys are recomputed on use.
fn tensors(record: &FrameRecord) -> Result<Vec<OutgoingTensor<'static>>, ModelError> {
    let mut tensors = vec![
        OutgoingTensor::new("pointer", record.pointer.fetch()?),
        OutgoingTensor::new("logits", record.logits.clone()),
    ];
    if let Some(memory) = &record.memory {
        tensors.push(OutgoingTensor::new("memory", memory.memory.fetch()?));
    }
    Ok(tensors)
}

fn metadata(record: &FrameRecord) -> Metadata {
    let text = |value: String| MetadataValue::Text(value);
    let mut metadata = Metadata::from([
        ("iou".to_owned(), text(record.iou.to_bits().to_string())),
        ("object_score".to_owned(), text(record.object_score.to_bits().to_string())),
    ]);
    if let Some(direction) = record.tracked {
        let word = match direction {
            Direction::Forward => "forward",
            Direction::Backward => "backward",
        };
        metadata.insert("tracked".to_owned(), text(word.to_owned()));
    }
    metadata
}

fn load(
    file: &Checkpoint,
    tensor: &dyn Fn(&str) -> Result<Tensor, TrackError>,
    model: &Model,
) -> Result<FrameRecord, TrackError> {
    let text = |key: &str| file.metadata().get(key).and_then(MetadataValue::as_text);
    // Only files of this process are read. A missing score reads as "no object".
    let number = |key: &str| text(key).and_then(|bits| bits.parse().ok()).map(f32::from_bits);
    let memory = match file.info("memory") {
        None => None,
        Some(_) => Some(FrameMemory {
            memory: model.upload(&tensor("memory")?)?,
            keys: Vec::new(),
            values: Vec::new(),
        }),
    };
    Ok(FrameRecord {
        memory,
        pointer: model.upload(&tensor("pointer")?)?,
        logits: tensor("logits")?,
        iou: number("iou").unwrap_or(0.0),
        object_score: number("object_score").unwrap_or(-10.0),
        tracked: match text("tracked") {
            Some("forward") => Some(Direction::Forward),
            Some("backward") => Some(Direction::Backward),
            Some(_) | None => None,
        },
    })
}
