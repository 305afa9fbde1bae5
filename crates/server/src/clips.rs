//! Clips that clients track objects through, by last use within a number of clips and bytes.

mod frames;
mod multipart;
mod tracking;
mod upload;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cutout_sam::ObjectId;
use cutout_video::ObjectMask;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::watch;

pub(crate) use frames::Frames;
pub(crate) use multipart::pictures_in;
pub(crate) use tracking::{Masked, Means, PhraseRun, Tracking};
pub(crate) use upload::{Recording, Upload};

use crate::options::Limits;
use crate::problem::Problem;

/// Points and a box on one object of one frame, as they were sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Marks {
    /// x, y, label.
    pub(crate) points: Vec<[f64; 3]>,
    pub(crate) rect: Option<[f64; 4]>,
}

/// A clip that a client asks about.
pub(crate) struct Clip {
    /// A random name: a clip has the prompts of its client.
    pub(crate) id: String,
    /// The model that answers.
    pub(crate) model: String,
    pub(crate) frames: Frames,
    /// Known prompts and masks.
    notes: Mutex<Notes>,
    /// What the model remembers. It is used on the inference thread only.
    tracking: Mutex<Option<Tracking>>,
    /// Tells the run that is under way to stop.
    run: Mutex<Option<watch::Sender<bool>>>,
    last_used: Mutex<Instant>,
}

/// Prompts and masks of a clip.
#[derive(Default)]
struct Notes {
    prompts: BTreeMap<usize, BTreeMap<ObjectId, Marks>>,
    masks: BTreeMap<usize, BTreeMap<ObjectId, ObjectMask>>,
    mask_bytes: usize,
    /// Phrases that the next run looks for, and the least score of their objects. Empty: it tracks what is marked.
    phrases: (Vec<String>, Option<f32>),
}

/// A run through a clip; while it lives, the clip takes no prompts.
pub(crate) struct Running {
    clip: Arc<Clip>,
    stop: watch::Receiver<bool>,
}

impl Running {
    /// Ready when the run is told to stop.
    pub(crate) async fn stopped(&mut self) {
        if self.stop.wait_for(|is_told| *is_told).await.is_err() {
            // The sender lives as long as this value.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *lock(&self.clip.run) = None;
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clip {
    pub(crate) fn new(model: String, frames: Frames) -> Result<Self, Problem> {
        let mut random = [0; 16];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| Problem::Internal("the system gives no random numbers".to_owned()))?;
        Ok(Clip {
            id: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            model,
            frames,
            notes: Mutex::default(),
            tracking: Mutex::default(),
            run: Mutex::default(),
            last_used: Mutex::new(Instant::now()),
        })
    }

    /// What the model remembers. Only the inference thread asks.
    pub(crate) fn tracking(&self) -> MutexGuard<'_, Option<Tracking>> {
        lock(&self.tracking)
    }

    /// Starts a run. An error while another one is under way.
    pub(crate) fn start_run(self: &Arc<Self>) -> Result<Running, Problem> {
        let mut run = lock(&self.run);
        if run.is_some() {
            return Err(busy());
        }
        let (sender, stop) = watch::channel(false);
        *run = Some(sender);
        Ok(Running { clip: Arc::clone(self), stop })
    }

    /// Tells the run to stop. Whether there was one.
    pub(crate) fn stop_run(&self) -> bool {
        lock(&self.run).as_ref().is_some_and(|run| run.send(true).is_ok())
    }

    pub(crate) fn is_running(&self) -> bool {
        lock(&self.run).is_some()
    }

    /// An error while a run is under way.
    pub(crate) fn check_idle(&self) -> Result<(), Problem> {
        if self.is_running() { Err(busy()) } else { Ok(()) }
    }

    /// An error for a frame that the clip does not have.
    pub(crate) fn check_frame(&self, frame: usize) -> Result<(), Problem> {
        let count = self.frames.count();
        if frame < count {
            return Ok(());
        }
        Err(Problem::Invalid(format!("there is no frame {frame} (of {count}, from 0)")))
    }

    /// All prompts, by frame and object.
    pub(crate) fn prompts(&self) -> BTreeMap<usize, BTreeMap<ObjectId, Marks>> {
        lock(&self.notes).prompts.clone()
    }

    /// The objects that have prompts.
    pub(crate) fn objects(&self) -> Vec<ObjectId> {
        let notes = lock(&self.notes);
        let mut objects: Vec<ObjectId> =
            notes.prompts.values().flat_map(|marks| marks.keys().copied()).collect();
        objects.sort_unstable();
        objects.dedup();
        objects
    }

    /// The marks of an object on a frame.
    pub(crate) fn marks(&self, frame: usize, object: ObjectId) -> Option<Marks> {
        lock(&self.notes).prompts.get(&frame)?.get(&object).cloned()
    }

    /// Notes a prompt.
    pub(crate) fn note_prompt(&self, frame: usize, object: ObjectId, marks: Marks) {
        lock(&self.notes).prompts.entry(frame).or_default().insert(object, marks);
    }

    /// Forgets the prompt of an object on a frame. Whether the object has prompts elsewhere; `None` if it had none here.
    pub(crate) fn forget_prompt(&self, frame: usize, object: ObjectId) -> Option<bool> {
        let mut notes = lock(&self.notes);
        let here = notes.prompts.get_mut(&frame)?;
        here.remove(&object)?;
        if here.is_empty() {
            notes.prompts.remove(&frame);
        }
        Some(notes.prompts.values().any(|marks| marks.contains_key(&object)))
    }

    /// Forgets an object. Whether it was known.
    pub(crate) fn forget_object(&self, object: ObjectId) -> bool {
        let mut notes = lock(&self.notes);
        let mut was_known = false;
        notes.prompts.retain(|_, marks| {
            was_known |= marks.remove(&object).is_some();
            !marks.is_empty()
        });
        let mut freed = 0;
        for masks in notes.masks.values_mut() {
            let gone = masks.remove(&object);
            was_known |= gone.is_some();
            freed += gone.as_ref().map_or(0, bytes_of);
        }
        notes.mask_bytes -= freed;
        was_known
    }

    /// Keeps masks of a frame for files. Masks of other objects stay. An error beyond `most` bytes of masks.
    pub(crate) fn keep(
        &self,
        frame: usize,
        masks: impl IntoIterator<Item = ObjectMask>,
        most: usize,
    ) -> Result<(), Problem> {
        let mut notes = lock(&self.notes);
        notes.masks.entry(frame).or_default();
        for mask in masks {
            let added = bytes_of(&mask);
            let replaced = notes.masks.entry(frame).or_default().insert(mask.id, mask);
            notes.mask_bytes += added;
            notes.mask_bytes -= replaced.as_ref().map_or(0, bytes_of);
        }
        if notes.mask_bytes > most {
            return Err(Problem::Invalid(format!(
                "the masks of this clip need more than {most} bytes: track fewer objects or frames"
            )));
        }
        Ok(())
    }

    /// What the next run looks for, for clients that say it beforehand.
    pub(crate) fn set_phrases(&self, phrases: Vec<String>, threshold: Option<f32>) {
        lock(&self.notes).phrases = (phrases, threshold);
    }

    pub(crate) fn phrases(&self) -> (Vec<String>, Option<f32>) {
        lock(&self.notes).phrases.clone()
    }

    /// Forgets all masks. Objects of phrases have numbers of their own in every run.
    pub(crate) fn forget_masks(&self) {
        let mut notes = lock(&self.notes);
        notes.masks.clear();
        notes.mask_bytes = 0;
    }

    /// The frames with masks.
    pub(crate) fn masked_frames(&self) -> Vec<usize> {
        lock(&self.notes).masks.keys().copied().collect()
    }

    /// The masks of a frame, in the order of the objects' numbers.
    pub(crate) fn masks(&self, frame: usize) -> Vec<ObjectMask> {
        let notes = lock(&self.notes);
        notes.masks.get(&frame).map_or_else(Vec::new, |masks| masks.values().cloned().collect())
    }

    fn touch(&self) {
        *lock(&self.last_used) = Instant::now();
    }

    fn last_used(&self) -> Instant {
        *lock(&self.last_used)
    }
}

fn bytes_of(mask: &ObjectMask) -> usize {
    size_of::<ObjectMask>() + size_of_val(mask.mask.counts())
}

fn busy() -> Problem {
    Problem::Conflict("objects are being tracked through this clip: wait, or cancel it".to_owned())
}

/// The clips of a server.
pub(crate) struct Clips {
    shelf: Mutex<HashMap<String, Arc<Clip>>>,
    most: usize,
    most_bytes: u64,
    idle: Duration,
}

impl Clips {
    pub(crate) fn new(limits: &Limits) -> Self {
        Clips {
            shelf: Mutex::default(),
            most: limits.clips,
            most_bytes: limits.clips_bytes,
            idle: limits.clip_idle,
        }
    }

    /// The clip of this name, now the last used.
    pub(crate) fn get(&self, id: &str) -> Result<Arc<Clip>, Problem> {
        let clip = lock(&self.shelf).get(id).cloned();
        let clip = clip.ok_or_else(|| {
            let shown: String = id.chars().take(64).collect();
            Problem::Missing(format!("no clip {shown:?}: send it again"))
        })?;
        clip.touch();
        Ok(clip)
    }

    /// Adds a clip. Those that were not used for the longest time make room, unless they are being tracked.
    pub(crate) fn add(&self, clip: Clip) -> Result<Arc<Clip>, Problem> {
        self.drop_idle();
        let mut shelf = lock(&self.shelf);
        let too_much = |shelf: &HashMap<String, Arc<Clip>>| {
            let bytes: u64 = shelf.values().map(|clip| clip.frames.bytes()).sum();
            shelf.len() >= self.most || bytes + clip.frames.bytes() > self.most_bytes
        };
        while !shelf.is_empty() && too_much(&shelf) {
            let idle = shelf.values().filter(|clip| !clip.is_running());
            let oldest = idle.min_by_key(|clip| clip.last_used()).map(|clip| clip.id.clone());
            let oldest = oldest.ok_or(Problem::Busy("all clips are being tracked"))?;
            shelf.remove(&oldest);
        }
        let clip = Arc::new(clip);
        shelf.insert(clip.id.clone(), Arc::clone(&clip));
        Ok(clip)
    }

    /// Forgets a clip and stops its run. Whether it was there.
    pub(crate) fn remove(&self, id: &str) -> bool {
        let removed = lock(&self.shelf).remove(id);
        removed.is_some_and(|clip| {
            clip.stop_run();
            true
        })
    }

    /// Drops the clips that were not used for a time.
    pub(crate) fn drop_idle(&self) {
        let is_wanted = |clip: &Clip| clip.is_running() || clip.last_used().elapsed() < self.idle;
        lock(&self.shelf).retain(|_, clip| is_wanted(clip));
    }

    /// Drops what a model remembers of clips, as it keeps the model in memory. Prompts stay, and are given again.
    pub(crate) fn forget_tracking(&self, model: &str) {
        for clip in lock(&self.shelf).values().filter(|clip| clip.model == model) {
            *clip.tracking() = None;
        }
    }

    /// Number of clips, and bytes of their frames.
    pub(crate) fn usage(&self) -> (usize, u64) {
        let shelf = lock(&self.shelf);
        (shelf.len(), shelf.values().map(|clip| clip.frames.bytes()).sum())
    }
}
