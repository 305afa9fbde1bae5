//! Objects that share prompted frames: in SAM 3 those that are first prompted together, in SAM 2 each object alone.

use std::collections::BTreeMap;

use cutout_graph::DeviceValue;
use cutout_tensor::{DType, Tensor};

use super::history::{Holder, Sighting};
use super::object::{FrameRecord, Object, Rated};
use super::options::{Corrections, Direction, TrackError};
use super::state::Stored;
use super::timeline::TrackPosition;
use super::{ObjectId, Tracker};
use crate::components::memory::MaskSource;
use crate::model::ModelError;
use crate::model::config::{Grouping, RecentFrames};
use crate::parts::{FrameMemory, HIDDEN, MemoryInput, Remember, RememberInputs};

/// Number of a group.
pub(super) type GroupId = u32;

/// Object score of a mask without an object's answer, as in Meta's code.
const UNANSWERED: f32 = 10.0;

/// Least rating of a frame on which the objects of a group are seen clearly.
const CLEAR: f32 = 0.01;

/// Memories of an empty mask on frames that were prompted while objects could still join, by frame.
pub(super) type EmptyMemories = BTreeMap<usize, FrameMemory<DeviceValue>>;

/// The group that new objects join.
#[derive(Default)]
pub(super) struct OpenGroup {
    pub(super) id: GroupId,
    /// Whether it has objects.
    pub(super) used: bool,
    pub(super) empty: EmptyMemories,
}

impl OpenGroup {
    /// Goes on with this group.
    pub(super) fn open(&mut self, id: GroupId) {
        if id != self.id {
            *self = OpenGroup { id, ..OpenGroup::default() };
        }
        self.used = true;
    }

    /// Begins the next group.
    fn close(&mut self) {
        if self.used {
            *self = OpenGroup { id: self.id.saturating_add(1), ..OpenGroup::default() };
        }
    }
}

impl Tracker {
    /// The group of an object, known or new.
    pub(super) fn group_of(&self, object: ObjectId) -> GroupId {
        self.objects.get(&object).map_or(self.open_group.id, |object| object.group)
    }

    /// The group that an object has when it is prompted on a frame.
    pub(super) fn group_for(&self, id: ObjectId, frame: usize) -> Result<GroupId, ModelError> {
        let known = self.objects.contains_key(&id);
        match self.rules.grouping {
            Grouping::Buckets => self.bucket_for(id, frame),
            // Each object has a group of its own.
            Grouping::Alone if !known => {
                Ok(self.open_group.id.saturating_add(u32::from(self.open_group.used)))
            }
            Grouping::Alone | Grouping::Together => Ok(self.group_of(id)),
        }
    }

    /// Enters the answer to a prompt on the current frame, for an object that is of this group from now on.
    pub(super) fn enter_prompt(
        &mut self,
        id: ObjectId,
        group: GroupId,
        record: FrameRecord,
    ) -> Result<(), TrackError> {
        let frame = self.frame().ok_or(TrackError::NoFrame)?;
        if self.rules.grouping == Grouping::Buckets {
            self.enter_bucket(id, group);
            if let Some(bucket) = self.buckets.get_mut(&group) {
                // It is encoded again.
                bucket.frames.pending.remove(&frame);
            }
        } else if !self.objects.contains_key(&id) {
            self.open_group.open(group);
            self.objects.insert(id, Object { group, ..Object::default() });
        }
        let object = self.object_mut(id)?;
        object.own_prompts.insert(frame);
        object.frames.pending.insert(frame, record);
        Ok(())
    }

    pub(super) fn members(&self, group: GroupId) -> impl Iterator<Item = (ObjectId, &Object)> {
        let own = move |(_, object): &(&ObjectId, &Object)| object.group == group;
        self.objects.iter().filter(own).map(|(id, object)| (*id, object))
    }

    fn members_mut(&mut self, group: GroupId) -> impl Iterator<Item = (ObjectId, &mut Object)> {
        let own = move |(_, object): &(&ObjectId, &mut Object)| object.group == group;
        self.objects.iter_mut().filter(own).map(|(id, object)| (*id, object))
    }

    pub(super) fn groups(&self) -> Vec<GroupId> {
        let mut groups: Vec<GroupId> = self.objects.values().map(|object| object.group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Encodes memories of the prompted masks on the current frame, before its features are freed. All objects of a group
    /// are remembered together: each pixel belongs to one of them.
    pub(super) fn encode_prompts(&mut self) -> Result<(), TrackError> {
        let Some(frame) = self.frame() else { return Ok(()) };
        for group in self.groups() {
            if self.rules.grouping == Grouping::Buckets {
                self.encode_bucket(group, frame)?;
                continue;
            }
            let is_new =
                |object: &Object| object.pending(frame).is_some_and(|it| it.memory.is_none());
            if self.members(group).any(|(_, object)| is_new(object)) {
                self.encode_group(group, frame)?;
            }
        }
        Ok(())
    }

    fn encode_group(&mut self, group: GroupId, frame: usize) -> Result<(), TrackError> {
        let mut answered: Vec<(ObjectId, FrameRecord)> = Vec::new();
        let mut unanswered = Vec::new();
        for (id, object) in self.members(group) {
            match object.newest(frame) {
                Some(record) => answered.push((id, record.clone())),
                None => unanswered.push(id),
            }
        }
        let joinable = self.rules.grouping == Grouping::Together && group == self.open_group.id;
        let empty = (joinable || !unanswered.is_empty()).then(|| self.unanswered()).transpose()?;
        let records: Vec<&FrameRecord> =
            answered.iter().map(|(_, record)| record).chain(&empty).collect();
        let mut memories = self.remember(&records)?;
        if let Some(mut empty) = empty {
            let memory = memories.pop();
            empty.memory.clone_from(&memory);
            for id in unanswered {
                self.object_mut(id)?.filled_frames.insert(frame, empty.clone());
            }
            if joinable && let Some(memory) = memory {
                self.open_group.empty.insert(frame, memory);
            }
        }
        for ((id, mut record), memory) in answered.into_iter().zip(memories) {
            record.memory = Some(memory);
            record.rated = Rated::No;
            let object = self.object_mut(id)?;
            if object.pending(frame).is_some() {
                object.filled_frames.remove(&frame);
                object.frames.pending.insert(frame, record);
            } else {
                object.filled_frames.insert(frame, record);
            }
        }
        Ok(())
    }

    /// Encodes the memories of prompted masks on the current frame.
    fn remember(
        &self,
        records: &[&FrameRecord],
    ) -> Result<Vec<FrameMemory<DeviceValue>>, TrackError> {
        let mut logits = Vec::new();
        for record in records {
            logits.extend(record.logits.to_vec::<f32>()?);
        }
        let scores = records.iter().map(|record| record.object_score).collect();
        self.encode_memories(MaskSource::Prompted, logits, scores)
    }

    /// Encodes memories of masks on the current frame: logits `f32[objects, side, side]` and an object score for each.
    pub(super) fn encode_memories(
        &self,
        source: MaskSource,
        logits: Vec<f32>,
        scores: Vec<f32>,
    ) -> Result<Vec<FrameMemory<DeviceValue>>, TrackError> {
        let (objects, side) = (scores.len(), self.model().config().mask_side());
        let inputs = RememberInputs {
            level2: self.current()?.encoded.features.level2.clone(),
            logits: self.model().upload(&Tensor::from_vec([objects, side, side], logits)?)?,
            object_score: self.model().upload(&Tensor::from_vec([objects], scores)?)?,
        };
        let remembered = self.model().run(&Remember { source, objects }, inputs)?;
        let unprojected = |MemoryInput { memory, image }| FrameMemory::plain(memory, image);
        Ok(remembered.objects.into_iter().map(unprojected).collect())
    }

    /// What stands for an object on a frame where it has no answer and another one of its group has a prompt.
    fn unanswered(&self) -> Result<FrameRecord, TrackError> {
        let side = self.model().config().mask_side();
        let pointer = self.model().hidden_pointer()?;
        Ok(FrameRecord {
            memory: None,
            pointer: Some(self.model().upload(&pointer)?),
            logits: Tensor::from_vec([side, side], vec![HIDDEN; side * side])?,
            iou: 0.0,
            object_score: UNANSWERED,
            tracked: None,
            rated: Rated::No,
            shown: None,
        })
    }

    /// Makes frames with new prompts frames that memory attention reads, for all objects of their groups. New objects begin
    /// another group from now on.
    pub(super) fn remember_prompts(&mut self) -> Result<(), TrackError> {
        for group in self.groups() {
            if self.rules.grouping == Grouping::Buckets {
                self.remember_bucket(group);
                continue;
            }
            let pending = |(_, object): (ObjectId, &Object)| {
                object.frames.pending.keys().copied().collect::<Vec<_>>()
            };
            let mut frames: Vec<usize> = self.members(group).flat_map(pending).collect();
            frames.sort_unstable();
            frames.dedup();
            for frame in frames {
                self.remember_frame(group, frame)?;
            }
        }
        if self.rules.grouping != Grouping::Alone {
            self.open_group.close();
        }
        Ok(())
    }

    fn remember_frame(&mut self, group: GroupId, frame: usize) -> Result<(), TrackError> {
        let passes = |object: &Object| {
            let pending = object.pending(frame);
            !object.frames.prompted.contains_key(&frame)
                && pending.is_none_or(|record| record.tracked.is_some())
        };
        let passes = self.rules.corrections == Corrections::Pass
            && self.members(group).all(|(_, object)| passes(object));
        let joined = match self.open_group.empty.get(&frame) {
            Some(memory) if group == self.open_group.id => {
                let memory = Some(memory.clone());
                Some(FrameRecord { memory, ..self.unanswered()? })
            }
            _ => None,
        };
        for (_, object) in self.members_mut(group) {
            let filled = object.filled_frames.remove(&frame);
            let pending = object.frames.pending.remove(&frame);
            let Some(mut record) = pending.or(filled).or_else(|| joined.clone()) else { continue };
            record.shown = None;
            if passes {
                object.frames.tracked.insert(frame, record);
            } else {
                object.frames.tracked.remove(&frame);
                object.frames.prompted.insert(frame, record);
            }
        }
        Ok(())
    }

    /// Removes the prompts of an object on a frame. If no other object of its group has any there, the masks of all count as
    /// tracked.
    pub(super) fn withdraw(&mut self, frame: usize, id: ObjectId) -> Result<(), TrackError> {
        let object = self.object_mut(id)?;
        let group = object.group;
        object.own_prompts.remove(&frame);
        object.frames.pending.remove(&frame);
        let current = self.frame() == Some(frame);
        let shared = self.members(group).any(|(_, object)| object.own_prompts.contains(&frame));
        for (_, object) in self.members_mut(group) {
            if shared {
                // The memories of this frame are encoded again without the prompt.
                if let Some(pending) = object.frames.pending.get_mut(&frame).filter(|_| current) {
                    pending.memory = None;
                }
                continue;
            }
            object.frames.pending.remove(&frame);
            object.filled_frames.remove(&frame);
            if let Some(mut record) = object.frames.prompted.remove(&frame) {
                record.tracked = None;
                object.frames.tracked.insert(frame, record);
            }
        }
        if self.rules.grouping == Grouping::Buckets {
            self.withdraw_from_bucket(group, frame, shared);
        }
        let is_prompted = |object: &Object| {
            !object.frames.prompted.is_empty() || !object.frames.pending.is_empty()
        };
        if self.rules.grouping != Grouping::Alone
            && !self.members(group).any(|(_, object)| is_prompted(object))
        {
            // Without any prompt there is nothing to track.
            self.members_mut(group).for_each(|(_, object)| object.frames.tracked.clear());
        }
        Ok(())
    }

    /// Forgets an object. The ratings of its group's frames are those of the others from now on.
    pub(super) fn forget(&mut self, id: ObjectId) -> Result<(), TrackError> {
        self.object_mut(id)?;
        if self.rules.grouping == Grouping::Buckets {
            self.leave_bucket(id);
            return Ok(());
        }
        let object = self.object_mut(id)?;
        let group = object.group;
        for frame in object.own_prompts.clone() {
            self.withdraw(frame, id)?;
        }
        self.objects.remove(&id);
        self.store.forget(Holder::Object(id));
        for (_, object) in self.members_mut(group) {
            for record in object.frames.tracked.values_mut() {
                if record.rated == Rated::No {
                    record.rated = Rated::ByObject;
                }
            }
        }
        Ok(())
    }

    /// Frames on which a group was seen clearly, walking away from `position`, the nearest first, at most `most`.
    fn clear_frames(&self, group: GroupId, position: TrackPosition, most: usize) -> Vec<usize> {
        let Some((first, object)) = self.members(group).next() else { return Vec::new() };
        let mut frames: Vec<usize> = object.frames.tracked.keys().copied().collect();
        frames.extend(
            self.store
                .stored(Holder::Object(first))
                .filter(|frame| object.record(*frame).is_none()),
        );
        frames.retain(|frame| position.is_behind(*frame));
        frames.sort_unstable_by_key(|frame| frame.abs_diff(position.frame));
        let mut clear = Vec::new();
        for frame in frames {
            let Some(rating) = self.rating(group, frame) else { continue };
            if rating > CLEAR {
                clear.push(frame);
            }
            if clear.len() >= most {
                break;
            }
        }
        clear
    }

    /// How clearly all objects of a group are seen on a tracked frame; `None` for a frame without rating.
    fn rating(&self, group: GroupId, frame: usize) -> Option<f32> {
        let sighting = |(id, object): (ObjectId, &Object)| {
            let held = object.frames.tracked.get(&frame).map(FrameRecord::sighting);
            held.or_else(|| self.store.sighting(id, frame))
        };
        rating(&self.members(group).map(sighting).collect::<Option<Vec<_>>>()?)
    }

    /// The past frames that memory attention reads for a group, oldest first; `None` for the last ones.
    pub(super) fn recent_frames(
        &self,
        group: GroupId,
        position: TrackPosition,
    ) -> Option<Vec<usize>> {
        match self.rules.recent_frames {
            RecentFrames::Last => None,
            RecentFrames::Clear => {
                // At the beginning of the clip nothing is behind.
                let Some(last) = position.back(1) else { return Some(Vec::new()) };
                let most = position.pointer_reach().saturating_sub(1);
                let mut frames = self.clear_frames(group, position, most);
                frames.reverse();
                if !frames.contains(&last) {
                    frames.push(last);
                }
                Some(frames)
            }
        }
    }

    /// Frames out of reach that may still be read from `frame` on, in either direction.
    pub(super) fn frames_to_keep(&self, group: GroupId, frame: usize) -> Vec<usize> {
        if self.rules.recent_frames == RecentFrames::Last {
            return Vec::new();
        }
        let Ok(memory) = self.model().config().memory() else { return Vec::new() };
        let most = memory.pointer_frames;
        let walk = |direction| {
            let position = TrackPosition {
                frame,
                direction,
                length: self.options.length,
                pointer_frames: most,
            };
            self.clear_frames(group, position, most)
        };
        [walk(Direction::Forward), walk(Direction::Backward)].concat()
    }
}

/// Rating of a frame by what was seen of each object there: the mean certainty that objects are visible times the mean predicted
/// IoU. Meta's code multiplies before taking the mean where the frame once had prompts.
fn rating(seen: &[Sighting]) -> Option<f32> {
    let certainty = |score: f32| if score > 0.0 { 2.0 / (1.0 + (-score).exp()) - 1.0 } else { 0.0 };
    let mean = |of: &dyn Fn(&Sighting) -> f32| seen.iter().map(of).sum::<f32>() / seen.len() as f32;
    match seen.first()?.rated {
        Rated::No => None,
        Rated::Tracked => Some(mean(&|one| certainty(one.object_score)) * mean(&|one| one.iou)),
        Rated::ByObject => Some(mean(&|one| certainty(one.object_score) * one.iou)),
    }
}

impl crate::model::Model {
    /// The pointer of an object that is not in the picture.
    fn hidden_pointer(&self) -> Result<Tensor, ModelError> {
        let name = self.config().memory()?.form.hidden_pointer().ok_or(ModelError::NoMemory)?;
        let weight = self.weights().get(name).ok_or(ModelError::NoMemory)?;
        Ok(weight.tensor()?.cast(DType::F32)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(object_score: f32, iou: f32, rated: Rated) -> Sighting {
        Sighting { object_score, iou, rated }
    }

    #[test]
    fn ratings_are_means_over_the_objects_of_a_group() {
        let half = 3f32.ln(); // certainty 0.5
        let both = |rated| rating(&[seen(half, 0.8, rated), seen(-2.0, 0.4, rated)]).unwrap();
        assert!((both(Rated::Tracked) - 0.25 * 0.6).abs() < 1e-6);
        assert!((both(Rated::ByObject) - 0.2).abs() < 1e-6);
        assert_eq!(rating(&[seen(half, 0.8, Rated::No)]), None);
        assert_eq!(rating(&[seen(-1.0, 0.8, Rated::Tracked)]), Some(0.0));
    }
}
