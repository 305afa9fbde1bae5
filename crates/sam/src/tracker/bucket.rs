//! Buckets: objects of SAM 3.1 that share a memory and are followed together, each in a slot of its own.

use std::collections::{BTreeMap, BTreeSet};

use cutout_graph::DeviceValue;
use cutout_tensor::Tensor;

use super::follow::{FollowedBatch, HostAnswers, Remembering, bank};
use super::group::GroupId;
use super::history::Holder;
use super::object::{FrameRecord, Object, Rated};
use super::options::TrackError;
use super::timeline::{Keys, Recalled, Selection, Timeline, TrackPosition};
use super::{ObjectId, Tracker};
use crate::components::memory::MaskSource;
use crate::model::ModelError;
use crate::parts::{
    FollowBuckets, FollowBucketsInputs, FollowedBuckets, FrameMemory, MemoryInput, Project,
    RememberBuckets, RememberBucketsInputs,
};

/// What is kept of a bucket on one frame.
#[derive(Clone)]
pub(super) struct BucketRecord {
    /// `None` until it is settled what the masks are.
    pub(super) memory: Option<FrameMemory<DeviceValue>>,
    /// Pointers of all slots, `f32[1, slots * width]`; 0 where a slot had no object.
    pub(super) pointers: DeviceValue,
    /// Slots whose masks were given on this frame.
    pub(super) given: BTreeSet<usize>,
}

impl Recalled for BucketRecord {
    fn memory(&self) -> Option<&FrameMemory<DeviceValue>> {
        self.memory.as_ref()
    }

    fn memory_mut(&mut self) -> Option<&mut FrameMemory<DeviceValue>> {
        self.memory.as_mut()
    }

    fn pointer(&self) -> Option<&DeviceValue> {
        Some(&self.pointers)
    }
}

/// Objects that share a memory.
#[derive(Default)]
pub(super) struct Bucket {
    /// Slots that have or had an object: one that was left is not used again, for past memories still show its object.
    pub(super) used: usize,
    pub(super) frames: Timeline<BucketRecord>,
}

impl Bucket {
    /// Whether memory attention can read any of its frames.
    fn is_remembered(&self) -> bool {
        !self.frames.prompted.is_empty() || !self.frames.tracked.is_empty()
    }
}

/// The masks of a bucket's objects, slot by slot.
struct SlotMasks {
    logits: Vec<f32>,
    scores: Vec<f32>,
    valid: Vec<f32>,
    given: Vec<f32>,
}

impl SlotMasks {
    fn empty(slots: usize, side: usize) -> Self {
        let zeros = || vec![0.0; slots];
        let logits = vec![0.0; slots * side * side];
        SlotMasks { logits, scores: zeros(), valid: zeros(), given: zeros() }
    }

    fn fill(&mut self, slot: usize, logits: &[f32], score: f32) {
        self.logits[slot * logits.len()..][..logits.len()].copy_from_slice(logits);
        (self.scores[slot], self.valid[slot]) = (score, 1.0);
    }
}

/// A bucket to follow on a frame, with the memories to read.
struct BucketSelection {
    group: GroupId,
    selection: Selection,
}

impl Tracker {
    /// Objects that fit a bucket.
    pub(super) fn slots(&self) -> Result<usize, ModelError> {
        let multiplex = self.model().config().memory()?.multiplex.as_ref();
        Ok(multiplex.ok_or(ModelError::NoMemory)?.slots)
    }

    /// The bucket of an object that is prompted on a frame: its own until that is followed; else that of the objects that were
    /// prompted on this frame and on no other, if it has a free slot; else the next.
    pub(super) fn bucket_for(&self, id: ObjectId, frame: usize) -> Result<GroupId, ModelError> {
        let is_followed =
            |group: &GroupId| self.buckets.get(group).is_some_and(Bucket::is_remembered);
        if let Some(own) = self.objects.get(&id).map(|object| object.group)
            && !is_followed(&own)
        {
            return Ok(own);
        }
        let open = self.open_group.id;
        let fits = self.buckets.get(&open).map_or(0, |bucket| bucket.used) < self.slots()?;
        let mut members = self.members(open).filter(|(other, _)| *other != id);
        let together = members.all(|(_, object)| object.frames.pending.keys().eq([&frame]));
        let joins = fits && together && !is_followed(&open);
        Ok(if joins || !self.open_group.used { open } else { open.saturating_add(1) })
    }

    /// Puts an object into a bucket, out of the one that it was in.
    pub(super) fn enter_bucket(&mut self, id: ObjectId, group: GroupId) {
        if self.objects.get(&id).is_some_and(|object| object.group == group) {
            return;
        }
        self.leave_bucket(id);
        self.open_group.id = self.open_group.id.max(group);
        self.open_group.used = true;
        let bucket = self.buckets.entry(group).or_default();
        let slot = bucket.used;
        bucket.used += 1;
        self.objects.insert(id, Object { group, slot, ..Object::default() });
    }

    /// Takes an object out of its bucket, whose memories stay. A bucket without objects is dropped.
    pub(super) fn leave_bucket(&mut self, id: ObjectId) {
        let Some(Object { group, .. }) = self.objects.remove(&id) else { return };
        self.store.forget(Holder::Object(id));
        if self.members(group).next().is_none() {
            self.buckets.remove(&group);
            self.store.forget(Holder::Bucket(group));
        }
    }

    /// Buckets for new objects whose masks are given on a frame that was followed: the running bucket with the fewest free slots
    /// that fit all of them, else new ones.
    pub(super) fn buckets_for_births(
        &self,
        frame: usize,
        count: usize,
    ) -> Result<Vec<GroupId>, ModelError> {
        let slots = self.slots()?;
        let is_current = |(group, bucket): &(&GroupId, &Bucket)| {
            bucket.frames.record(frame).is_some()
                && self.members(**group).all(|(_, object)| object.record(frame).is_some())
        };
        let free = |(group, bucket): (&GroupId, &Bucket)| (slots - bucket.used, *group);
        let running = self.buckets.iter().filter(is_current).map(free);
        if let Some((_, group)) = running.filter(|(free, _)| *free >= count).min() {
            return Ok(vec![group; count]);
        }
        let next = self.open_group.id.saturating_add(u32::from(self.open_group.used));
        let group = |index: usize| next.saturating_add((index / slots) as GroupId);
        Ok((0..count).map(group).collect())
    }

    /// Encodes the memory of a bucket's masks on the current frame, if prompts changed them.
    pub(super) fn encode_bucket(&mut self, group: GroupId, frame: usize) -> Result<(), TrackError> {
        let Some(bucket) = self.buckets.get(&group) else { return Ok(()) };
        let is_new = self.members(group).any(|(_, object)| object.pending(frame).is_some());
        if !is_new || bucket.frames.pending.contains_key(&frame) {
            return Ok(());
        }
        let known = bucket.frames.record(frame).cloned();
        let mut given = known.as_ref().map(|known| known.given.clone()).unwrap_or_default();
        let pending = self.members(group).filter(|(_, object)| object.pending(frame).is_some());
        given.extend(pending.map(|(_, object)| object.slot));
        let pointers = self.pointers_with_prompts(group, frame, known.as_ref())?;
        let masks = self.slot_masks(group, frame, &given, &BTreeMap::new())?;
        let memory = Some(self.bucket_memory(MaskSource::Prompted, masks)?);
        let bucket = self.buckets.entry(group).or_default();
        bucket.frames.pending.insert(frame, BucketRecord { memory, pointers, given });
        Ok(())
    }

    /// The masks of a bucket's objects on a frame: `settled` ones, else the newest.
    fn slot_masks(
        &self,
        group: GroupId,
        frame: usize,
        given: &BTreeSet<usize>,
        settled: &BTreeMap<ObjectId, (&[f32], f32)>,
    ) -> Result<SlotMasks, TrackError> {
        let mut masks = SlotMasks::empty(self.slots()?, self.model().config().mask_side());
        for (id, object) in self.members(group) {
            match (settled.get(&id), object.newest(frame)) {
                (Some((logits, score)), _) => masks.fill(object.slot, logits, *score),
                (None, Some(record)) => {
                    masks.fill(object.slot, &record.logits.to_vec::<f32>()?, record.object_score);
                }
                (None, None) => {}
            }
        }
        given.iter().for_each(|slot| masks.given[*slot] = 1.0);
        Ok(masks)
    }

    /// The pointers of all slots on a frame, with those of prompts in their places.
    fn pointers_with_prompts(
        &self,
        group: GroupId,
        frame: usize,
        known: Option<&BucketRecord>,
    ) -> Result<DeviceValue, TrackError> {
        let width = self.model().config().decoder()?.width;
        let numbers = |value: &DeviceValue| -> Result<Vec<f32>, TrackError> {
            Ok(value.fetch().map_err(ModelError::from)?.to_vec::<f32>()?)
        };
        let mut all = match known {
            Some(known) => numbers(&known.pointers)?,
            None => vec![0.0; self.slots()? * width],
        };
        for (_, object) in self.members(group) {
            let pointer = object.pending(frame).and_then(|record| record.pointer.as_ref());
            if let Some(pointer) = pointer {
                all[object.slot * width..][..width].copy_from_slice(&numbers(pointer)?);
            }
        }
        Ok(self.model().upload(&Tensor::from_vec([1, all.len()], all)?)?)
    }

    /// Encodes the memory of a bucket on the current frame.
    fn bucket_memory(
        &self,
        source: MaskSource,
        masks: SlotMasks,
    ) -> Result<FrameMemory<DeviceValue>, TrackError> {
        let SlotMasks { logits, scores, valid, given } = masks;
        let (slots, side) = (scores.len(), self.model().config().mask_side());
        let of_slots = |numbers: Vec<f32>| -> Result<DeviceValue, TrackError> {
            Ok(self.model().upload(&Tensor::from_vec([1, slots], numbers)?)?)
        };
        let level2 = self.current()?.encoded.features.level2.clone();
        let inputs = RememberBucketsInputs {
            level2: level2.clone(),
            logits: self.model().upload(&Tensor::from_vec([1, slots, side, side], logits)?)?,
            object_score: of_slots(scores)?,
            valid: of_slots(valid)?,
            given: of_slots(given)?,
        };
        let remembered = self.model().run(&RememberBuckets { source, buckets: 1 }, inputs)?;
        let memory = remembered.objects.into_iter().next().ok_or(ModelError::NoMemory)?.memory;
        Ok(FrameMemory::plain(memory, Some(level2)))
    }

    /// Makes frames with new prompts frames that memory attention reads. A frame that the bucket was followed on stays one of
    /// those.
    pub(super) fn remember_bucket(&mut self, group: GroupId) {
        let Some(bucket) = self.buckets.get_mut(&group) else { return };
        for (frame, record) in std::mem::take(&mut bucket.frames.pending) {
            let followed = bucket.frames.tracked.contains_key(&frame);
            let kind =
                if followed { &mut bucket.frames.tracked } else { &mut bucket.frames.prompted };
            kind.insert(frame, record);
            for object in self.objects.values_mut().filter(|object| object.group == group) {
                let Some(mut record) = object.frames.pending.remove(&frame) else { continue };
                record.shown = None;
                let own = &mut object.frames;
                let kind = if followed { &mut own.tracked } else { &mut own.prompted };
                kind.insert(frame, record);
            }
        }
    }

    /// Remembers the masks of objects on the current frame as they were settled.
    pub(super) fn remember_settled_buckets(
        &mut self,
        settled: &BTreeMap<ObjectId, (&[f32], f32)>,
    ) -> Result<(), TrackError> {
        let frame = self.frame().ok_or(TrackError::NoFrame)?;
        for group in self.groups() {
            let has = |(id, _): (ObjectId, &Object)| settled.contains_key(&id);
            let known = self.buckets.get(&group).and_then(|bucket| bucket.frames.record(frame));
            let Some(given) = known.map(|known| known.given.clone()) else { continue };
            if !self.members(group).any(has) {
                continue;
            }
            let masks = self.slot_masks(group, frame, &given, settled)?;
            let memory = self.bucket_memory(MaskSource::Settled, masks)?;
            let bucket = self.buckets.entry(group).or_default();
            let kinds = [&mut bucket.frames.prompted, &mut bucket.frames.tracked];
            let records = kinds.into_iter().filter_map(|kind| kind.get_mut(&frame));
            records.for_each(|record| record.memory = Some(memory.clone()));
        }
        Ok(())
    }

    /// Follows all buckets on the current frame from their memories. On a frame on which masks were given, they are kept.
    pub(super) fn follow_buckets(
        &mut self,
        position: TrackPosition,
        remembering: Remembering,
    ) -> Result<Vec<FollowedBatch>, TrackError> {
        let reading = self.reading(None)?;
        let mut shapes: BTreeMap<(usize, usize), Vec<BucketSelection>> = BTreeMap::new();
        for (group, bucket) in &self.buckets {
            let is_given = |record: &BucketRecord| !record.given.is_empty();
            if bucket.frames.record(position.frame).is_some_and(is_given) {
                let members = self.objects.values_mut().filter(|object| object.group == *group);
                for record in members.filter_map(|object| object.frames.record_mut(position.frame))
                {
                    record.tracked = Some(position.direction);
                }
                continue;
            }
            let selection = bucket.frames.select(position, reading);
            if !selection.memories.is_empty() {
                let shape = (selection.memories.len(), selection.pointers.len());
                shapes.entry(shape).or_default().push(BucketSelection { group: *group, selection });
            }
        }
        let batch = self.model().backend().batch_limit();
        let batches = shapes.values().flat_map(|buckets| buckets.chunks(batch));
        batches.map(|buckets| self.follow_bucket_batch(buckets, position, remembering)).collect()
    }

    fn follow_bucket_batch(
        &mut self,
        buckets: &[BucketSelection],
        position: TrackPosition,
        remembering: Remembering,
    ) -> Result<FollowedBatch, TrackError> {
        let (sam, keys, slots) = (self.sam.clone(), self.keys()?, self.slots()?);
        let mut memories = Vec::new();
        for BucketSelection { group, selection } in buckets {
            let frames = &mut self.buckets.entry(*group).or_default().frames;
            match keys {
                Keys::Kept => {
                    frames.project(selection, |FrameMemory { memory, image, .. }| {
                        sam.model().run(&Project, MemoryInput { memory, image })
                    })?;
                    frames.forget_keys(&selection.memories);
                }
                Keys::Computed => frames.forget_keys(&[]),
            }
            memories.push(frames.read_memories(selection, position, keys));
        }
        let (shape, bank) = bank(self.model(), memories, keys)?;
        let mut valid = vec![0f32; buckets.len() * slots];
        for (index, bucket) in buckets.iter().enumerate() {
            self.members(bucket.group).for_each(|(_, one)| valid[index * slots + one.slot] = 1.0);
        }
        let valid = self.model().upload(&Tensor::from_vec([buckets.len(), slots], valid)?)?;
        let frame = self.current()?.encoded.features.clone();
        let part = FollowBuckets { bank: shape, remember: remembering == Remembering::AtOnce };
        let followed = self.model().run(&part, FollowBucketsInputs { frame, bank, valid })?;
        Ok(FollowedBatch::Buckets(buckets.iter().map(|one| one.group).collect(), followed))
    }

    /// Fetches the answers for buckets that were followed in one program, and enters them.
    pub(super) fn enter_buckets(
        &mut self,
        groups: &[GroupId],
        followed: FollowedBuckets<DeviceValue>,
        position: TrackPosition,
    ) -> Result<(), TrackError> {
        let slots = self.slots()?;
        let image = self.current()?.encoded.features.level2.clone();
        let answers = HostAnswers::fetch(&followed.logits, &followed.iou, &followed.object_score)?;
        for (index, (group, made)) in groups.iter().zip(followed.buckets).enumerate() {
            let mut memory = made.memory;
            if let Some(memory) = &mut memory {
                memory.image = Some(image.clone());
            }
            let record = BucketRecord { memory, pointers: made.pointers, given: BTreeSet::new() };
            let own = self.buckets.entry(*group).or_default();
            own.frames.tracked.insert(position.frame, record);
            self.enter_answers(*group, &answers, index * slots, position)?;
        }
        Ok(())
    }

    /// Enters the answers of a bucket's objects, which begin at `first`.
    fn enter_answers(
        &mut self,
        group: GroupId,
        answers: &HostAnswers,
        first: usize,
        position: TrackPosition,
    ) -> Result<(), TrackError> {
        let members = self.members(group).map(|(id, object)| (id, object.slot));
        for (id, slot) in members.collect::<Vec<_>>() {
            let mut record: FrameRecord = answers.record(first + slot, None, self)?;
            record.tracked = Some(position.direction);
            record.rated = Rated::Tracked;
            self.object_mut(id)?.frames.tracked.insert(position.frame, record);
        }
        Ok(())
    }

    /// What becomes of a bucket's record when prompts on a frame are withdrawn. `shared`: other objects still have prompts there.
    pub(super) fn withdraw_from_bucket(&mut self, group: GroupId, frame: usize, shared: bool) {
        let Some(bucket) = self.buckets.get_mut(&group) else { return };
        bucket.frames.pending.remove(&frame);
        if !shared && let Some(mut record) = bucket.frames.prompted.remove(&frame) {
            record.given.clear();
            bucket.frames.tracked.insert(frame, record);
        }
        if bucket.frames.prompted.is_empty() && bucket.frames.pending.is_empty() {
            bucket.frames.tracked.clear();
        }
    }
}
