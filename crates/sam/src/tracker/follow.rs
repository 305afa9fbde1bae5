//! Runs the model for the tracker: masks from memories and masks from prompts.

use std::collections::BTreeMap;

use cutout_graph::DeviceValue;
use cutout_imaging::{Mask, Size};
use cutout_tensor::{Tensor, TensorError};

use super::encode::Prompting;
use super::group::GroupId;
use super::object::{FrameRecord, Object, Rated, ShownMask};
use super::options::{Direction, TrackError};
use super::timeline::{Keys, Reading, SelectedMemories, Selection, TrackPosition};
use super::{ObjectId, Tracker};
use crate::model::config::Grouping;
use crate::model::{Model, ModelError};
use crate::parts::{
    AnswerPrompt, Attend, AttendInputs, Bank, BankShape, FitMask, Follow, FollowInputs, Followed,
    FollowedBuckets, FollowedObject, FrameFeatures, FrameMemory, MaskInputs, MemoryInput,
    ObjectAnswer, Project, PromptInputs, ShownLogits, ThroughVideo, UseMask, VideoMask,
};
use crate::prompt::{Candidates, Prompt, PromptBatch};
use crate::scene::finite;

/// Most bytes of cached memory keys for all objects. Beyond it, keys are recomputed on each frame.
const MAX_KEY_BYTES: usize = 512 << 20;

/// When the memories of a tracked frame are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remembering {
    /// With the masks.
    AtOnce,
    /// When it is settled what the masks are.
    Later,
}

/// Objects that are being followed on the current frame: everything is enqueued, and nothing fetched.
pub(crate) struct Following {
    batches: Vec<FollowedBatch>,
    position: TrackPosition,
}

/// Objects, or buckets of them, that were followed in one program.
pub(super) enum FollowedBatch {
    Objects(Vec<ObjectId>, Followed<DeviceValue>),
    Buckets(Vec<GroupId>, FollowedBuckets<DeviceValue>),
}

/// An object to track on a frame, with the memories to read.
struct ObjectSelection {
    id: ObjectId,
    selection: Selection,
}

impl Tracker {
    /// Tracks all objects on the current frame from their memories. Objects prompted on this frame keep their mask.
    ///
    /// Objects with equally many memories and pointers are batched into one program. The masks come with
    /// [`Tracker::finish_following`].
    pub(super) fn follow(
        &mut self,
        frame: usize,
        direction: Direction,
        remembering: Remembering,
    ) -> Result<Following, TrackError> {
        let position = self.position(frame, direction)?;
        let batches = match self.rules.grouping {
            Grouping::Buckets => self.follow_buckets(position, remembering)?,
            Grouping::Alone | Grouping::Together => self.follow_objects(position, remembering)?,
        };
        Ok(Following { batches, position })
    }

    /// Fetches the masks of what is followed, and enters them.
    pub(crate) fn finish_following(&mut self, following: Following) -> Result<(), TrackError> {
        let Following { batches, position } = following;
        for batch in batches {
            match batch {
                FollowedBatch::Objects(ids, followed) => {
                    let records = self.records(followed, position.direction)?;
                    for (id, record) in ids.into_iter().zip(records) {
                        self.object_mut(id)?.frames.tracked.insert(position.frame, record);
                    }
                }
                FollowedBatch::Buckets(groups, followed) => {
                    self.enter_buckets(&groups, followed, position)?;
                }
            }
        }
        Ok(())
    }

    fn follow_objects(
        &mut self,
        position: TrackPosition,
        remembering: Remembering,
    ) -> Result<Vec<FollowedBatch>, TrackError> {
        let mut groups: BTreeMap<(usize, usize), Vec<ObjectSelection>> = BTreeMap::new();
        for (id, selection) in self.selections(position)? {
            let frames = &mut self.object_mut(id)?.frames;
            if let Some(record) = frames.prompted.get_mut(&position.frame) {
                record.tracked = Some(position.direction);
                continue;
            }
            if selection.memories.is_empty() {
                // All its prompts were withdrawn.
                continue;
            }
            let shape = (selection.memories.len(), selection.pointers.len());
            groups.entry(shape).or_default().push(ObjectSelection { id, selection });
        }
        let batch = self.model().backend().batch_limit();
        let batches = groups.values().flat_map(|group| group.chunks(batch));
        batches.map(|objects| self.follow_batch(objects, position, remembering)).collect()
    }

    /// What each object reads at a position.
    fn selections(
        &self,
        position: TrackPosition,
    ) -> Result<Vec<(ObjectId, Selection)>, ModelError> {
        let reading = self.reading(None)?;
        let groups = self.groups().into_iter();
        let recent: BTreeMap<GroupId, Option<Vec<usize>>> =
            groups.map(|group| (group, self.recent_frames(group, position))).collect();
        let select = |(id, object): (&ObjectId, &Object)| {
            let recent = recent.get(&object.group).and_then(Option::as_deref);
            (*id, object.frames.select(position, Reading { recent, ..reading }))
        };
        Ok(self.objects.iter().map(select).collect())
    }

    /// What memory attention reads, by the rules.
    pub(super) fn reading<'a>(
        &self,
        recent: Option<&'a [usize]>,
    ) -> Result<Reading<'a>, ModelError> {
        Ok(Reading {
            table: self.model().config().memory()?.frames,
            most: self.rules.most_prompted_frames,
            recent,
            rows: self.rules.prompted_rows,
            pointers_ahead: self.rules.pointers_ahead,
        })
    }

    fn position(&self, frame: usize, direction: Direction) -> Result<TrackPosition, ModelError> {
        let pointer_frames = self.model().config().memory()?.pointer_frames;
        Ok(TrackPosition { frame, direction, length: self.options.length, pointer_frames })
    }

    /// Whether the keys of all memories fit the cache.
    pub(super) fn keys(&self) -> Result<Keys, ModelError> {
        let config = self.model().config();
        let (memory, width) = (config.memory()?, config.decoder()?.width);
        let cells = config.encoder.grid() * config.encoder.grid();
        // Recent frames and prompted ones.
        let frames = memory.frames - 1 + self.rules.most_prompted_frames.unwrap_or(1);
        // Several heads have values too.
        let kinds = if memory.heads == 1 { 1 } else { 2 };
        let one = kinds * frames * memory.layers * cells * width * size_of::<f32>();
        let holders = if self.buckets.is_empty() { self.objects.len() } else { self.buckets.len() };
        let all = one.saturating_mul(holders);
        Ok(if all <= MAX_KEY_BYTES { Keys::Kept } else { Keys::Computed })
    }

    /// The selected memories of an object, with their cached keys.
    fn read_memories(
        &mut self,
        ObjectSelection { id, selection }: &ObjectSelection,
        position: TrackPosition,
        keys: Keys,
    ) -> Result<SelectedMemories, TrackError> {
        let sam = self.sam.clone();
        let object = self.object_mut(*id)?;
        match keys {
            Keys::Kept => {
                object.frames.project(selection, |FrameMemory { memory, image, .. }| {
                    sam.model().run(&Project, MemoryInput { memory, image })
                })?;
                object.frames.forget_keys(&selection.memories);
            }
            Keys::Computed => object.frames.forget_keys(&[]),
        }
        Ok(object.frames.read_memories(selection, position, keys))
    }

    fn follow_batch(
        &mut self,
        objects: &[ObjectSelection],
        position: TrackPosition,
        remembering: Remembering,
    ) -> Result<FollowedBatch, TrackError> {
        let keys = self.keys()?;
        let memories = objects.iter().map(|one| self.read_memories(one, position, keys));
        let memories = memories.collect::<Result<Vec<_>, _>>()?;
        let (shape, bank) = bank(self.model(), memories, keys)?;
        let frame = self.current()?.encoded.features.clone();
        let part = Follow { bank: shape, remember: remembering == Remembering::AtOnce };
        let followed = self.model().run(&part, FollowInputs { frame, bank })?;
        Ok(FollowedBatch::Objects(objects.iter().map(|one| one.id).collect(), followed))
    }

    /// The records of a batch of objects.
    fn records(
        &self,
        followed: Followed<DeviceValue>,
        direction: Direction,
    ) -> Result<Vec<FrameRecord>, TrackError> {
        let Followed { logits, iou, object_score, objects } = followed;
        let answers = HostAnswers::fetch(&logits, &iou, &object_score)?;
        let record = |(index, object): (usize, FollowedObject<DeviceValue>)| {
            // Holes are filled in the returned mask only; the memory is of the predicted mask.
            let mut record = answers.record(index, Some(object.pointer), self)?;
            record.memory = object.memory;
            record.tracked = Some(direction);
            record.rated = Rated::Tracked;
            Ok(record)
        };
        objects.into_iter().enumerate().map(record).collect()
    }

    /// Decodes a point prompt on the current frame. On a tracked frame the embedding of SAM 2 includes the object's memories.
    /// Earlier logits on the frame are the mask prompt.
    pub(super) fn answer_points(
        &mut self,
        id: ObjectId,
        prompt: &Prompt,
    ) -> Result<FrameRecord, TrackError> {
        let (mapping, _) = self.mapping.as_ref().ok_or(TrackError::NoFrame)?;
        let config = self.model().config();
        let (order, side) = (config.processing().token_order, config.mask_side());
        let prompt = self.rules.most_points.map_or_else(|| prompt.clone(), |n| prompt.shortened(n));
        let mut batch = PromptBatch::of(&[&prompt], mapping, order, side)?;
        let frame = self.current()?.frame;
        let object = self.objects.get(&id);
        let earlier = object.and_then(|object| object.newest(frame));
        let is_given =
            |earlier: &FrameRecord| earlier.shown.as_ref().is_some_and(ShownMask::is_given);
        let refined = |earlier: &&FrameRecord| self.rules.clicks_refine && !is_given(earlier);
        if let Some(earlier) = earlier.filter(refined) {
            batch.masks = Some(earlier.logits.reshape([1, side, side, 1])?);
        }
        let tracked = object.and_then(|object| object.record(frame)).and_then(|it| it.tracked);
        let Prompting { features, embedding } = self.prompting()?;
        let embedding = match tracked.filter(|_| self.rules.clicks_attend) {
            None => embedding,
            Some(direction) => self.attended(id, frame, direction)?,
        };
        // `points` includes one padding token.
        let points = batch.kinds.shape()[1];
        let wanted = if points <= 2 { Candidates::Three } else { Candidates::One };
        let part = AnswerPrompt { objects: 1, points, masks: batch.masks.is_some(), wanted };
        let model = self.model();
        let inputs = PromptInputs {
            points: model.upload(&batch.points)?,
            kinds: model.upload(&batch.kinds)?,
            masks: batch.masks.as_ref().map(|masks| model.upload(masks)).transpose()?,
            embedding,
            level0: features.level0,
            level1: features.level1,
        };
        let ObjectAnswer { logits, iou, object_score, pointer } = model.run(&part, inputs)?;
        let answers = HostAnswers::fetch(&logits, &iou, &object_score)?;
        let mut record = answers.record(0, Some(pointer), self)?;
        record.tracked = tracked;
        Ok(record)
    }

    /// The features of the current frame that answer prompts.
    fn prompting(&mut self) -> Result<Prompting, TrackError> {
        let sam = self.sam.clone();
        self.current.as_mut().ok_or(TrackError::NoFrame)?.encoded.prompting(&sam)
    }

    /// The features of the current frame for a mask prompt.
    pub(super) fn mask_features(&mut self) -> Result<FrameFeatures<DeviceValue>, TrackError> {
        let Prompting { features, embedding } = self.prompting()?;
        Ok(match self.rules.grouping {
            Grouping::Alone | Grouping::Together => features,
            Grouping::Buckets => FrameFeatures { level2: embedding, ..features },
        })
    }

    /// A record of clicks with its mask as it is at the size of the video, which is what is remembered.
    pub(super) fn at_video_size(&self, record: FrameRecord) -> Result<FrameRecord, TrackError> {
        if !self.rules.masks_at_video_size || record.shown.is_some() {
            return Ok(record);
        }
        let Size { width, height } = self.current()?.encoded.mapping.original;
        let shown = ShownMask::Answered { logits: record.logits.clone(), taken: None };
        let logits = shown.in_low_resolution(self.model(), [height, width])?;
        Ok(FrameRecord { logits, shown: Some(shown), ..record })
    }

    /// Embedding of the current frame after attention to an object's memories.
    fn attended(
        &mut self,
        id: ObjectId,
        frame: usize,
        direction: Direction,
    ) -> Result<DeviceValue, TrackError> {
        let position = self.position(frame, direction)?;
        let recent = self.recent_frames(self.group_of(id), position);
        let reading = self.reading(recent.as_deref())?;
        let selection = self.object_mut(id)?.frames.select(position, reading);
        let keys = self.keys()?;
        let memories = self.read_memories(&ObjectSelection { id, selection }, position, keys)?;
        let (shape, bank) = bank(self.model(), vec![memories], keys)?;
        let level2 = self.current()?.encoded.features.level2.clone();
        let attended = self.model().run(&Attend { bank: shape }, AttendInputs { level2, bank })?;
        Ok(attended.embedding)
    }

    /// Uses a mask prompt as the object's mask on the current frame.
    pub(super) fn answer_mask(
        &mut self,
        id: ObjectId,
        mask: &Mask,
    ) -> Result<FrameRecord, TrackError> {
        let frame = self.current()?.frame;
        let size = [mask.size().height, mask.size().width];
        let uploaded = self.model().upload(&mask_tensor(mask)?)?;
        let inputs = MaskInputs { mask: uploaded, frame: self.mask_features()? };
        let ObjectAnswer { logits, iou, object_score, pointer } =
            self.model().run(&UseMask { size }, inputs)?;
        let answers = HostAnswers::fetch(&logits, &iou, &object_score)?;
        let known = self.objects.get(&id).and_then(|object| object.record(frame));
        let record = FrameRecord {
            logits: Tensor::from_vec(answers.shape(), answers.logits(0))?,
            iou: answers.iou[0],
            object_score: answers.object_score[0],
            memory: None,
            pointer: Some(pointer),
            tracked: known.and_then(|record| record.tracked),
            rated: Rated::No,
            shown: self.rules.masks_compete.then(|| ShownMask::Given(mask.clone())),
        };
        if self.rules.masks_compete {
            self.take_pixels(self.group_for(id, frame)?, id, mask)?;
        }
        Ok(record)
    }

    /// Takes the pixels of a new mask prompt from the other masks that were given to its group on the frame.
    pub(super) fn take_pixels(
        &mut self,
        group: GroupId,
        id: ObjectId,
        mask: &Mask,
    ) -> Result<(), TrackError> {
        let (sam, frame) = (self.sam.clone(), self.current()?.frame);
        let size = [mask.size().height, mask.size().width];
        let others = self.objects.iter_mut().filter(|(other, _)| **other != id);
        for (_, object) in others.filter(|(_, object)| object.group == group) {
            let Some(record) = object.frames.pending.get_mut(&frame) else { continue };
            let Some(shown) = &mut record.shown else { continue };
            shown.lose(mask)?;
            record.logits = shown.in_low_resolution(sam.model(), size)?;
            record.memory = None;
        }
        Ok(())
    }
}

impl ShownMask {
    /// Takes pixels from the mask.
    fn lose(&mut self, pixels: &Mask) -> Result<(), TrackError> {
        let both = |own: &Mask, keep: fn(bool, bool) -> bool| {
            let pairs = own.pixels().iter().zip(pixels.pixels());
            Mask::from_pixels(own.size(), pairs.map(|(own, taken)| keep(*own, *taken)).collect())
        };
        match self {
            ShownMask::Given(mask) => *mask = both(mask, |own, taken| own && !taken)?,
            ShownMask::Answered { taken, .. } => {
                *taken = Some(match taken {
                    Some(known) => both(known, |own, taken| own || taken)?,
                    None => pixels.clone(),
                });
            }
        }
        Ok(())
    }

    /// The logits of the mask at the size of the video, in low resolution.
    fn in_low_resolution(&self, model: &Model, video: [usize; 2]) -> Result<Tensor, TrackError> {
        let logits = match self {
            ShownMask::Given(mask) => {
                let mask = model.upload(&mask_tensor(mask)?)?;
                model.run(&FitMask { size: video }, VideoMask { mask })?.logits
            }
            ShownMask::Answered { logits, taken } => {
                let part = ThroughVideo { video, taken: taken.is_some() };
                let taken = taken.as_ref().map(mask_tensor).transpose()?;
                let taken = taken.map(|taken| model.upload(&taken)).transpose()?;
                model.run(&part, ShownLogits { logits: model.upload(logits)?, taken })?.logits
            }
        };
        Ok(logits.fetch().map_err(ModelError::from)?)
    }
}

/// The memories of several objects as one bank. All have as many memories and pointers as the first.
pub(super) fn bank(
    model: &Model,
    memories: Vec<SelectedMemories>,
    keys: Keys,
) -> Result<(BankShape, Bank<DeviceValue>), ModelError> {
    let objects = memories.len();
    let first = memories.first().map(|one| (one.ages.len(), one.distances.len()));
    let (frames, pointers) = first.unwrap_or_default();
    let shape = BankShape { objects, frames, pointers, projected: keys == Keys::Kept };
    let ages = memories.iter().flat_map(|one| one.ages.clone()).collect();
    let ages = model.upload(&Tensor::from_vec::<i64>([objects, frames], ages)?)?;
    let distances = match shape.has_pointer_positions(model.config())? {
        false => None,
        true => {
            let all = memories.iter().flat_map(|one| one.distances.clone()).collect();
            Some(model.upload(&Tensor::from_vec::<f32>([objects, pointers], all)?)?)
        }
    };
    let objects = memories.into_iter().map(|one| one.bank).collect();
    Ok((shape, Bank { ages, distances, objects }))
}

/// The answers for a batch of objects, fetched.
pub(super) struct HostAnswers {
    /// `f32[objects, side, side]`.
    logits: Tensor,
    iou: Vec<f32>,
    object_score: Vec<f32>,
}

impl HostAnswers {
    pub(super) fn fetch(
        logits: &DeviceValue,
        iou: &DeviceValue,
        object_score: &DeviceValue,
    ) -> Result<Self, ModelError> {
        Ok(HostAnswers {
            logits: logits.fetch()?,
            iou: finite(&iou.fetch()?)?,
            object_score: finite(&object_score.fetch()?)?,
        })
    }

    /// Height and width of each mask.
    fn shape(&self) -> [usize; 2] {
        [self.logits.shape()[1], self.logits.shape()[2]]
    }

    /// A copy of one object's logits: a view would keep those of the whole batch in memory.
    fn logits(&self, index: usize) -> Vec<f32> {
        let own = self.logits.slice(0, index..index + 1).and_then(|own| own.to_vec());
        own.expect("each object has its logits")
    }

    /// One object's record, with holes filled, without memory.
    pub(super) fn record(
        &self,
        index: usize,
        pointer: Option<DeviceValue>,
        tracker: &Tracker,
    ) -> Result<FrameRecord, TensorError> {
        let mut logits = self.logits(index);
        tracker.fill_holes(&mut logits)?;
        Ok(FrameRecord {
            memory: None,
            pointer,
            logits: Tensor::from_vec(self.shape(), logits)?,
            iou: self.iou[index],
            object_score: self.object_score[index],
            tracked: None,
            rated: Rated::No,
            shown: None,
        })
    }
}

/// A mask as zeros and ones, `f32[1, height, width, 1]`.
pub(super) fn mask_tensor(mask: &Mask) -> Result<Tensor, TensorError> {
    let pixels = mask.pixels().iter().map(|set| f32::from(u8::from(*set))).collect();
    Tensor::from_vec::<f32>([1, mask.size().height, mask.size().width, 1], pixels)
}
