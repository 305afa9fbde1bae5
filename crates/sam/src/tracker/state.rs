//! The state of a tracker in a file, to go on in another process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cutout_imaging::Size;
use cutout_tensor::{DType, TensorError};
use cutout_weights::{
    Checkpoint, Metadata, MetadataValue, OutgoingTensor, WeightsError, write_safetensors,
};

use super::object::{FrameRecord, Object, Rated};
use super::options::{Direction, TrackError, TrackOptions};
use super::{ObjectId, Tracker};
use crate::model::{Model, ModelError};
use crate::parts::FrameMemory;
use crate::sam::Sam;

/// Keys of the metadata. The file has them in this order; the program's name must stand near its beginning.
const FINGERPRINT: &str = "fingerprint";
const HEIGHT: &str = "height";
const SOFTWARE: &str = "software";
/// Prefix of what belongs to an object.
const TRACKER: &str = "tracker/";
/// What belongs to an object besides its records.
const GROUP: &str = "group";
const OWN_PROMPTS: &str = "own_prompts";
const STORED: &str = "stored";
/// Prefix of the caller's notes.
const USER: &str = "user/";
const WIDTH: &str = "width";

/// What the caller stores with the state of a tracker.
pub type StateNotes = BTreeMap<String, String>;

impl Tracker {
    /// Writes what later frames depend on: the records of all objects. [`Sam::resume_track`] goes on from it with the same
    /// results. `notes` are the caller's.
    pub fn save(&self, path: impl AsRef<Path>, notes: &StateNotes) -> Result<(), TrackError> {
        let (mapping, _) = self.mapping.as_ref().ok_or(TrackError::NoFrame)?;
        let Size { width, height } = mapping.original;
        let mut metadata = Metadata::from([
            (SOFTWARE.to_owned(), cutout_files::SOFTWARE.into()),
            (FINGERPRINT.to_owned(), fingerprint(&self.sam).into()),
            (WIDTH.to_owned(), width.to_string().into()),
            (HEIGHT.to_owned(), height.to_string().into()),
        ]);
        metadata
            .extend(notes.iter().map(|(key, note)| (format!("{USER}{key}"), note.as_str().into())));
        let mut tensors = Vec::new();
        for (id, object) in &self.objects {
            let stored = self.store.stored(*id).map(|frame| frame.to_string());
            metadata.insert(object_key(*id, STORED), stored.collect::<Vec<_>>().join(",").into());
            metadata.insert(object_key(*id, GROUP), object.group.to_string().into());
            let own: Vec<String> = object.own_prompts.iter().map(usize::to_string).collect();
            metadata.insert(object_key(*id, OWN_PROMPTS), own.join(",").into());
            for (kind, records) in object.kinds() {
                for (frame, record) in records {
                    let prefix = format!("{TRACKER}{id}/{kind}/{frame}/");
                    record.store(&prefix, &mut tensors, &mut metadata)?;
                }
            }
        }
        Ok(write_safetensors(path, &tensors, &metadata).map_err(Box::new)?)
    }
}

impl Sam {
    /// A tracker in the state that [`Tracker::save`] wrote, with the caller's notes. The options must be those of the saved
    /// tracker.
    pub fn resume_track(
        &self,
        path: impl AsRef<Path>,
        options: TrackOptions,
    ) -> Result<(Tracker, StateNotes), TrackError> {
        let file = Checkpoint::open(path).map_err(Box::new)?;
        let wrong = |reason: &str| TrackError::State {
            file: file.file().to_owned(),
            reason: reason.to_owned(),
        };
        let text = |key: &str| file.metadata().get(key).and_then(MetadataValue::as_text);
        if text(FINGERPRINT) != Some(fingerprint(self).as_str()) {
            return Err(wrong("it belongs to another model"));
        }
        let mut tracker = self.track(options)?;
        let length = |key| text(key).and_then(|text| text.parse().ok());
        let (Some(width), Some(height)) = (length(WIDTH), length(HEIGHT)) else {
            return Err(wrong("it has no size"));
        };
        tracker.expected_size = Some(Size::new(width, height));
        for key in records_in(&file) {
            let (id, kind, frame) =
                parsed(&key).ok_or_else(|| wrong(&format!("{key:?} is no record")))?;
            let record =
                FrameRecord::load(&file, &key, self.model(), &|error| Box::new(error).into())?;
            if record.logits.shape()[..] != [self.model().config().mask_side(); 2] {
                return Err(wrong(&format!("{key:?} has masks of another size")));
            }
            let object = tracker.objects.entry(id).or_default();
            object
                .kind_mut(kind)
                .ok_or_else(|| wrong(&format!("{key:?} is no record")))?
                .insert(frame, record);
        }
        let listed = |key: &str| -> Vec<usize> {
            let frames = text(key).unwrap_or_default().split(',');
            frames.filter_map(|frame| frame.parse().ok()).collect()
        };
        for (id, object) in &mut tracker.objects {
            let group = text(&object_key(*id, GROUP)).and_then(|group| group.parse().ok());
            object.group = group.ok_or_else(|| wrong(&format!("object {id} has no group")))?;
            object.own_prompts = listed(&object_key(*id, OWN_PROMPTS)).into_iter().collect();
            let stored = listed(&object_key(*id, STORED)).into_iter();
            tracker.store.set_stored(*id, stored, self.model())?;
            tracker.open_group.id = tracker.open_group.id.max(object.group.saturating_add(1));
        }
        let notes = file.metadata().iter().filter_map(|(key, value)| {
            Some((key.strip_prefix(USER)?.to_owned(), value.as_text()?.to_owned()))
        });
        Ok((tracker, notes.collect()))
    }
}

fn fingerprint(sam: &Sam) -> String {
    format!("{:016x}", sam.fingerprint())
}

fn object_key(id: ObjectId, key: &str) -> String {
    format!("{TRACKER}{id}/{key}")
}

/// The prefixes of all records in a file.
fn records_in(file: &Checkpoint) -> BTreeSet<String> {
    let prefix = |name: &str| name.strip_suffix(POINTER).map(str::to_owned);
    file.tensors().iter().filter_map(|tensor| prefix(&tensor.name)).collect()
}

/// Object, kind and frame of a prefix such as `tracker/1/tracked/7/`.
fn parsed(prefix: &str) -> Option<(ObjectId, &str, usize)> {
    let mut parts = prefix.strip_prefix(TRACKER)?.strip_suffix('/')?.split('/');
    let found = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(found)
}

impl Object {
    /// The records by kind.
    fn kinds(&self) -> [(&'static str, &BTreeMap<usize, FrameRecord>); 4] {
        [
            ("filled", &self.filled_frames),
            ("pending", &self.pending_prompts),
            ("prompted", &self.prompted_frames),
            ("tracked", &self.tracked_frames),
        ]
    }

    fn kind_mut(&mut self, kind: &str) -> Option<&mut BTreeMap<usize, FrameRecord>> {
        match kind {
            "filled" => Some(&mut self.filled_frames),
            "pending" => Some(&mut self.pending_prompts),
            "prompted" => Some(&mut self.prompted_frames),
            "tracked" => Some(&mut self.tracked_frames),
            _ => None,
        }
    }
}

/// Names of the tensors and numbers of a record.
const IOU: &str = "iou";
const LOGITS: &str = "logits";
const MEMORY: &str = "memory";
const OBJECT_SCORE: &str = "object_score";
const POINTER: &str = "pointer";
const RATED: &str = "rated";
const TRACKED: &str = "tracked";

impl FrameRecord {
    /// Adds the tensors and numbers of a record, with `prefix` before their names. Keys are recomputed on use.
    pub(super) fn store(
        &self,
        prefix: &str,
        tensors: &mut Vec<OutgoingTensor<'static>>,
        metadata: &mut Metadata,
    ) -> Result<(), ModelError> {
        let name = |name: &str| format!("{prefix}{name}");
        tensors.push(OutgoingTensor::new(name(POINTER), self.pointer.fetch()?));
        tensors.push(OutgoingTensor::new(name(LOGITS), self.logits.clone()));
        if let Some(memory) = &self.memory {
            tensors.push(OutgoingTensor::new(name(MEMORY), memory.memory.fetch()?));
        }
        metadata.insert(name(IOU), self.iou.to_bits().to_string().into());
        metadata.insert(name(OBJECT_SCORE), self.object_score.to_bits().to_string().into());
        if let Some(direction) = self.tracked {
            let word = match direction {
                Direction::Forward => "forward",
                Direction::Backward => "backward",
            };
            metadata.insert(name(TRACKED), word.into());
        }
        let rated = match self.rated {
            Rated::No => return Ok(()),
            Rated::Tracked => "tracked",
            Rated::ByObject => "by object",
        };
        metadata.insert(name(RATED), rated.into());
        Ok(())
    }

    /// Reads what [`FrameRecord::store`] added. `fail` makes the error of a tensor that cannot be read.
    pub(super) fn load(
        file: &Checkpoint,
        prefix: &str,
        model: &Model,
        fail: &dyn Fn(WeightsError) -> TrackError,
    ) -> Result<Self, TrackError> {
        let name = |name: &str| format!("{prefix}{name}");
        let tensor = |own: &str| file.tensor(&name(own)).map_err(fail);
        let (pointer, logits) = (tensor(POINTER)?, tensor(LOGITS)?);
        if logits.ty().dtype != DType::F32 {
            let message = format!("{} is not f32", name(LOGITS));
            return Err(TensorError::Shape(message).into());
        }
        let memory = match file.info(&name(MEMORY)) {
            None => None,
            Some(_) => Some(FrameMemory::plain(model.upload(&tensor(MEMORY)?)?, None)),
        };
        let text = |key: &str| file.metadata().get(&name(key)).and_then(MetadataValue::as_text);
        let number = |key| text(key).and_then(|bits| bits.parse().ok()).map(f32::from_bits);
        Ok(FrameRecord {
            memory,
            pointer: model.upload(&pointer)?,
            logits,
            iou: number(IOU).unwrap_or(0.0),
            // A missing score reads as "no object".
            object_score: number(OBJECT_SCORE).unwrap_or(-10.0),
            tracked: match text(TRACKED) {
                Some("forward") => Some(Direction::Forward),
                Some("backward") => Some(Direction::Backward),
                Some(_) | None => None,
            },
            rated: match text(RATED) {
                Some("tracked") => Rated::Tracked,
                Some("by object") => Rated::ByObject,
                Some(_) | None => Rated::No,
            },
            mask: None,
        })
    }
}
