//! Tracking step by step: the masks of a frame first, their memories when it is settled what the masks are.

use std::sync::Arc;

use cutout_imaging::{Image, Mask, Size, Upsampler};
use cutout_tensor::Tensor;

use super::follow::{Following, Remembering, mask_tensor};
use super::group::GroupId;
use super::object::{FrameRecord, Rated, ShownMask};
use super::options::{Direction, TrackError};
use super::{Current, ObjectId, Tracker};
use crate::components::memory::MaskSource;
use crate::model::ModelError;
use crate::model::config::Grouping;
use crate::parts::{FitMask, MaskInputs, ShowMask, UseMask, VideoMask};
use crate::scene::{Scene, SourcePicture};

/// One object on the current frame.
pub(crate) struct Sighted {
    pub(crate) id: ObjectId,
    /// `f32[side, side]`.
    pub(crate) logits: Tensor,
    pub(crate) object_score: f32,
    pub(crate) iou: f32,
}

/// What is remembered of an object on the current frame.
pub(crate) struct Settled {
    pub(crate) id: ObjectId,
    /// `f32[side * side]`.
    pub(crate) logits: Vec<f32>,
    pub(crate) object_score: f32,
}

impl Tracker {
    /// Tracks all objects on a frame without remembering it; [`Tracker::finish_following`] enters their masks. `goes_back`: frames before
    /// the first one are tracked later.
    pub(crate) fn look(
        &mut self,
        frame: usize,
        image: &Image,
        direction: Direction,
        goes_back: bool,
    ) -> Result<Following, TrackError> {
        self.visit(frame, image)?;
        self.keep_prompts()?;
        if let Some(most) = self.rules.most_prompted_frames {
            for object in self.objects.values_mut() {
                object.frames.forget_far_prompts(direction, most, goes_back);
                let known = &object.frames;
                object.own_prompts.retain(|frame| {
                    known.prompted.contains_key(frame) || known.pending.contains_key(frame)
                });
            }
            for bucket in self.buckets.values_mut() {
                bucket.frames.forget_far_prompts(direction, most, goes_back);
            }
        }
        self.follow(frame, direction, Remembering::Later)
    }

    /// Counts a frame as tracked for the objects that were given masks on it since.
    pub(crate) fn mark_tracked(&mut self, frame: usize) {
        for object in self.objects.values_mut() {
            if let Some(record) = object.frames.prompted.get_mut(&frame) {
                record.tracked = Some(Direction::Forward);
            }
        }
    }

    /// Makes prompted frames of an object's group frames as others. Objects of buckets begin anew when they are prompted, and
    /// have none.
    pub(crate) fn demote(&mut self, id: ObjectId, frames: &[usize]) -> Result<(), TrackError> {
        if self.rules.grouping == Grouping::Buckets {
            return Ok(());
        }
        let group = self.group_of(id);
        let members: Vec<ObjectId> = self.members(group).map(|(id, _)| id).collect();
        for frame in frames {
            for member in &members {
                self.withdraw(*frame, *member)?;
            }
        }
        Ok(())
    }

    /// Size of the video, once a frame is known.
    pub(crate) fn known_size(&self) -> Option<Size> {
        self.mapping.as_ref().map(|(mapping, _)| mapping.original).or(self.expected_size)
    }

    /// The current frame as a picture in which objects can be found.
    pub(crate) fn scene(&self) -> Result<Scene, TrackError> {
        let Current { encoded, .. } = self.current()?;
        let trunk = encoded.trunk.clone().ok_or(ModelError::NoMemory)?;
        // A scene of a frame is not saved, so that nothing asks for its fingerprint.
        let source = SourcePicture { mapping: encoded.mapping, fingerprint: 0 };
        Ok(Scene::new(self.sam.clone(), trunk, source)?)
    }

    /// Size of the video.
    pub(crate) fn size(&self) -> Result<Size, TrackError> {
        Ok(self.current()?.encoded.mapping.original)
    }

    /// The objects on the current frame, in the order of their ids.
    pub(crate) fn sighted(&self) -> Vec<Sighted> {
        let Some(frame) = self.frame() else { return Vec::new() };
        let record = |(id, record): (ObjectId, &FrameRecord)| Sighted {
            id,
            logits: record.logits.clone(),
            object_score: record.object_score,
            iou: record.iou,
        };
        let known = self.objects.iter().map(|(id, object)| (*id, object.newest(frame)));
        known.filter_map(|(id, newest)| Some(record((id, newest?)))).collect()
    }

    /// What brings masks `f32[side, side]` to the size of the video.
    pub(crate) fn upsampler(&self) -> Result<Arc<Upsampler>, TrackError> {
        let (_, upsampler) = self.mapping.as_ref().ok_or(TrackError::NoFrame)?;
        Ok(Arc::clone(upsampler))
    }

    /// Remembers the current frame: the memory of each object is of the mask given here.
    pub(crate) fn remember_settled(&mut self, settled: &[Settled]) -> Result<(), TrackError> {
        if self.rules.grouping == Grouping::Buckets {
            let masks = settled.iter().map(|one| (one.id, (&one.logits[..], one.object_score)));
            return self.remember_settled_buckets(&masks.collect());
        }
        let batch = self.model().backend().batch_limit();
        for objects in settled.chunks(batch) {
            let logits = objects.iter().map(|one| &one.logits[..]).collect::<Vec<_>>().concat();
            let scores = objects.iter().map(|one| one.object_score).collect();
            let memories = self.encode_memories(MaskSource::Settled, logits, scores)?;
            for (one, memory) in objects.iter().zip(memories) {
                let frame = self.frame().ok_or(TrackError::NoFrame)?;
                let object = self.object_mut(one.id)?;
                let records =
                    [object.frames.prompted.get_mut(&frame), object.frames.tracked.get_mut(&frame)];
                records.into_iter().flatten().for_each(|record| {
                    record.memory = Some(memory.clone());
                });
            }
        }
        Ok(())
    }

    /// Gives objects masks of the model's size on the current frame, and remembers them. Objects that are new are a group of
    /// their own, or join a bucket.
    pub(crate) fn give_masks(&mut self, masks: &[(ObjectId, Mask)]) -> Result<(), TrackError> {
        let frame = self.frame().ok_or(TrackError::NoFrame)?;
        let groups = self.groups_for(masks, frame)?;
        let mut shown = Vec::new();
        for ((id, mask), group) in masks.iter().zip(groups) {
            let record = self.answer_model_mask(*id, mask)?;
            if let Some(ShownMask::Given(mask)) = &record.shown {
                shown.push((*id, group, mask.clone()));
            }
            if self.rules.grouping != Grouping::Buckets
                && let Some((_, _, mask)) = shown.last()
            {
                self.take_pixels(group, *id, mask)?;
            }
            self.enter_prompt(*id, group, record)?;
        }
        if self.rules.grouping == Grouping::Buckets {
            // A pixel that several of the masks have is left to none of them.
            for (id, group, mask) in &shown {
                self.take_pixels(*group, *id, mask)?;
            }
        }
        self.keep_prompts()
    }

    /// The groups of objects that are given masks.
    fn groups_for(
        &self,
        masks: &[(ObjectId, Mask)],
        frame: usize,
    ) -> Result<Vec<GroupId>, TrackError> {
        if self.rules.grouping != Grouping::Buckets {
            let group = |(id, _): &(ObjectId, Mask)| self.group_for(*id, frame);
            return Ok(masks.iter().map(group).collect::<Result<_, _>>()?);
        }
        let is_new = |(id, _): &&(ObjectId, Mask)| !self.objects.contains_key(id);
        let count = masks.iter().filter(is_new).count();
        let mut new = self.buckets_for_births(frame, count)?.into_iter();
        let group = |(id, _): &(ObjectId, Mask)| match self.objects.get(id) {
            Some(object) => object.group,
            None => new.next().unwrap_or_default(),
        };
        Ok(masks.iter().map(group).collect())
    }

    /// Encodes new prompts, and makes their frames frames that memory attention reads.
    pub(crate) fn keep_prompts(&mut self) -> Result<(), TrackError> {
        self.encode_prompts()?;
        self.remember_prompts()
    }

    fn answer_model_mask(&mut self, id: ObjectId, mask: &Mask) -> Result<FrameRecord, TrackError> {
        let frame = self.frame().ok_or(TrackError::NoFrame)?;
        let shown = self.as_shown(mask)?;
        let features = self.mask_features()?;
        let size = |mask: &Mask| [mask.size().height, mask.size().width];
        let model = self.model();
        let inputs = MaskInputs { mask: model.upload(&mask_tensor(mask)?)?, frame: features };
        let answer = model.run(&UseMask { size: size(mask) }, inputs)?;
        let part = FitMask { size: size(&shown) };
        let fitted = model.run(&part, VideoMask { mask: model.upload(&mask_tensor(&shown)?)? })?;
        let number = |value: cutout_graph::DeviceValue| -> Result<f32, TrackError> {
            Ok(value.fetch().map_err(ModelError::from)?.to_vec::<f32>()?[0])
        };
        let known = self.objects.get(&id).and_then(|object| object.record(frame));
        Ok(FrameRecord {
            memory: None,
            pointer: Some(answer.pointer),
            logits: fitted.logits.fetch().map_err(ModelError::from)?,
            iou: number(answer.iou)?,
            object_score: number(answer.object_score)?,
            tracked: known.and_then(|record| record.tracked),
            rated: Rated::No,
            shown: Some(ShownMask::Given(shown)),
        })
    }

    /// A mask of the model's size as large as the video.
    fn as_shown(&self, mask: &Mask) -> Result<Mask, TrackError> {
        let Current { encoded, .. } = self.current()?;
        let Size { width, height } = encoded.mapping.original;
        let mask = self.model().upload(&mask_tensor(mask)?)?;
        let shown = self.model().run(&ShowMask { video: [height, width] }, VideoMask { mask })?;
        let pixels = shown.mask.fetch().map_err(ModelError::from)?.to_vec::<f32>()?;
        let pixels = pixels.into_iter().map(|pixel| pixel > 0.5).collect();
        Ok(Mask::from_pixels(Size::new(width, height), pixels)?)
    }
}
