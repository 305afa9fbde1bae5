//! What becomes of frames that are out of reach: forgotten, or kept in files.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use cutout_weights::{
    Checkpoint, Metadata, MetadataValue, OutgoingTensor, WeightsError, write_safetensors,
};

use super::ObjectId;
use super::object::{Object, Output};
use super::options::{Direction, History, TrackError};

/// Outputs that are not in memory.
pub(super) struct Archive {
    folder: Option<PathBuf>,
    /// The frames that are in files.
    frames: HashMap<ObjectId, BTreeSet<usize>>,
    /// How many frames away from the one at hand an output can still be read.
    reach: usize,
}

impl Archive {
    pub(super) fn new(history: &History, reach: usize) -> Self {
        let folder = match history {
            History::Recent => None,
            History::Disk(folder) => Some(folder.clone()),
        };
        Archive { folder, frames: HashMap::new(), reach }
    }

    pub(super) fn reach(&self) -> usize {
        self.reach
    }

    /// Keeps in memory what an object can reach from `frame` in either direction, and puts the rest away.
    pub(super) fn settle(
        &mut self,
        id: ObjectId,
        object: &mut Object,
        frame: usize,
    ) -> Result<(), TrackError> {
        let reach = frame.saturating_sub(self.reach)..=frame.saturating_add(self.reach);
        let far: Vec<usize> =
            object.found.keys().copied().filter(|other| !reach.contains(other)).collect();
        for other in far {
            let Some(output) = object.found.remove(&other) else { continue };
            let Some(folder) = &self.folder else { continue };
            store(&file(folder, id, other), &output).map_err(|source| failed(id, other, source))?;
            self.frames.entry(id).or_default().insert(other);
        }
        let (Some(folder), Some(stored)) = (&self.folder, self.frames.get(&id)) else {
            return Ok(());
        };
        for other in stored.range(reach) {
            if object.output(*other).is_none() {
                let output =
                    load(&file(folder, id, *other)).map_err(|source| failed(id, *other, source))?;
                object.found.insert(*other, output);
            }
        }
        Ok(())
    }

    /// Removes an object's files.
    pub(super) fn forget(&mut self, id: ObjectId) {
        let (Some(folder), Some(frames)) = (&self.folder, self.frames.remove(&id)) else { return };
        for frame in frames {
            // A file that stays is in nobody's way: it is never read again.
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

fn store(path: &Path, output: &Output) -> Result<(), WeightsError> {
    let mut tensors = vec![
        OutgoingTensor::new("pointer", output.pointer.clone()),
        OutgoingTensor::new("logits", output.logits.clone()),
    ];
    let memory = output.memory.iter();
    tensors.extend(memory.map(|memory| OutgoingTensor::new("memory", memory.clone())));
    let text = |value: String| MetadataValue::Text(value);
    let mut metadata = Metadata::from([
        ("iou".to_owned(), text(output.iou.to_bits().to_string())),
        ("object_score".to_owned(), text(output.object_score.to_bits().to_string())),
    ]);
    if let Some(direction) = output.tracked {
        let word = match direction {
            Direction::Forward => "forward",
            Direction::Backward => "backward",
        };
        metadata.insert("tracked".to_owned(), text(word.to_owned()));
    }
    write_safetensors(path, &tensors, &metadata)
}

fn load(path: &Path) -> Result<Output, WeightsError> {
    let file = Checkpoint::open(path)?;
    let text = |key: &str| file.metadata().get(key).and_then(MetadataValue::as_text);
    // Only this process's own files are read; what is not in them reads as "no object".
    let number = |key: &str| text(key).and_then(|bits| bits.parse().ok()).map(f32::from_bits);
    Ok(Output {
        memory: file.info("memory").map(|_| file.tensor("memory")).transpose()?,
        projected: None,
        pointer: file.tensor("pointer")?,
        logits: file.tensor("logits")?,
        iou: number("iou").unwrap_or(0.0),
        object_score: number("object_score").unwrap_or(-10.0),
        tracked: match text("tracked") {
            Some("forward") => Some(Direction::Forward),
            Some("backward") => Some(Direction::Backward),
            Some(_) | None => None,
        },
    })
}
