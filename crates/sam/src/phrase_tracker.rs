//! Every object of a phrase through a video: found, followed and numbered.
//!
//! On each frame the detector looks for the phrases and the tracker follows the objects that are known, both from one run of the
//! image encoder. What both say is put together in Meta's order: `matching`, then new objects and those on probation
//! (`hot_start`), renewed objects, and masks that give way (`occlusion`, `shrinking`) before the frame is remembered.
//! Objects of different phrases have nothing to do with each other.

mod answer;
mod bits;
#[cfg(test)]
mod clip_tests;
mod decisions;
mod held_back;
mod hot_start;
mod matching;
mod occlusion;
mod options;
mod shrinking;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod whole_tests;

use std::collections::BTreeMap;

use cutout_imaging::{Image, Mask, Size, Upsampler};
use cutout_tensor::Tensor;

pub use answer::{PhraseFrame, PhraseObject};
pub use options::{PhraseOptions, PhraseTrackError};

use crate::find::Find;
use crate::masks::{clear_islands, fill_holes};
use crate::sam::Sam;
use crate::tracker::{Direction, ObjectId, Settled, TrackOptions, Tracker};
use answer::UnfinishedFrame;
use bits::BitMask;
use decisions::{Decisions, PhraseRecord, Shown};
use held_back::HeldBack;
use hot_start::FrameStep;
use matching::{Detected, Tracked, suppress_duplicates};
use shrinking::areas;

/// Number of the first object: 0 is the background of label pictures.
const FIRST_ID: ObjectId = 1;
/// Logits of pixels that are filled, and cleared.
const FILLED: f32 = 0.1;
const CLEARED: f32 = -0.1;
/// Logit of all pixels of a mask that gives way.
const SUPPRESSED: f32 = -10.0;
/// Object score that is remembered for a mask with any pixel; the negative of it for an empty one.
const SURE: f32 = 10.0;

/// Every object of some phrases through a video.
pub struct PhraseTracker {
    tracker: Tracker,
    options: PhraseOptions,
    phrases: Vec<Phrase>,
    tracks: BTreeMap<ObjectId, Track>,
    next_id: ObjectId,
    held: HeldBack<UnfinishedFrame>,
}

struct Phrase {
    find: Find,
    text: String,
    record: PhraseRecord,
    /// Probability that the current frame has any such object.
    presence: f32,
}

/// What is known of a followed object besides its masks.
#[derive(Clone, Copy)]
struct Track {
    /// Position of its phrase.
    phrase: usize,
    /// Probability of the detection that started it.
    score: f32,
}

/// A detection with its mask.
struct Candidate {
    score: f32,
    /// `f32[side * side]`.
    logits: Vec<f32>,
}

/// An object on the current frame, as it is settled so far.
struct Followed {
    id: ObjectId,
    logits: Vec<f32>,
    object_score: f32,
    iou: f32,
}

impl Sam {
    /// Begins to find and follow the objects of phrases through a video.
    pub fn track_phrases(
        &self,
        phrases: &[&str],
        options: PhraseOptions,
    ) -> Result<PhraseTracker, PhraseTrackError> {
        if phrases.is_empty() {
            return Err(PhraseTrackError::NoPhrase);
        }
        options.check()?;
        let phrase = |text: &&str| {
            let find = Find::phrase(*text).threshold(options.detection_threshold);
            self.check_find(&find, Size::square(1))?;
            Ok(Phrase {
                find,
                text: (*text).to_owned(),
                record: PhraseRecord::default(),
                presence: 0.0,
            })
        };
        let phrases = phrases.iter().map(phrase).collect::<Result<_, PhraseTrackError>>()?;
        let track = TrackOptions { length: options.length, ..TrackOptions::default() };
        Ok(PhraseTracker {
            tracker: self.track(track)?,
            held: HeldBack::new(options.delay),
            phrases,
            tracks: BTreeMap::new(),
            next_id: FIRST_ID,
            options,
        })
    }
}

impl PhraseTracker {
    /// Finds and follows objects on the next frame. Returns the frames that are settled now: none while answers are held back,
    /// later one for each.
    pub fn push(&mut self, image: &Image) -> Result<Option<PhraseFrame>, PhraseTrackError> {
        let frame = self.tracker.frame().map_or(0, |frame| frame + 1);
        let step = FrameStep { frame, backward: false };
        let first = self.settle(step, image)?;
        // Meta's code runs the frame with the prompt once to answer it and again when it goes on.
        let (answer, removed) = if frame == 0 { self.settle(step, image)? } else { first };
        let ready = self.held.push(answer, &removed);
        ready.map(|(answer, hidden)| answer.finish(&hidden, &self.phrase_texts())).transpose()
    }

    /// The frames that are still held back, one at a time, oldest first. Call it until it returns `None`.
    pub fn finish(&mut self) -> Result<Option<PhraseFrame>, PhraseTrackError> {
        let texts = self.phrase_texts();
        self.held.show().map(|(answer, hidden)| answer.finish(&hidden, &texts)).transpose()
    }

    /// Objects that are followed now.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.tracks.keys().copied()
    }

    /// Frames whose answers are held back.
    pub fn held_back(&self) -> usize {
        self.held.len()
    }

    /// Ends an object. Its number is not used again.
    pub fn remove(&mut self, id: ObjectId) -> Result<(), PhraseTrackError> {
        self.tracker.remove(id)?;
        if let Some(track) = self.tracks.remove(&id) {
            self.phrases[track.phrase].record.forget(id as usize);
        }
        Ok(())
    }

    fn phrase_texts(&self) -> Vec<String> {
        self.phrases.iter().map(|phrase| phrase.text.clone()).collect()
    }

    /// Runs a frame and decides about it. Returns its answer and the objects that ended.
    fn settle(
        &mut self,
        step: FrameStep,
        image: &Image,
    ) -> Result<(UnfinishedFrame, Vec<usize>), PhraseTrackError> {
        let direction = if step.backward { Direction::Backward } else { Direction::Forward };
        self.tracker.look(step.frame, image, direction)?;
        let found = self.detect()?;
        let (decisions, followed) = self.settle_masks(step, &found)?;
        self.settle_objects(step, &found, &decisions, followed)
    }

    /// Decides about the current frame, and remembers it. Returns the decisions about each phrase and the masks that remain.
    fn settle_masks(
        &mut self,
        step: FrameStep,
        found: &[Vec<Candidate>],
    ) -> Result<(Vec<Decisions>, Vec<Followed>), PhraseTrackError> {
        let mut followed = self.followed()?;
        let decisions: Vec<Decisions> = (0..self.phrases.len())
            .map(|phrase| self.decide(phrase, step, &found[phrase], &followed))
            .collect();
        self.renew(step, found, &decisions, &followed)?;
        for (phrase, decisions) in decisions.iter().enumerate() {
            let members = self.members(phrase, &followed);
            for position in &decisions.suppressed {
                followed[members[*position]].logits.fill(SUPPRESSED);
            }
        }
        self.remember(&followed)?;
        Ok((decisions, followed))
    }

    /// Starts and ends objects. Returns the answer of the frame and the objects that ended.
    fn settle_objects(
        &mut self,
        step: FrameStep,
        found: &[Vec<Candidate>],
        decisions: &[Decisions],
        followed: Vec<Followed>,
    ) -> Result<(UnfinishedFrame, Vec<usize>), PhraseTrackError> {
        let mut answer = UnfinishedFrame::new(step.frame, self.tracker.size()?);
        self.enter_followed(&mut answer, followed)?;
        self.enter_new(&mut answer, found, decisions)?;
        let removed: Vec<usize> =
            decisions.iter().flat_map(|decisions| decisions.removed.iter().copied()).collect();
        for id in &removed {
            self.tracker.remove(*id as ObjectId)?;
            self.tracks.remove(&(*id as ObjectId));
        }
        Ok((answer, removed))
    }

    /// The detections of each phrase on the current frame.
    fn detect(&mut self) -> Result<Vec<Vec<Candidate>>, PhraseTrackError> {
        let scene = self.tracker.scene()?;
        let mut found = Vec::new();
        for phrase in 0..self.phrases.len() {
            let answer = scene.find(&self.phrases[phrase].find)?;
            let presence = answer.phrases().first().map(crate::find::Detections::presence);
            self.phrases[phrase].presence = presence.unwrap_or(0.0);
            let mut detections: Vec<_> = answer.iter().collect();
            detections.sort_by_key(|detection| detection.query());
            let candidate = |detection: &crate::find::Detection| -> Result<_, PhraseTrackError> {
                let logits = detection.segment().logits.to_vec::<f32>()?;
                Ok(Candidate { score: detection.score(), logits })
            };
            let candidates = detections.into_iter().map(candidate);
            found.push(self.distinct(candidates.collect::<Result<_, _>>()?));
        }
        Ok(found)
    }

    /// Detections without those that repeat a better one.
    fn distinct(&self, candidates: Vec<Candidate>) -> Vec<Candidate> {
        let options = &self.options;
        let detected: Vec<Detected> = candidates.iter().map(Candidate::detected).collect();
        let kept =
            suppress_duplicates(&detected, options.detection_threshold, options.duplicate_iou);
        let numbered = candidates.into_iter().enumerate();
        numbered.filter(|(index, _)| kept.contains(index)).map(|(_, one)| one).collect()
    }

    /// The objects that the tracker sees on the current frame, without small holes and islands.
    fn followed(&self) -> Result<Vec<Followed>, PhraseTrackError> {
        let mut followed = Vec::new();
        for sighted in self.tracker.sighted() {
            let mut logits = sighted.logits.to_vec::<f32>()?;
            self.clean(&mut logits)?;
            let (object_score, iou) = (sighted.object_score, sighted.iou);
            followed.push(Followed { id: sighted.id, logits, object_score, iou });
        }
        Ok(followed)
    }

    fn clean(&self, logits: &mut [f32]) -> Result<(), PhraseTrackError> {
        let (side, area) = (self.side(), self.options.fill_hole_area);
        if area > 0 {
            fill_holes(logits, side, area, FILLED).map_err(cutout_tensor::TensorError::from)?;
            clear_islands(logits, side, area, CLEARED).map_err(cutout_tensor::TensorError::from)?;
        }
        Ok(())
    }

    fn side(&self) -> usize {
        self.tracker.sam().model().config().mask_side()
    }

    /// Positions of the objects of a phrase.
    fn members(&self, phrase: usize, followed: &[Followed]) -> Vec<usize> {
        let is_member = |index: &usize| {
            self.tracks.get(&followed[*index].id).is_some_and(|track| track.phrase == phrase)
        };
        (0..followed.len()).filter(is_member).collect()
    }

    fn decide(
        &mut self,
        phrase: usize,
        step: FrameStep,
        found: &[Candidate],
        followed: &[Followed],
    ) -> Decisions {
        let detections: Vec<Detected> = found.iter().map(Candidate::detected).collect();
        let members = self.members(phrase, followed).into_iter();
        let tracks: Vec<Tracked> = members
            .map(|index| Tracked {
                id: followed[index].id as usize,
                mask: BitMask::of(&followed[index].logits),
            })
            .collect();
        let shown = Shown {
            detections: &detections,
            tracks: &tracks,
            next_id: self.next_id as usize,
            room: self.options.max_objects.saturating_sub(self.tracks.len()),
        };
        let decisions = self.phrases[phrase].record.decide(step, &shown, &self.options);
        for index in &decisions.new {
            let track = Track { phrase, score: found[*index].score };
            self.tracks.insert(self.next_id, track);
            self.next_id += 1;
        }
        decisions
    }

    /// Gives objects the masks of detections that surely show them.
    fn renew(
        &mut self,
        step: FrameStep,
        found: &[Vec<Candidate>],
        decisions: &[Decisions],
        followed: &[Followed],
    ) -> Result<(), PhraseTrackError> {
        let every = self.options.recondition_every;
        if every == 0 || !step.frame.is_multiple_of(every) {
            return Ok(());
        }
        for (found, decisions) in found.iter().zip(decisions) {
            for (id, detection) in &decisions.renewing {
                let id = *id as ObjectId;
                let object = followed.iter().find(|object| object.id == id);
                if object.is_some_and(|one| one.object_score > self.options.recondition_logit) {
                    let mask = self.enlarged(&found[*detection].logits)?;
                    self.tracker.give_masks(&[(id, mask)])?;
                }
            }
        }
        Ok(())
    }

    /// The mask of low-resolution logits, as large as the model takes masks.
    fn enlarged(&self, logits: &[f32]) -> Result<Mask, PhraseTrackError> {
        let side = self.side();
        let large = Size::square(4 * side);
        let upsampler = Upsampler::direct(Size::square(side), large)?;
        let mut pixels = cutout_tensor::memory::with_capacity(large.width * large.height)
            .map_err(cutout_tensor::TensorError::from)?;
        upsampler.for_each_row(logits, |_, row| pixels.extend(row.iter().map(|it| *it > 0.0)))?;
        Ok(Mask::from_pixels(large, pixels)?)
    }

    /// Remembers the frame. A mask that loses most of its pixels to others of its phrase is remembered as hidden.
    fn remember(&mut self, followed: &[Followed]) -> Result<(), PhraseTrackError> {
        let side = self.side();
        let mut settled = Vec::new();
        for phrase in 0..self.phrases.len() {
            let members = self.members(phrase, followed);
            let masks: Vec<&[f32]> =
                members.iter().map(|index| &followed[*index].logits[..]).collect();
            for (index, area) in members.iter().zip(areas(&masks, side, 4 * side)?) {
                let mut logits = followed[*index].logits.clone();
                if area.shrinks() {
                    logits.iter_mut().for_each(|logit| *logit = logit.min(SUPPRESSED));
                }
                let shown = !area.is_empty() && !area.shrinks();
                let object_score = if shown { SURE } else { -SURE };
                settled.push(Settled { id: followed[*index].id, logits, object_score });
            }
        }
        Ok(self.tracker.remember_settled(&settled)?)
    }

    fn enter_followed(
        &self,
        answer: &mut UnfinishedFrame,
        followed: Vec<Followed>,
    ) -> Result<(), PhraseTrackError> {
        for object in followed {
            let Some(track) = self.tracks.get(&object.id) else { continue };
            answer.objects.push(PhraseObject {
                id: object.id,
                phrase: track.phrase,
                score: track.score,
                probability: 1.0 / (1.0 + (-object.object_score).exp()),
                object_score: Some(object.object_score),
                iou: Some(object.iou),
                presence: self.phrases[track.phrase].presence,
                mask: self.shown(&object.logits)?,
            });
        }
        Ok(())
    }

    /// Starts the new objects of each phrase.
    fn enter_new(
        &mut self,
        answer: &mut UnfinishedFrame,
        found: &[Vec<Candidate>],
        decisions: &[Decisions],
    ) -> Result<(), PhraseTrackError> {
        let count: usize = decisions.iter().map(|decisions| decisions.new.len()).sum();
        let mut id = self.next_id - count as ObjectId;
        for (phrase, (found, decisions)) in found.iter().zip(decisions).enumerate() {
            let mut masks = Vec::new();
            for index in &decisions.new {
                let candidate = &found[*index];
                masks.push((id, self.enlarged(&candidate.logits)?));
                let mut logits = candidate.logits.clone();
                self.clean(&mut logits)?;
                answer.objects.push(PhraseObject {
                    id,
                    phrase,
                    score: candidate.score,
                    probability: candidate.score,
                    object_score: None,
                    iou: None,
                    presence: self.phrases[phrase].presence,
                    mask: self.shown(&logits)?,
                });
                id += 1;
            }
            if !masks.is_empty() {
                self.tracker.give_masks(&masks)?;
            }
        }
        Ok(())
    }

    /// Runs of a mask at the size of the video.
    fn shown(&self, logits: &[f32]) -> Result<cutout_imaging::Rle, PhraseTrackError> {
        let side = self.side();
        let logits = Tensor::from_vec::<f32>([side, side], logits.to_vec())?;
        Ok(self.tracker.segment_of(&logits)?.rle()?)
    }
}

impl Candidate {
    fn detected(&self) -> Detected {
        Detected { score: self.score, mask: BitMask::of(&self.logits) }
    }
}
