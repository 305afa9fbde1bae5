//! Steps of tracking. All of them run on the inference thread.

use std::collections::VecDeque;

use cutout_imaging::Rle;
use cutout_sam::{
    Direction, History, ObjectId, PhraseFrame, PhraseOptions, PhraseTracker, Prompt, Sam,
    TrackOptions, TrackedObject, Tracker,
};
use cutout_video::{FoundObject, ObjectMask};

use super::{Clip, Marks};
use crate::api::prompt_from;
use crate::engine::Turn;
use crate::options::Limits;
use crate::problem::Problem;

/// What a model remembers of a clip.
pub(crate) struct Tracking {
    tracker: Tracker,
}

/// What a job has to work with on the inference thread.
#[derive(Clone, Copy)]
pub(crate) struct Means<'a> {
    pub(crate) sam: &'a Sam,
    pub(crate) limits: &'a Limits,
    pub(crate) turn: &'a Turn,
}

/// A mask of a frame, for answers.
#[derive(Clone, Debug)]
pub(crate) struct Masked {
    pub(crate) object: ObjectId,
    pub(crate) rle: Rle,
    /// Predicted IoU.
    pub(crate) score: f32,
    /// Logit of the object being visible.
    pub(crate) object_score: Option<f32>,
    /// How it was found, if it was not pointed at.
    pub(crate) found: Option<FoundObject>,
}

impl Masked {
    fn of(tracked: &TrackedObject) -> Result<Self, Problem> {
        Ok(Masked {
            object: tracked.id,
            rle: tracked.segment.rle()?,
            score: tracked.segment.iou(),
            object_score: tracked.segment.object_score(),
            found: None,
        })
    }

    /// The mask as it is written into files.
    pub(crate) fn for_files(&self) -> ObjectMask {
        let score = match &self.found {
            Some(found) => found.detection_score,
            None => self.object_score.unwrap_or(0.0),
        };
        ObjectMask { id: self.object, mask: self.rle.clone(), score, found: self.found.clone() }
    }
}

impl Tracking {
    /// A tracker that has the prompts of a clip. An error between two frames when nobody waits any more.
    fn new(clip: &Clip, means: Means<'_>) -> Result<Self, Problem> {
        let Means { sam, limits, turn } = means;
        clip.frames.clear_history();
        // What is out of reach is kept on disk for clips that are short enough, so that any frame can be corrected.
        let history = match clip.frames.count() <= limits.history_frames {
            true => History::Disk(clip.frames.history()?),
            false => History::Recent,
        };
        let length = Some(clip.frames.count());
        let mut tracker = sam.track(TrackOptions { length, history, ..TrackOptions::default() })?;
        for (frame, objects) in clip.prompts() {
            turn.check()?;
            tracker.visit(frame, &clip.frames.read(frame)?)?;
            for (object, marks) in objects {
                tracker.prompt(frame, object, &prompt_of(&marks)?)?;
            }
        }
        Ok(Tracking { tracker })
    }

    /// The memory of a clip, made from its prompts where there is none.
    fn of<'t>(
        kept: &'t mut Option<Tracking>,
        clip: &Clip,
        means: Means<'_>,
    ) -> Result<&'t mut Tracking, Problem> {
        if kept.is_none() {
            *kept = Some(Tracking::new(clip, means)?);
        }
        kept.as_mut().ok_or_else(|| Problem::Internal("there is no tracker".to_owned()))
    }
}

fn prompt_of(marks: &Marks) -> Result<Prompt, Problem> {
    prompt_from(&marks.points, marks.rect)
}

impl Clip {
    /// Gives a prompt and returns the mask on its frame. `anew` forgets the answers to earlier prompts, of which a later one
    /// is a refinement. Without an answer the marks stay as they were.
    pub(crate) fn prompt(
        &self,
        (frame, object): (usize, ObjectId),
        marks: Marks,
        anew: bool,
        means: Means<'_>,
    ) -> Result<Masked, Problem> {
        let prompt = prompt_of(&marks)?;
        // A wrong prompt is refused before anything is forgotten.
        means.sam.track(TrackOptions::default())?.check_prompt(&prompt, self.frames.size())?;
        let mut kept = self.tracking();
        let before = self.marks(frame, object).filter(|_| anew);
        if anew {
            *kept = None;
            self.forget_prompt(frame, object);
        }
        let answer = self.answer(&mut kept, (frame, object), &prompt, means);
        if answer.is_ok() {
            self.note_prompt(frame, object, marks);
        } else if anew {
            // It is made again from all marks.
            *kept = None;
            before.into_iter().for_each(|before| self.note_prompt(frame, object, before));
        }
        answer
    }

    /// The mask that a prompt would have, for the pointer to show. Nothing is remembered, but the features of the frame serve a prompt
    /// that follows.
    pub(crate) fn preview(
        &self,
        (frame, object): (usize, ObjectId),
        marks: &Marks,
        means: Means<'_>,
    ) -> Result<Masked, Problem> {
        // A run may have begun while this waited.
        self.check_idle()?;
        let prompt = prompt_of(marks)?;
        let mut kept = self.tracking();
        let tracking = Tracking::of(&mut kept, self, means)?;
        means.turn.check()?;
        tracking.tracker.visit(frame, &self.frames.read(frame)?)?;
        means.turn.check()?;
        Masked::of(&tracking.tracker.preview(frame, object, &prompt)?)
    }

    /// The mask of a prompt, which the model remembers.
    fn answer(
        &self,
        kept: &mut Option<Tracking>,
        (frame, object): (usize, ObjectId),
        prompt: &Prompt,
        means: Means<'_>,
    ) -> Result<Masked, Problem> {
        let tracking = Tracking::of(kept, self, means)?;
        means.turn.check()?;
        tracking.tracker.visit(frame, &self.frames.read(frame)?)?;
        means.turn.check()?;
        let answer = Masked::of(&tracking.tracker.prompt(frame, object, prompt)?)?;
        self.keep(frame, [answer.for_files()], means.limits.mask_bytes)?;
        Ok(answer)
    }

    /// Takes the prompts of an object on a frame back. An object without prompts is removed.
    pub(crate) fn take_back(&self, frame: usize, object: ObjectId) -> Result<(), Problem> {
        let mut kept = self.tracking();
        match (self.forget_prompt(frame, object), &mut *kept) {
            (None, _) => {
                Err(Problem::Missing(format!("no prompt of object {object} on frame {frame}")))
            }
            (Some(true), Some(tracking)) => Ok(tracking.tracker.clear_prompts(frame, object)?),
            (Some(true), None) => Ok(()),
            (Some(false), _) => {
                drop(kept);
                self.remove_object(object)
            }
        }
    }

    /// Forgets an object, its prompts and its masks.
    pub(crate) fn remove_object(&self, object: ObjectId) -> Result<(), Problem> {
        let mut kept = self.tracking();
        let was_known = self.forget_object(object);
        if let Some(tracking) = &mut *kept
            && tracking.tracker.objects().any(|id| id == object)
        {
            tracking.tracker.remove(object)?;
            return Ok(());
        }
        if was_known { Ok(()) } else { Err(Problem::Missing(format!("no object {object}"))) }
    }

    /// Tracks the objects on a frame and keeps their masks.
    pub(crate) fn step(
        &self,
        frame: usize,
        direction: Direction,
        means: Means<'_>,
    ) -> Result<Vec<Masked>, Problem> {
        let limits = means.limits;
        let mut kept = self.tracking();
        let tracking = Tracking::of(&mut kept, self, means)?;
        means.turn.check()?;
        let tracked = tracking.tracker.push_at(frame, &self.frames.read(frame)?, direction)?;
        let masks = tracked.objects.iter().map(Masked::of).collect::<Result<Vec<_>, _>>()?;
        self.keep(frame, masks.iter().map(Masked::for_files), limits.mask_bytes)?;
        if self.frames.history_bytes() > limits.history_bytes {
            return Err(Problem::Invalid(format!(
                "what the model remembers of this clip needs more than {} bytes: track fewer objects, or a shorter clip",
                limits.history_bytes
            )));
        }
        Ok(masks)
    }
}

/// A run that looks for phrases.
pub(crate) struct PhraseRun {
    tracker: PhraseTracker,
    /// Frames that are settled and not asked for yet.
    settled: VecDeque<PhraseFrame>,
}

impl PhraseRun {
    pub(crate) fn new(
        clip: &Clip,
        sam: &Sam,
        phrases: &[String],
        (threshold, goes_back): (Option<f32>, bool),
    ) -> Result<Self, Problem> {
        let usual = sam.phrase_options();
        let options = PhraseOptions {
            length: Some(clip.frames.count()),
            detection_threshold: threshold.unwrap_or(usual.detection_threshold),
            goes_back,
            ..usual
        };
        let phrases: Vec<&str> = phrases.iter().map(String::as_str).collect();
        Ok(PhraseRun { tracker: sam.track_phrases(&phrases, options)?, settled: VecDeque::new() })
    }

    /// Shows the model a frame; after the last one of the run, settles what is held back.
    pub(crate) fn show(
        &mut self,
        clip: &Clip,
        (frame, direction): (usize, Direction),
        is_last: bool,
    ) -> Result<(), Problem> {
        self.tracker.step(frame, &clip.frames.read(frame)?, direction)?;
        while let Some(answer) = self.tracker.ready()? {
            self.settled.push_back(answer);
        }
        while is_last && let Some(answer) = self.tracker.finish()? {
            self.settled.push_back(answer);
        }
        Ok(())
    }

    /// The next frame that is settled, kept for files.
    pub(crate) fn take(
        &mut self,
        clip: &Clip,
        limits: &Limits,
    ) -> Result<Option<(usize, Vec<Masked>)>, Problem> {
        let Some(answer) = self.settled.pop_front() else { return Ok(None) };
        let masked = |object: &cutout_sam::PhraseObject| Masked {
            object: object.id,
            rle: object.mask.clone(),
            score: object.probability,
            object_score: object.object_score,
            found: Some(FoundObject {
                phrase: answer.phrase_of(object).map(str::to_owned),
                detection_score: object.score,
                probability: object.probability,
                predicted_iou: object.iou,
                presence: object.presence,
                object_score: object.object_score,
            }),
        };
        let masks: Vec<Masked> = answer.objects.iter().map(masked).collect();
        clip.keep(answer.frame, masks.iter().map(Masked::for_files), limits.mask_bytes)?;
        Ok(Some((answer.frame, masks)))
    }
}
