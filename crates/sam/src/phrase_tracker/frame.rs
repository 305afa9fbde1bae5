//! One frame, in Meta's order: detect, match, renew, suppress, remember, begin, end.

use std::collections::BTreeSet;

use cutout_imaging::{Mask, Rle, Size, Upsampler, runs_above_zero};
use cutout_parallel::Pool;
use cutout_tensor::{Tensor, TensorError, memory};

use super::answer::{PhraseObject, UnfinishedFrame};
use super::decisions::{Decisions, Shown};
use super::hot_start::FrameStep;
use super::matching::{Detected, Tracked, suppress_duplicates};
use super::options::PhraseTrackError;
use super::query::Query;
use super::rules::Policy;
use super::shrinking::areas;
use super::{PhraseTracker, Track};
use crate::bits::BitMask;
use crate::find::{Looking, QueryLogits, Sighting, Sightings};
use crate::masks::{clear_islands, fill_holes};
use crate::tracker::{ObjectId, Settled, Sighted};

/// Logits of pixels that are filled, and cleared.
const FILLED: f32 = 0.1;
const CLEARED: f32 = -0.1;
/// Logit of all pixels of a mask that gives way.
const SUPPRESSED: f32 = -10.0;
/// Object score that is remembered for a mask with any pixel; the negative of it for an empty one.
const SURE: f32 = 10.0;
/// Frames for which it is known which masks were given by detections.
const RECENT: usize = 16;

/// What the detector says about one phrase on the current frame.
pub(super) struct Searched {
    /// Position of the phrase; `None` for the objects that a user pointed at, which are not looked for.
    pub(super) phrase: Option<usize>,
    /// `None` if the phrase was not looked for.
    pub(super) candidates: Option<Vec<Candidate>>,
}

/// A detection with its mask.
pub(super) struct Candidate {
    pub(super) score: f32,
    pub(super) logits: QueryLogits,
    pub(super) mask: BitMask,
    /// Whether it is not at the border of the picture.
    pub(super) central: bool,
}

/// An object on the current frame, as it is settled so far.
pub(super) struct Followed {
    pub(super) id: ObjectId,
    pub(super) logits: Vec<f32>,
    object_score: f32,
    iou: f32,
}

/// The answer of a frame.
pub(super) struct SettledFrame {
    pub(super) answer: UnfinishedFrame,
    /// Objects that ended.
    pub(super) removed: Vec<usize>,
    /// Objects that are not told yet.
    pub(super) unconfirmed: BTreeSet<usize>,
}

impl Searched {
    fn candidates(&self) -> &[Candidate] {
        self.candidates.as_deref().unwrap_or_default()
    }
}

impl Candidate {
    fn detected(&self) -> Detected {
        Detected { score: self.score, mask: self.mask.clone(), central: self.central }
    }
}

impl PhraseTracker {
    /// Decides about the current frame, on which this was found.
    pub(super) fn follow_frame(
        &mut self,
        step: FrameStep,
        found: Vec<Searched>,
    ) -> Result<SettledFrame, PhraseTrackError> {
        let (first, later): (Vec<Searched>, Vec<Searched>) = found.into_iter().partition(|one| {
            let query = one.phrase.map(|phrase| &self.queries[phrase]);
            one.candidates.is_some() && query.is_some_and(|query| !query.is_old)
        });
        if first.is_empty() {
            return self.settle(step, &later);
        }
        first.iter().filter_map(|one| one.phrase).for_each(|phrase| {
            self.queries[phrase].is_old = true;
        });
        let mut settled = self.settle(step, &first)?;
        if step.backward {
            let others = self.settle(step, &later)?;
            settled.answer.objects.extend(others.answer.objects);
            settled.removed.extend(others.removed);
            settled.unconfirmed.extend(others.unconfirmed);
            return Ok(settled);
        }
        // Meta's code runs the frame on which a phrase is given once to answer it and again when it goes on.
        self.tracker.mark_tracked(step.frame);
        let mut all: Vec<Searched> = first.into_iter().chain(later).collect();
        all.sort_by_key(|one| one.phrase.map_or(usize::MAX, |phrase| phrase));
        self.settle(step, &all)
    }

    fn settle(
        &mut self,
        step: FrameStep,
        found: &[Searched],
    ) -> Result<SettledFrame, PhraseTrackError> {
        let (decisions, followed) = self.settle_masks(step, found)?;
        self.settle_objects(step, found, &decisions, followed)
    }

    /// Decides about the current frame, and remembers it. Returns the decisions about each phrase and the masks that remain.
    pub(super) fn settle_masks(
        &mut self,
        step: FrameStep,
        found: &[Searched],
    ) -> Result<(Vec<Decisions>, Vec<Followed>), PhraseTrackError> {
        let mut followed = self.followed(found)?;
        let decisions: Vec<Decisions> =
            found.iter().map(|one| self.decide(one, step, &followed)).collect();
        self.renew(step, found, &decisions, &mut followed)?;
        for (one, decisions) in found.iter().zip(&decisions) {
            let Some(phrase) = one.phrase else { continue };
            let members = self.members(one.phrase, &followed);
            let tracks = tracked(&members, &followed);
            let policy = Policy { options: &self.options, rules: self.rules };
            let record = &mut self.queries[phrase].record;
            for position in record.suppress(step, &tracks, &decisions.removed, policy) {
                followed[members[position]].logits.fill(SUPPRESSED);
            }
        }
        self.remember(found, &followed)?;
        Ok((decisions, followed))
    }

    /// Starts and ends objects. Returns the answer of the frame and the objects that ended.
    pub(super) fn settle_objects(
        &mut self,
        step: FrameStep,
        found: &[Searched],
        decisions: &[Decisions],
        followed: Vec<Followed>,
    ) -> Result<SettledFrame, PhraseTrackError> {
        let mut answer = UnfinishedFrame::new(step.frame, self.tracker.size()?);
        self.enter_followed(&mut answer, followed)?;
        self.enter_new(&mut answer, found, decisions)?;
        let removed: Vec<usize> =
            decisions.iter().flat_map(|decisions| decisions.removed.iter().copied()).collect();
        let unconfirmed = decisions.iter().flat_map(|decisions| decisions.unconfirmed.clone());
        for id in &removed {
            self.tracker.remove(*id as ObjectId)?;
            self.tracks.remove(&(*id as ObjectId));
        }
        for track in self.tracks.values_mut() {
            track.given.retain(|frame| frame.abs_diff(step.frame) <= RECENT);
        }
        Ok(SettledFrame { answer, removed, unconfirmed: unconfirmed.collect() })
    }

    /// Begins to look for each phrase on the current frame.
    pub(super) fn look_for(&self, frame: usize) -> Result<Vec<Option<Looking>>, PhraseTrackError> {
        let (scene, threshold) = (self.tracker.scene()?, self.options.detection_threshold);
        let looking = |query: &Query| {
            let question = query.question(frame, threshold);
            Ok(question.map(|question| scene.look_for(question)).transpose()?)
        };
        self.queries.iter().map(looking).collect()
    }

    /// The detections of each phrase on the current frame, and an entry for the objects without a phrase.
    pub(super) fn searched(
        &mut self,
        looking: Vec<Option<Looking>>,
    ) -> Result<Vec<Searched>, PhraseTrackError> {
        let mut found = Vec::new();
        for (phrase, looking) in looking.into_iter().enumerate() {
            self.queries[phrase].presence = None;
            let mut candidates = None;
            if let Some(looking) = looking {
                let sighted = looking.fetch()?;
                self.queries[phrase].presence = Some(sighted.presence);
                candidates = Some(self.distinct(self.candidates(&looking, sighted)?));
            }
            found.push(Searched { phrase: Some(phrase), candidates });
        }
        found.push(Searched { phrase: None, candidates: None });
        Ok(found)
    }

    /// Detections without those that repeat a better one.
    pub(super) fn distinct(&self, candidates: Vec<Candidate>) -> Vec<Candidate> {
        let detected: Vec<Detected> = candidates.iter().map(Candidate::detected).collect();
        let kept = suppress_duplicates(&detected, self.policy());
        let numbered = candidates.into_iter().enumerate();
        numbered.filter(|(index, _)| kept.contains(index)).map(|(_, one)| one).collect()
    }

    /// The objects of these phrases that the tracker sees on the current frame, without small holes and islands.
    fn followed(&self, found: &[Searched]) -> Result<Vec<Followed>, PhraseTrackError> {
        let is_meant = |sighted: &Sighted| {
            let track = self.tracks.get(&sighted.id);
            track.is_some_and(|track| found.iter().any(|one| one.phrase == track.phrase))
        };
        let sighted: Vec<Sighted> = self.tracker.sighted().into_iter().filter(is_meant).collect();
        let (side, area) = (self.side(), self.options.fill_hole_area);
        let cleaned = self.pool().map(&sighted, |Sighted { id, logits, object_score, iou }| {
            let mut logits = logits.to_vec::<f32>()?;
            clean(&mut logits, side, area)?;
            Ok(Followed { id: *id, logits, object_score: *object_score, iou: *iou })
        });
        cleaned.into_iter().collect()
    }

    pub(super) fn clean(&self, logits: &mut [f32]) -> Result<(), PhraseTrackError> {
        Ok(clean(logits, self.side(), self.options.fill_hole_area)?)
    }

    /// Threads for work on the host.
    fn pool(&self) -> &Pool {
        self.tracker.sam().pool()
    }

    pub(super) fn policy(&self) -> Policy<'_> {
        Policy { options: &self.options, rules: self.rules }
    }

    /// Detections in the order of the detector's queries.
    fn candidates(
        &self,
        looking: &Looking,
        sighted: Sightings<BitMask>,
    ) -> Result<Vec<Candidate>, PhraseTrackError> {
        let Size { width, height } = self.tracker.size()?;
        let border = f64::from(self.rules.border);
        let inside = |centre: f64, length: usize| {
            let place = centre / length as f64;
            border == 0.0 || (border < place && place < 1.0 - border)
        };
        let candidate = |Sighting { query, score, rect, mask }: Sighting<BitMask>| {
            let central = inside((rect.x0 + rect.x1) / 2.0, width)
                && inside((rect.y0 + rect.y1) / 2.0, height);
            Candidate { score, mask, logits: looking.logits(query), central }
        };
        Ok(sighted.detections.into_iter().map(candidate).collect())
    }

    fn side(&self) -> usize {
        self.tracker.sam().model().config().mask_side()
    }

    /// Positions of the objects of a phrase.
    fn members(&self, phrase: Option<usize>, followed: &[Followed]) -> Vec<usize> {
        let is_member = |index: &usize| {
            self.tracks.get(&followed[*index].id).is_some_and(|track| track.phrase == phrase)
        };
        (0..followed.len()).filter(is_member).collect()
    }

    fn decide(&mut self, found: &Searched, step: FrameStep, followed: &[Followed]) -> Decisions {
        let Some(phrase) = found.phrase else { return Decisions::default() };
        let detections: Vec<Detected> =
            found.candidates().iter().map(Candidate::detected).collect();
        let tracks = tracked(&self.members(found.phrase, followed), followed);
        let numbers_left = (ObjectId::MAX - self.next_id) as usize;
        let room = self.options.max_objects.saturating_sub(self.tracks.len());
        let shown = Shown {
            detections: &detections,
            tracks: &tracks,
            next_id: self.next_id as usize,
            room: room.min(numbers_left),
            was_searched: found.candidates.is_some(),
        };
        let policy = Policy { options: &self.options, rules: self.rules };
        let decisions = self.queries[phrase].record.decide(step, &shown, policy);
        for index in &decisions.new {
            let score = found.candidates()[*index].score;
            let track = Track { phrase: found.phrase, score, given: vec![step.frame] };
            self.tracks.insert(self.next_id, track);
            self.next_id += 1;
        }
        decisions
    }

    /// Gives objects the masks of detections that surely show them.
    fn renew(
        &mut self,
        step: FrameStep,
        found: &[Searched],
        decisions: &[Decisions],
        followed: &mut [Followed],
    ) -> Result<(), PhraseTrackError> {
        let mut given = Vec::new();
        let every = self.options.recondition_every;
        if every == 0 || !step.frame.is_multiple_of(every) {
            return Ok(());
        }
        for (one, decisions) in found.iter().zip(decisions) {
            for (id, detection) in &decisions.renewing {
                let id = *id as ObjectId;
                let logits = &one.candidates()[*detection].logits.fetch()?;
                let sure = |one: &&mut Followed| {
                    one.id == id && one.object_score > self.options.recondition_logit
                };
                let Some(object) = followed.iter_mut().find(sure) else { continue };
                if self.rules.edits_masks {
                    object.agree_with(logits);
                }
                let mask = self.enlarged(logits)?;
                self.tracks.entry(id).and_modify(|track| track.given.push(step.frame));
                match self.rules.edits_masks {
                    // Objects that share a memory are renewed together.
                    true => given.push((id, mask)),
                    false => self.tracker.give_masks(&[(id, mask)])?,
                }
            }
        }
        if !given.is_empty() {
            self.tracker.give_masks(&given)?;
        }
        Ok(())
    }

    /// The mask of low-resolution logits, as large as the model takes masks.
    fn enlarged(&self, logits: &[f32]) -> Result<Mask, PhraseTrackError> {
        let side = self.side();
        let large = Size::square(4 * side);
        let upsampler = Upsampler::direct(Size::square(side), large)?;
        let mut pixels =
            memory::with_capacity(large.width * large.height).map_err(TensorError::from)?;
        upsampler.for_each_row(logits, |_, row| pixels.extend(row.iter().map(|it| *it > 0.0)))?;
        Ok(Mask::from_pixels(large, pixels)?)
    }

    /// Remembers the frame. A mask that loses most of its pixels to others of its phrase is remembered as hidden.
    fn remember(
        &mut self,
        found: &[Searched],
        followed: &[Followed],
    ) -> Result<(), PhraseTrackError> {
        let side = self.side();
        let mut settled = Vec::new();
        for one in found {
            let members = self.members(one.phrase, followed);
            let masks: Vec<&[f32]> =
                members.iter().map(|index| &followed[*index].logits[..]).collect();
            let may_shrink = self.rules.clears_lone_masks || masks.len() > 1;
            for (index, area) in members.iter().zip(areas(&masks, [side, 4 * side], self.pool())?) {
                let mut logits = followed[*index].logits.clone();
                if area.shrinks() && may_shrink {
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
        let masks = self.pool().map(&followed, {
            let upsampler = self.tracker.upsampler()?;
            move |object| runs_above_zero(&upsampler, &object.logits)
        });
        for (object, mask) in followed.into_iter().zip(masks) {
            let Some(track) = self.tracks.get(&object.id) else { continue };
            answer.objects.push(PhraseObject {
                id: object.id,
                phrase: track.phrase,
                score: track.score,
                probability: 1.0 / (1.0 + (-object.object_score).exp()),
                object_score: Some(object.object_score),
                iou: Some(object.iou),
                presence: track.phrase.and_then(|phrase| self.queries[phrase].presence),
                mask: mask?,
                logits: self.kept_logits(&object.logits)?,
            });
        }
        Ok(())
    }

    /// Starts the new objects of each phrase.
    fn enter_new(
        &mut self,
        answer: &mut UnfinishedFrame,
        found: &[Searched],
        decisions: &[Decisions],
    ) -> Result<(), PhraseTrackError> {
        let count: usize = decisions.iter().map(|decisions| decisions.new.len()).sum();
        let mut id = self.next_id - count as ObjectId;
        for (one, decisions) in found.iter().zip(decisions) {
            let mut masks = Vec::new();
            for index in &decisions.new {
                let candidate = &one.candidates()[*index];
                let mut logits = candidate.logits.fetch()?;
                masks.push((id, self.enlarged(&logits)?));
                self.clean(&mut logits)?;
                answer.objects.push(PhraseObject {
                    id,
                    phrase: one.phrase,
                    score: candidate.score,
                    probability: candidate.score,
                    object_score: None,
                    iou: None,
                    presence: one.phrase.and_then(|phrase| self.queries[phrase].presence),
                    mask: self.at_video_size(&logits)?,
                    logits: self.kept_logits(&logits)?,
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
    pub(super) fn at_video_size(&self, logits: &[f32]) -> Result<Rle, PhraseTrackError> {
        Ok(runs_above_zero(&*self.tracker.upsampler()?, logits)?)
    }

    /// The logits of an answer, if they are asked for.
    pub(super) fn kept_logits(&self, logits: &[f32]) -> Result<Option<Tensor>, PhraseTrackError> {
        self.options.logits.then(|| self.square(logits)).transpose()
    }

    fn square(&self, logits: &[f32]) -> Result<Tensor, PhraseTrackError> {
        Ok(Tensor::from_vec::<f32>([self.side(), self.side()], logits.to_vec())?)
    }
}

impl Followed {
    /// Takes the logits of a detection where it and the mask do not agree what belongs to the object.
    fn agree_with(&mut self, detection: &[f32]) {
        for (own, found) in self.logits.iter_mut().zip(detection) {
            if (*own > 0.0) != (*found > 0.0) {
                *own = *found;
            }
        }
    }
}

/// Logits of a mask without small holes and islands.
fn clean(logits: &mut [f32], side: usize, area: usize) -> Result<(), TensorError> {
    if area > 0 {
        fill_holes(logits, side, area, FILLED)?;
        clear_islands(logits, side, area, CLEARED)?;
    }
    Ok(())
}

/// Objects at these positions.
fn tracked(members: &[usize], followed: &[Followed]) -> Vec<Tracked> {
    let of = |index: &usize| Tracked {
        id: followed[*index].id as usize,
        mask: BitMask::of(&followed[*index].logits),
    };
    members.iter().map(of).collect()
}
