//! The state of a tracker in a file, to go on in another process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cutout_graph::DeviceValue;
use cutout_imaging::Size;
use cutout_tensor::{DType, TensorError};
use cutout_weights::{
    Checkpoint, Metadata, MetadataValue, OutgoingTensor, WeightsError, write_safetensors,
};

use super::Tracker;
use super::bucket::BucketRecord;
use super::group::GroupId;
use super::history::{Holder, Sighting};
use super::object::{FrameRecord, Object, Rated};
use super::options::{Direction, TrackError, TrackOptions};
use super::timeline::Timeline;
use crate::model::{Model, ModelError};
use crate::parts::FrameMemory;
use crate::sam::Sam;

/// Keys of the metadata. The file has them in this order; the program's name must stand near its beginning.
const FINGERPRINT: &str = "fingerprint";
const HEIGHT: &str = "height";
const SOFTWARE: &str = "software";
/// Prefixes of what belongs to an object and to a bucket of objects.
const TRACKER: &str = "tracker/";
const BUCKET: &str = "bucket/";
/// Metadata keys of an object or a bucket.
const GROUP: &str = "group";
const OWN_PROMPTS: &str = "own_prompts";
const SLOT: &str = "slot";
const STORED: &str = "stored";
const USED: &str = "used";
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
            let key = |name: &str| format!("{TRACKER}{id}/{name}");
            metadata.insert(key(STORED), listed(self.store.stored(Holder::Object(*id))).into());
            metadata.insert(key(GROUP), object.group.to_string().into());
            metadata.insert(key(SLOT), object.slot.to_string().into());
            metadata.insert(key(OWN_PROMPTS), listed(object.own_prompts.iter().copied()).into());
            for (frame, record) in &object.filled_frames {
                record.store(&key(&format!("{FILLED}/{frame}/")), &mut tensors, &mut metadata)?;
            }
            object.frames.store(&key(""), &mut tensors, &mut metadata)?;
        }
        for (group, bucket) in &self.buckets {
            let key = |name: &str| format!("{BUCKET}{group}/{name}");
            metadata.insert(key(STORED), listed(self.store.stored(Holder::Bucket(*group))).into());
            metadata.insert(key(USED), bucket.used.to_string().into());
            bucket.frames.store(&key(""), &mut tensors, &mut metadata)?;
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
        tracker.load_objects(&file)?;
        tracker.load_buckets(&file)?;
        let notes = file.metadata().iter().filter_map(|(key, value)| {
            Some((key.strip_prefix(USER)?.to_owned(), value.as_text()?.to_owned()))
        });
        Ok((tracker, notes.collect()))
    }
}

fn fingerprint(sam: &Sam) -> String {
    format!("{:016x}", sam.fingerprint())
}

/// Numbers as text.
fn listed(numbers: impl Iterator<Item = usize>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

/// What a file says besides tensors.
struct Notes<'a>(&'a Checkpoint);

impl Notes<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.0.metadata().get(key).and_then(MetadataValue::as_text)
    }

    fn number<N: std::str::FromStr>(&self, key: &str) -> Option<N> {
        self.text(key).and_then(|text| text.parse().ok())
    }

    fn numbers(&self, key: &str) -> Vec<usize> {
        let numbers = self.text(key).unwrap_or_default().split(',');
        numbers.filter_map(|number| number.parse().ok()).collect()
    }

    fn wrong(&self, reason: String) -> TrackError {
        TrackError::State { file: self.0.file().to_owned(), reason }
    }

    /// Prefix, holder, kind and frame of all records whose names begin with `start` and end with `end`, such as
    /// `tracker/1/tracked/7/logits`.
    fn records(
        &self,
        start: &str,
        end: &str,
    ) -> Result<Vec<(String, u32, String, usize)>, TrackError> {
        let names = self.0.tensors().iter().map(|tensor| tensor.name.as_str());
        let prefixes = names.filter(|name| name.starts_with(start));
        let prefixes: BTreeSet<&str> = prefixes.filter_map(|name| name.strip_suffix(end)).collect();
        let parsed = |prefix: &str| {
            let mut parts = prefix.strip_prefix(start)?.strip_suffix('/')?.split('/');
            let holder = parts.next()?.parse().ok()?;
            let (kind, frame) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
            parts.next().is_none().then(|| (prefix.to_owned(), holder, kind, frame))
        };
        let checked =
            |prefix| parsed(prefix).ok_or_else(|| self.wrong(format!("{prefix:?} is no record")));
        prefixes.into_iter().map(checked).collect()
    }
}

impl Tracker {
    fn load_objects(&mut self, file: &Checkpoint) -> Result<(), TrackError> {
        let (sam, notes) = (self.sam.clone(), Notes(file));
        let side = sam.model().config().mask_side();
        for (prefix, id, kind, frame) in notes.records(TRACKER, LOGITS)? {
            let record =
                FrameRecord::load(file, &prefix, sam.model(), &|error| Box::new(error).into())?;
            if record.logits.shape()[..] != [side; 2] {
                return Err(notes.wrong(format!("{prefix:?} has masks of another size")));
            }
            let object: &mut Object = self.objects.entry(id).or_default();
            let records = match kind.as_str() {
                FILLED => Some(&mut object.filled_frames),
                kind => object.frames.kind_mut(kind),
            };
            let records = records.ok_or_else(|| notes.wrong(format!("{prefix:?} is no record")))?;
            records.insert(frame, record);
        }
        for (id, object) in &mut self.objects {
            let key = |name: &str| format!("{TRACKER}{id}/{name}");
            let group = notes.number(&key(GROUP));
            object.group = group.ok_or_else(|| notes.wrong(format!("object {id} has no group")))?;
            object.slot = notes.number(&key(SLOT)).unwrap_or_default();
            object.own_prompts = notes.numbers(&key(OWN_PROMPTS)).into_iter().collect();
            let stored = notes.numbers(&key(STORED)).into_iter();
            self.store.set_stored::<FrameRecord>(Holder::Object(*id), stored, sam.model())?;
            self.open_group.id = self.open_group.id.max(object.group.saturating_add(1));
        }
        Ok(())
    }

    fn load_buckets(&mut self, file: &Checkpoint) -> Result<(), TrackError> {
        let (sam, notes) = (self.sam.clone(), Notes(file));
        for (prefix, group, kind, frame) in notes.records(BUCKET, POINTERS)? {
            let record =
                BucketRecord::load(file, &prefix, sam.model(), &|error| Box::new(error).into())?;
            let bucket = self.buckets.entry(group as GroupId).or_default();
            let records = bucket.frames.kind_mut(&kind);
            let records = records.ok_or_else(|| notes.wrong(format!("{prefix:?} is no record")))?;
            records.insert(frame, record);
        }
        if self.buckets.is_empty() {
            return Ok(());
        }
        let slots = self.slots()?;
        for (group, bucket) in &mut self.buckets {
            let key = |name: &str| format!("{BUCKET}{group}/{name}");
            bucket.used = notes.number(&key(USED)).unwrap_or(slots).min(slots);
            let stored = notes.numbers(&key(STORED)).into_iter();
            self.store.set_stored::<BucketRecord>(Holder::Bucket(*group), stored, sam.model())?;
        }
        let outside = self.objects.iter().find(|(_, object)| {
            self.buckets.get(&object.group).is_none_or(|bucket| object.slot >= bucket.used)
        });
        match outside {
            Some((id, _)) => Err(notes.wrong(format!("object {id} is in no bucket"))),
            None => Ok(()),
        }
    }
}

/// Kinds of records.
const FILLED: &str = "filled";
const PENDING: &str = "pending";
const PROMPTED: &str = "prompted";
const FOLLOWED: &str = "tracked";

impl<R: Stored> Timeline<R> {
    /// Adds all records, with `prefix` before their names.
    fn store(
        &self,
        prefix: &str,
        tensors: &mut Vec<OutgoingTensor<'static>>,
        metadata: &mut Metadata,
    ) -> Result<(), ModelError> {
        let kinds =
            [(PENDING, &self.pending), (PROMPTED, &self.prompted), (FOLLOWED, &self.tracked)];
        for (kind, records) in kinds {
            for (frame, record) in records {
                record.store(&format!("{prefix}{kind}/{frame}/"), tensors, metadata)?;
            }
        }
        Ok(())
    }

    fn kind_mut(&mut self, kind: &str) -> Option<&mut BTreeMap<usize, R>> {
        match kind {
            PENDING => Some(&mut self.pending),
            PROMPTED => Some(&mut self.prompted),
            FOLLOWED => Some(&mut self.tracked),
            _ => None,
        }
    }
}

/// A record that can be kept in a file.
pub(super) trait Stored: Sized {
    /// Adds its tensors and numbers, with `prefix` before their names. Keys of memories are recomputed on use.
    fn store(
        &self,
        prefix: &str,
        tensors: &mut Vec<OutgoingTensor<'static>>,
        metadata: &mut Metadata,
    ) -> Result<(), ModelError>;

    /// Reads what [`Stored::store`] added. `fail` makes the error of a tensor that cannot be read.
    fn load(
        file: &Checkpoint,
        prefix: &str,
        model: &Model,
        fail: &dyn Fn(WeightsError) -> TrackError,
    ) -> Result<Self, TrackError>;

    fn sighting(&self) -> Sighting;
}

/// Names of the tensors and numbers of a record.
const GIVEN: &str = "given";
const IMAGE: &str = "image";
const IOU: &str = "iou";
const LOGITS: &str = "logits";
const MEMORY: &str = "memory";
const OBJECT_SCORE: &str = "object_score";
const POINTER: &str = "pointer";
const POINTERS: &str = "pointers";
const RATED: &str = "rated";
const TRACKED: &str = "tracked";

impl Stored for FrameRecord {
    fn store(
        &self,
        prefix: &str,
        tensors: &mut Vec<OutgoingTensor<'static>>,
        metadata: &mut Metadata,
    ) -> Result<(), ModelError> {
        let name = |name: &str| format!("{prefix}{name}");
        if let Some(pointer) = &self.pointer {
            tensors.push(OutgoingTensor::new(name(POINTER), pointer.fetch()?));
        }
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

    fn load(
        file: &Checkpoint,
        prefix: &str,
        model: &Model,
        fail: &dyn Fn(WeightsError) -> TrackError,
    ) -> Result<Self, TrackError> {
        let name = |name: &str| format!("{prefix}{name}");
        let tensor = |own: &str| file.tensor(&name(own)).map_err(fail);
        let logits = tensor(LOGITS)?;
        let uploaded = |own: &str| -> Result<Option<DeviceValue>, TrackError> {
            let known = file.info(&name(own)).is_some();
            Ok(known.then(|| tensor(own)).transpose()?.map(|it| model.upload(&it)).transpose()?)
        };
        if logits.ty().dtype != DType::F32 {
            let message = format!("{} is not f32", name(LOGITS));
            return Err(TensorError::Shape(message).into());
        }
        let text = |key: &str| file.metadata().get(&name(key)).and_then(MetadataValue::as_text);
        let number = |key| text(key).and_then(|bits| bits.parse().ok()).map(f32::from_bits);
        Ok(FrameRecord {
            memory: uploaded(MEMORY)?.map(|memory| FrameMemory::plain(memory, None)),
            pointer: uploaded(POINTER)?,
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
            shown: None,
        })
    }

    fn sighting(&self) -> Sighting {
        Sighting { object_score: self.object_score, iou: self.iou, rated: self.rated }
    }
}

impl Stored for BucketRecord {
    fn store(
        &self,
        prefix: &str,
        tensors: &mut Vec<OutgoingTensor<'static>>,
        metadata: &mut Metadata,
    ) -> Result<(), ModelError> {
        let name = |name: &str| format!("{prefix}{name}");
        tensors.push(OutgoingTensor::new(name(POINTERS), self.pointers.fetch()?));
        if let Some(FrameMemory { memory, image: Some(image), .. }) = &self.memory {
            tensors.push(OutgoingTensor::new(name(MEMORY), memory.fetch()?));
            tensors.push(OutgoingTensor::new(name(IMAGE), image.fetch()?));
        }
        metadata.insert(name(GIVEN), listed(self.given.iter().copied()).into());
        Ok(())
    }

    fn load(
        file: &Checkpoint,
        prefix: &str,
        model: &Model,
        fail: &dyn Fn(WeightsError) -> TrackError,
    ) -> Result<Self, TrackError> {
        let name = |name: &str| format!("{prefix}{name}");
        let tensor = |own: &str| -> Result<DeviceValue, TrackError> {
            Ok(model.upload(&file.tensor(&name(own)).map_err(fail)?)?)
        };
        let memory = match file.info(&name(MEMORY)) {
            None => None,
            Some(_) => Some(FrameMemory::plain(tensor(MEMORY)?, Some(tensor(IMAGE)?))),
        };
        let multiplex = model.config().memory()?.multiplex.as_ref();
        let slots = multiplex.ok_or(ModelError::NoMemory)?.slots;
        let given = Notes(file).numbers(&name(GIVEN)).into_iter();
        let given = given.filter(|slot| *slot < slots).collect();
        Ok(BucketRecord { memory, pointers: tensor(POINTERS)?, given })
    }

    fn sighting(&self) -> Sighting {
        Sighting { object_score: 0.0, iou: 0.0, rated: Rated::No }
    }
}
