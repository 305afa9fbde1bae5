//! Prompts while a video is followed: phrases, exemplars, clicks and masks. What they do not name goes on as it was.

use cutout_imaging::Size;

use super::answer::PhraseObject;
use super::options::PhraseTrackError;
use super::query::Query;
use super::{PhraseTracker, Track};
use crate::find::{Find, FindError};
use crate::tracker::{ObjectId, TrackPrompt};

/// Frames around a click on which masks from detections no longer condition the object.
const NEAR_A_CLICK: usize = 16;

/// Score of an object that a user pointed at.
const CERTAIN: f32 = 1.0;

impl PhraseTracker {
    /// Looks for one more phrase from the next frame on. Returns its position among the phrases.
    pub fn add_phrase(&mut self, text: &str) -> Result<usize, PhraseTrackError> {
        let find = Find::phrase(text).threshold(self.options.detection_threshold);
        self.tracker.sam().check_find(&find, Size::square(1))?;
        self.queries.push(Query::new(Some(text)));
        Ok(self.queries.len() - 1)
    }

    /// Shows what is meant on a frame that is still to come: boxes and points, wanted or not. They count on that frame for the
    /// phrase at this position; without one they are looked for on that frame alone, and what they find is followed. Returns
    /// the position of the phrase.
    pub fn add_exemplars(
        &mut self,
        frame: usize,
        phrase: Option<usize>,
        exemplars: &Find,
    ) -> Result<usize, PhraseTrackError> {
        self.check_frame(frame)?;
        if !exemplars.phrases().is_empty() {
            return Err(PhraseTrackError::PhraseAmongExemplars);
        }
        let count = self.queries.len();
        if let Some(phrase) = phrase.filter(|phrase| *phrase >= count) {
            return Err(PhraseTrackError::UnknownPhrase { phrase, count });
        }
        match self.tracker.known_size() {
            Some(size) => self.tracker.sam().check_find(exemplars, size)?,
            // The places of exemplars are checked with the frame.
            None if exemplars.has_exemplars() => self.tracker.sam().check_finder()?,
            None => return Err(FindError::Nothing.into()),
        }
        let position = phrase.unwrap_or(count);
        if position == count {
            self.queries.push(Query::new(None));
        }
        self.queries[position].show(frame, exemplars);
        Ok(position)
    }

    /// Corrects an object on the current frame, or begins a new one, and returns it there. A new object has a number that was
    /// not used before: any from [`PhraseTracker::next_id`] on. An object that was pointed at is not removed for lack of
    /// detections.
    pub fn prompt<'p>(
        &mut self,
        frame: usize,
        id: ObjectId,
        prompt: impl Into<TrackPrompt<'p>>,
    ) -> Result<PhraseObject, PhraseTrackError> {
        self.check_frame(frame)?;
        let known = self.tracks.contains_key(&id);
        if !known {
            self.check_new(id)?;
        }
        let answer = self.tracker.prompt(frame, id, prompt)?;
        self.tracker.keep_prompts()?;
        if !known {
            let track = Track { phrase: None, score: CERTAIN, given: Vec::new() };
            self.tracks.insert(id, track);
            self.next_id = id + 1;
        }
        let object = self.pointed_at(id, frame, &answer.segment)?;
        if let Some(newest) = self.held.newest().filter(|newest| newest.frame() == frame) {
            newest.replace(object.clone());
        }
        Ok(object)
    }

    /// Checks a prompt against a video of this size, before any frame is encoded.
    pub fn check_prompt<'p>(
        &self,
        prompt: impl Into<TrackPrompt<'p>>,
        size: Size,
    ) -> Result<(), PhraseTrackError> {
        Ok(self.tracker.check_prompt(prompt, size)?)
    }

    /// The smallest id that a new object can have.
    pub fn next_id(&self) -> ObjectId {
        self.next_id
    }

    /// Ends an object, which is not in any answer from now on. Its number is not used again.
    pub fn remove(&mut self, id: ObjectId) -> Result<(), PhraseTrackError> {
        self.tracker.remove(id)?;
        if let Some(Track { phrase: Some(phrase), .. }) = self.tracks.remove(&id) {
            self.queries[phrase].record.forget(id as usize);
        }
        self.shown.remove(&id);
        self.held.hide(id as usize);
        Ok(())
    }

    fn check_new(&self, id: ObjectId) -> Result<(), PhraseTrackError> {
        let most = self.options.max_objects;
        if id < self.next_id {
            return Err(PhraseTrackError::Ended { id, next: self.next_id });
        }
        if self.tracks.len() >= most {
            return Err(PhraseTrackError::Full { most });
        }
        // The number after the last one is the next.
        id.checked_add(1).map(drop).ok_or(PhraseTrackError::Ended { id, next: self.next_id })
    }

    /// Notes that a user pointed at an object, and returns it as it is now.
    fn pointed_at(
        &mut self,
        id: ObjectId,
        frame: usize,
        segment: &crate::masks::Segment,
    ) -> Result<PhraseObject, PhraseTrackError> {
        let track = self.tracks.get_mut(&id).expect("entered before");
        track.score = CERTAIN;
        let near = |other: &usize| *other != frame && other.abs_diff(frame) <= NEAR_A_CLICK;
        let demoted: Vec<usize> = track.given.iter().copied().filter(near).collect();
        track.given.retain(|other| !demoted.contains(other));
        let phrase = track.phrase;
        self.tracker.demote(id, &demoted)?;
        if let Some(phrase) = phrase {
            self.queries[phrase].record.confirm(id as usize);
        }
        let mut logits = segment.logits().to_vec::<f32>()?;
        self.clean(&mut logits)?;
        Ok(PhraseObject {
            id,
            phrase,
            score: CERTAIN,
            probability: CERTAIN,
            object_score: segment.object_score(),
            iou: Some(segment.iou()),
            presence: phrase.and_then(|phrase| self.queries[phrase].presence),
            mask: self.at_video_size(&logits)?,
            logits: self.kept_logits(&logits)?,
        })
    }
}
