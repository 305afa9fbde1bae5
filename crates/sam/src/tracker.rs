//! Tracking objects through a video, frame by frame. Memory use does not depend on the length of the video.

use std::collections::BTreeMap;
use std::sync::Arc;

use cutout_imaging::{Fit, Image, Mapping, Preprocess, Size, Upsampler};
use cutout_tensor::OutOfMemory;

use crate::masks::{Segment, fill_holes};
use crate::model::Model;
use crate::model::config::TrackingRules;
use crate::prompt::Prompt;
use crate::sam::Sam;

mod bucket;
mod encode;
mod follow;
mod group;
mod history;
mod kept;
mod object;
mod options;
mod prompt;
mod state;
mod steps;
mod timeline;

use bucket::Bucket;
use encode::{EncodedFrame, NextFrame, encode};
use follow::Remembering;
use group::{GroupId, OpenGroup};
use history::{Holder, RecordStore};
pub use kept::Kept;
use object::{FrameRecord, Object};
pub use options::{Corrections, Direction, History, TrackError, TrackOptions};
pub use prompt::TrackPrompt;
pub use state::StateNotes;
pub(crate) use steps::{Settled, Sighted};

/// Caller's number of an object.
pub type ObjectId = u32;

/// Logit of a filled hole: just above the threshold.
const FILLED: f32 = 0.1;

/// One object on one frame.
#[derive(Clone)]
pub struct TrackedObject {
    /// The object.
    pub id: ObjectId,
    /// Its mask, with predicted IoU and object score: the object is hidden where the score is not above 0.
    pub segment: Segment,
}

/// The objects of one frame, in the order of their ids.
#[derive(Clone)]
pub struct TrackedFrame {
    /// Number of the frame, from 0 on.
    pub frame: usize,
    /// The objects.
    pub objects: Vec<TrackedObject>,
}

/// The current frame.
struct Current {
    frame: usize,
    encoded: EncodedFrame,
}

/// Objects through a video.
pub struct Tracker {
    sam: Sam,
    options: TrackOptions,
    preprocess: Preprocess,
    /// Set by the first frame.
    mapping: Option<(Mapping, Arc<Upsampler>)>,
    /// Size of the frames, if the state comes from a file.
    expected_size: Option<Size>,
    current: Option<Current>,
    next_frame: Option<NextFrame>,
    objects: BTreeMap<ObjectId, Object>,
    /// Groups that share a memory: SAM 3.1.
    buckets: BTreeMap<GroupId, Bucket>,
    open_group: OpenGroup,
    store: RecordStore,
    /// Those of the family, changed by the options.
    rules: TrackingRules,
}

impl Sam {
    /// Begins to track objects through a video.
    pub fn track(&self, options: TrackOptions) -> Result<Tracker, TrackError> {
        let Some(memory) = &self.model().config().memory else {
            return Err(TrackError::NoMemory { model: self.description() });
        };
        let reach = memory.frames.max(memory.pointer_frames);
        let rules = options.rules(memory.form.rules());
        Ok(Tracker {
            sam: self.clone(),
            preprocess: Preprocess { fit: Fit::SquareBicubic, ..self.preprocessing() },
            mapping: None,
            expected_size: None,
            current: None,
            next_frame: None,
            objects: BTreeMap::new(),
            buckets: BTreeMap::new(),
            open_group: OpenGroup::default(),
            rules,
            store: RecordStore::new(&options.history, reach),
            options,
        })
    }
}

impl Tracker {
    /// Tracks all objects on the next frame (frame 0 first).
    pub fn push(&mut self, image: &Image) -> Result<TrackedFrame, TrackError> {
        let next = self.current.as_ref().map_or(0, |current| current.frame + 1);
        self.push_at(next, image, Direction::Forward)
    }

    /// Tracks all objects backwards on the frame before the current one.
    pub fn push_back(&mut self, image: &Image) -> Result<TrackedFrame, TrackError> {
        let frame = self.frame().ok_or(TrackError::NoFrame)?;
        let before = frame.checked_sub(1).ok_or(TrackError::BeforeTheFirst)?;
        self.push_at(before, image, Direction::Backward)
    }

    /// Tracks all objects on any frame in the given direction.
    pub fn push_at(
        &mut self,
        frame: usize,
        image: &Image,
        direction: Direction,
    ) -> Result<TrackedFrame, TrackError> {
        self.visit(frame, image)?;
        self.encode_prompts()?;
        self.remember_prompts()?;
        let following = self.follow(frame, direction, Remembering::AtOnce)?;
        self.encode_next();
        self.finish_following(following)?;
        self.masks()
    }

    /// Makes `frame` the current frame without tracking, so that it can take prompts.
    pub fn visit(&mut self, frame: usize, image: &Image) -> Result<(), TrackError> {
        let known = self.mapping.as_ref().map(|(mapping, _)| mapping.original);
        let expected = known.or(self.expected_size).unwrap_or(image.size());
        if image.size() != expected {
            return Err(TrackError::FrameSize { frame, expected, found: image.size() });
        }
        if self.frame() == Some(frame) {
            return Ok(());
        }
        self.encode_prompts()?;
        // Frees the features of the last frame before the next ones are computed.
        self.current = None;
        let known = self.next_frame.take().and_then(|next| next.finish(image));
        let encoded = known.unwrap_or_else(|| encode(&self.sam, &self.preprocess, image))?;
        if self.mapping.is_none() {
            let upsampler = Arc::new(self.sam.upsampler(&encoded.mapping)?);
            self.mapping = Some((encoded.mapping, upsampler));
        }
        self.current = Some(Current { frame, encoded });
        for group in self.groups() {
            let wanted = self.store.wanted(frame, self.frames_to_keep(group, frame));
            let members = self.objects.iter_mut().filter(|(_, object)| object.group == group);
            for (id, object) in members {
                let holder = Holder::Object(*id);
                self.store.update(holder, &mut object.frames, &wanted, self.sam.model())?;
            }
            if let Some(bucket) = self.buckets.get_mut(&group) {
                let holder = Holder::Bucket(group);
                self.store.update(holder, &mut bucket.frames, &wanted, self.sam.model())?;
            }
        }
        Ok(())
    }

    /// Encodes the next frame ahead of time. Call it between `visit` and `push_at` of the current frame. Results do not change.
    ///
    /// A GPU encodes it behind what the current frame needs, while the host reads the answers. A processor encodes it on a separate thread,
    /// which is faster where tracking leaves cores idle.
    pub fn look_ahead(&mut self, next: &Image) {
        self.next_frame = NextFrame::new(&self.sam, &self.preprocess, next);
    }

    /// Enqueues the encoding of the next frame, if it is known: everything that answers for the current frame is enqueued before.
    pub(crate) fn encode_next(&mut self) {
        let next = self.next_frame.take();
        self.next_frame = next.and_then(|next| next.enqueue(&self.sam, &self.preprocess));
    }

    /// The model that tracks.
    pub fn sam(&self) -> &Sam {
        &self.sam
    }

    /// Number of frames on either side of the current one whose memories or pointers can be read.
    pub fn reach(&self) -> usize {
        self.store.reach()
    }

    /// The current frame.
    pub fn frame(&self) -> Option<usize> {
        self.current.as_ref().map(|current| current.frame)
    }

    /// The objects, in the order of their ids.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.objects.keys().copied()
    }

    /// Checks a prompt against a video of this size, before any frame is encoded.
    pub fn check_prompt<'p>(
        &self,
        prompt: impl Into<TrackPrompt<'p>>,
        size: Size,
    ) -> Result<(), TrackError> {
        prompt.into().check(size, self.model().config().mask_side())
    }

    /// Adds a prompt for a new or tracked object on the current frame and returns its mask there.
    pub fn prompt<'p>(
        &mut self,
        frame: usize,
        object: ObjectId,
        prompt: impl Into<TrackPrompt<'p>>,
    ) -> Result<TrackedObject, TrackError> {
        let prompt = prompt.into();
        self.check_on(frame, prompt)?;
        let record = match prompt {
            TrackPrompt::Points(prompt) => self.answer_points(object, prompt)?,
            TrackPrompt::Mask(mask) => self.answer_mask(object, mask)?,
        };
        let segment = self.segment(&record);
        let record = self.at_video_size(record)?;
        let group = self.group_for(object, frame)?;
        self.enter_prompt(object, group, record)?;
        Ok(TrackedObject { id: object, segment })
    }

    /// The mask that [`Tracker::prompt`] would return for these points. Nothing is remembered.
    pub fn preview(
        &mut self,
        frame: usize,
        object: ObjectId,
        prompt: &Prompt,
    ) -> Result<TrackedObject, TrackError> {
        self.check_on(frame, prompt.into())?;
        let record = self.answer_points(object, prompt)?;
        Ok(TrackedObject { id: object, segment: self.segment(&record) })
    }

    /// Checks a prompt on a frame, which must be the current one.
    fn check_on(&self, frame: usize, prompt: TrackPrompt<'_>) -> Result<(), TrackError> {
        let current = self.frame().ok_or(TrackError::NoFrame)?;
        if frame != current {
            return Err(TrackError::OtherFrame { asked: frame, current });
        }
        let (mapping, _) = self.mapping.as_ref().ok_or(TrackError::NoFrame)?;
        self.check_prompt(prompt, mapping.original)
    }

    /// Removes the prompts of an object on a frame. Its mask there counts as tracked; with SAM 3, only if no object that was
    /// prompted together with it has prompts there.
    pub fn clear_prompts(&mut self, frame: usize, id: ObjectId) -> Result<(), TrackError> {
        self.withdraw(frame, id)
    }

    /// Forgets an object.
    pub fn remove(&mut self, id: ObjectId) -> Result<(), TrackError> {
        self.forget(id)
    }

    /// The masks on the current frame.
    pub fn masks(&self) -> Result<TrackedFrame, TrackError> {
        let frame = self.frame().ok_or(TrackError::NoFrame)?;
        let known =
            self.objects.iter().filter_map(|(id, object)| Some((*id, object.newest(frame)?)));
        let objects =
            known.map(|(id, record)| TrackedObject { id, segment: self.segment(record) }).collect();
        Ok(TrackedFrame { frame, objects })
    }

    fn model(&self) -> &Model {
        self.sam.model()
    }

    fn current(&self) -> Result<&Current, TrackError> {
        self.current.as_ref().ok_or(TrackError::NoFrame)
    }

    fn object_mut(&mut self, id: ObjectId) -> Result<&mut Object, TrackError> {
        if !self.objects.contains_key(&id) {
            let ids: Vec<String> = self.objects.keys().map(ObjectId::to_string).collect();
            let known = match &ids[..] {
                [] => "no object is".to_owned(),
                ids => format!("tracked are {}", ids.join(", ")),
            };
            return Err(TrackError::UnknownObject { id, known });
        }
        Ok(self.objects.get_mut(&id).expect("looked up above"))
    }

    fn fill_holes(&self, logits: &mut [f32]) -> Result<(), OutOfMemory> {
        let side = self.model().config().mask_side();
        fill_holes(logits, side, self.options.fill_hole_area, FILLED)
    }

    fn segment(&self, record: &FrameRecord) -> Segment {
        let (_, upsampler) = self.mapping.as_ref().expect("an answer has a frame");
        Segment {
            logits: record.logits.clone(),
            feedback: record.logits.clone(),
            iou: record.iou,
            object_score: Some(record.object_score),
            upsampler: Arc::clone(upsampler),
        }
    }
}
