//! Every object of a phrase through a video: found, followed and numbered.
//!
//! On each frame the detector looks for the phrases and the tracker follows the objects that are known, both from one run of the
//! image encoder. What both say is put together in Meta's order: `matching`, then new objects and those on probation
//! (`hot_start`), renewed objects, and masks that give way (`occlusion`, `shrinking`) before the frame is remembered.
//! Objects of different phrases have nothing to do with each other, nor have objects that a user pointed at.

mod answer;
#[cfg(test)]
mod clip_tests;
mod confirmation;
mod decisions;
mod frame;
mod held_back;
mod hot_start;
mod matching;
mod occlusion;
mod options;
#[cfg(test)]
mod prompt_tests;
mod prompts;
mod query;
mod rules;
mod shrinking;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing_tests;
#[cfg(test)]
mod whole_tests;

use std::collections::BTreeMap;

use cutout_imaging::Image;

pub use answer::{PhraseFrame, PhraseObject, TakenBack};
pub use options::{PhraseOptions, PhraseTrackError};

use crate::sam::Sam;
use crate::tracker::{Direction, Kept, ObjectId, TrackError, TrackOptions, Tracker};
use answer::UnfinishedFrame;
use frame::SettledFrame;
use held_back::HeldBack;
use hot_start::FrameStep;
use query::Query;
use rules::PhraseRules;

/// Number of the first object: 0 is the background of label pictures.
const FIRST_ID: ObjectId = 1;

/// Every object of some phrases through a video.
///
/// ```no_run
/// use cutout_sam::{Sam, imaging};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let frames: Vec<imaging::Image> = Vec::new();
/// let sam = Sam::open("sam3.pt")?;
/// let mut track = sam.track_phrases(&["car", "person in red"], sam.phrase_options())?;
/// for frame in &frames {
///     if let Some(found) = track.push(frame)? {
///         found.objects.iter().for_each(|object| println!("{} {}", found.frame, object.id));
///     }
/// }
/// track.add_phrase("bicycle")?; // from the next frame on; the others go on
/// while let Some(found) = track.finish()? {
///     println!("{} {}", found.frame, found.objects.len());
/// }
/// # Ok(())
/// # }
/// ```
pub struct PhraseTracker {
    tracker: Tracker,
    options: PhraseOptions,
    rules: PhraseRules,
    queries: Vec<Query>,
    tracks: BTreeMap<ObjectId, Track>,
    next_id: ObjectId,
    held: HeldBack<UnfinishedFrame>,
    /// The frame that was followed last, and its direction.
    last: Option<(usize, Direction)>,
    /// First and last frame on which each object was shown.
    shown: BTreeMap<ObjectId, (usize, usize)>,
    taken_back: Vec<TakenBack>,
}

/// What is known of a followed object besides its masks.
#[derive(Clone, Debug)]
struct Track {
    /// Position of its phrase; `None` for an object that a user pointed at.
    phrase: Option<usize>,
    /// Probability of the detection that started it; 1 if a user pointed at it.
    score: f32,
    /// Recent frames on which a detection gave it its mask.
    given: Vec<usize>,
}

impl Sam {
    /// Begins to find and follow the objects of phrases through a video. Without a phrase, give exemplars or clicks to the
    /// tracker.
    pub fn track_phrases(
        &self,
        phrases: &[&str],
        options: PhraseOptions,
    ) -> Result<PhraseTracker, PhraseTrackError> {
        options.check()?;
        self.check_finder()?;
        let rules = self.phrase_rules();
        let track = TrackOptions {
            length: options.length,
            history: options.history.clone(),
            ..TrackOptions::default()
        };
        let mut tracker = PhraseTracker {
            tracker: self.track(track)?,
            held: HeldBack::new(options.frames_after(), rules.confirmations.saturating_sub(1)),
            rules,
            queries: Vec::new(),
            tracks: BTreeMap::new(),
            next_id: FIRST_ID,
            last: None,
            shown: BTreeMap::new(),
            taken_back: Vec::new(),
            options,
        };
        for phrase in phrases {
            tracker.add_phrase(phrase)?;
        }
        Ok(tracker)
    }
}

impl PhraseTracker {
    /// Finds and follows objects on the next frame. Returns a frame that is settled now: none while answers are held back,
    /// later one for each.
    pub fn push(&mut self, image: &Image) -> Result<Option<PhraseFrame>, PhraseTrackError> {
        let frame = self.last.map_or(0, |(frame, _)| frame + 1);
        self.step(frame, image, Direction::Forward)?;
        self.ready()
    }

    /// Finds and follows objects on the frame before the last one.
    pub fn push_back(&mut self, image: &Image) -> Result<Option<PhraseFrame>, PhraseTrackError> {
        let (last, _) = self.last.ok_or(TrackError::NoFrame)?;
        let frame = last.checked_sub(1).ok_or(TrackError::BeforeTheFirst)?;
        self.step(frame, image, Direction::Backward)?;
        self.ready()
    }

    /// Finds and follows objects on any frame. Its answer can still be changed by [`PhraseTracker::prompt`] and
    /// [`PhraseTracker::remove`] before [`PhraseTracker::ready`] is called. If the direction is another one than before, the
    /// answers that are held back are settled.
    pub fn step(
        &mut self,
        frame: usize,
        image: &Image,
        direction: Direction,
    ) -> Result<(), PhraseTrackError> {
        self.check_frame(frame)?;
        let following = self.tracker.look(frame, image, direction, self.options.goes_back)?;
        if self.last.is_some_and(|(_, last)| last != direction) {
            self.held.settle();
            self.queries.iter_mut().for_each(Query::turn);
        }
        self.last = Some((frame, direction));
        let step = FrameStep { frame, backward: direction == Direction::Backward };
        let looking = self.look_for(frame)?;
        // The device works on the next frame while the host decides about this one.
        self.tracker.encode_next();
        self.tracker.finish_following(following)?;
        let found = self.searched(looking)?;
        let SettledFrame { answer, removed, unconfirmed } = self.follow_frame(step, found)?;
        self.queries.iter_mut().for_each(|query| query.passed(frame));
        for id in &removed {
            if let Some((first, last)) = self.shown.remove(&(*id as ObjectId)) {
                self.taken_back.push(TakenBack { id: *id as ObjectId, first, last });
            }
        }
        self.held.push(answer, &removed, unconfirmed);
        Ok(())
    }

    /// Encodes a frame, and the one after it ahead of time, as [`Tracker::look_ahead`]. Call it before [`PhraseTracker::step`] of the frame.
    /// Results do not change.
    pub fn look_ahead(
        &mut self,
        frame: usize,
        image: &Image,
        next: &Image,
    ) -> Result<(), PhraseTrackError> {
        self.check_frame(frame)?;
        self.tracker.visit(frame, image)?;
        self.tracker.look_ahead(next);
        Ok(())
    }

    /// The next frame that is settled, if there is one.
    pub fn ready(&mut self) -> Result<Option<PhraseFrame>, PhraseTrackError> {
        let ready = self.held.ready();
        ready.map(|(answer, hidden)| self.shown(answer, &hidden)).transpose()
    }

    /// The frames that are still held back, one at a time, oldest first. Call it until it returns `None`.
    pub fn finish(&mut self) -> Result<Option<PhraseFrame>, PhraseTrackError> {
        let held = self.held.show();
        held.map(|(answer, hidden)| self.shown(answer, &hidden)).transpose()
    }

    /// Makes `frame` the current frame without following objects on it, so that it can take prompts.
    pub fn visit(&mut self, frame: usize, image: &Image) -> Result<(), PhraseTrackError> {
        self.check_frame(frame)?;
        Ok(self.tracker.visit(frame, image)?)
    }

    /// Objects that are followed now.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.tracks.keys().copied()
    }

    /// Frames whose answers are held back.
    pub fn held_back(&self) -> usize {
        self.held.len()
    }

    /// What is kept now.
    pub fn kept(&self) -> Kept {
        let held = self.held.iter().map(UnfinishedFrame::bytes).sum::<usize>();
        let kept = self.tracker.kept();
        Kept { held_back: self.held.len(), bytes: kept.bytes + held, ..kept }
    }

    fn check_frame(&self, frame: usize) -> Result<(), PhraseTrackError> {
        match self.options.length {
            Some(length) if frame >= length => Err(PhraseTrackError::Beyond { frame, length }),
            Some(_) | None => Ok(()),
        }
    }

    /// What is told of a frame.
    fn shown(
        &mut self,
        answer: UnfinishedFrame,
        hidden: &std::collections::BTreeSet<usize>,
    ) -> Result<PhraseFrame, PhraseTrackError> {
        let phrases = self.queries.iter().map(|query| query.name().to_owned()).collect();
        let taken_back = std::mem::take(&mut self.taken_back);
        let finished = answer.finish(hidden, phrases, taken_back)?;
        for object in finished.objects.iter().filter(|object| self.tracks.contains_key(&object.id))
        {
            let frames = self.shown.entry(object.id).or_insert((finished.frame, finished.frame));
            *frames = (frames.0.min(finished.frame), frames.1.max(finished.frame));
        }
        Ok(finished)
    }
}
