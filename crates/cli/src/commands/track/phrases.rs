//! `cutout track --text`: every object of a phrase.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroUsize;

use anyhow::{Context, Result, bail};
use clap::Args;
use cutout_imaging::Image;
use cutout_sam::{
    Direction, History, PhraseFrame, PhraseObject, PhraseOptions, PhraseTrackError, PhraseTracker,
    Sam,
};
use cutout_video::{FoundObject, FrameResult, FrameSource, ObjectMask, open};

use super::outputs::{Places, Writers, overlay_options};
use super::recorded::Recorded;
use super::run::{note_kept, note_kept_at_the_end};
use super::{Track, earlier};
use crate::failure::Usage;
use crate::interrupt;
use crate::progress::Progress;
use crate::prompts::parse_share;

/// Flags of phrases.
#[derive(Args)]
#[command(next_help_heading = "Phrases (SAM 3, 3.1)")]
pub(super) struct PhraseFlags {
    /// Ignore detections with at most this probability
    #[arg(long, value_name = "SCORE", value_parser = parse_share, allow_negative_numbers = true)]
    detection_threshold: Option<f32>,
    /// Least probability of a detection that starts a new object while others are followed
    #[arg(long, value_name = "SCORE", value_parser = parse_share, allow_negative_numbers = true)]
    new_object_threshold: Option<f32>,
    /// Watch a new object for this many frames: if detections do not confirm it, it is no object
    #[arg(long, value_name = "FRAMES", conflicts_with = "instant")]
    delay: Option<usize>,
    /// Answer a frame when this many frames have followed it; by default when it is sure what is in it. With 0, what is seen
    /// now; a line of the .jsonl file says later what was no object
    #[arg(long, value_name = "FRAMES")]
    latency: Option<usize>,
    /// Answer each frame at once; nothing is taken back
    #[arg(long)]
    instant: bool,
    /// Renew objects by detections every so many frames; 0 for never
    #[arg(long, value_name = "FRAMES")]
    recondition_every: Option<usize>,
    /// Follow at most this many objects at a time
    #[arg(long, value_name = "N")]
    max_objects: Option<NonZeroUsize>,
}

impl PhraseFlags {
    /// Returns an error for a flag that has a meaning with phrases only.
    pub(super) fn check_unused(&self) -> Result<()> {
        let given = [
            (self.detection_threshold.is_some(), "--detection-threshold"),
            (self.new_object_threshold.is_some(), "--new-object-threshold"),
            (self.delay.is_some(), "--delay"),
            (self.latency.is_some(), "--latency"),
            (self.instant, "--instant"),
            (self.recondition_every.is_some(), "--recondition-every"),
            (self.max_objects.is_some(), "--max-objects"),
        ];
        match given.into_iter().find(|(given, _)| *given) {
            Some((_, flag)) => Err(Usage::error(format!("{flag} needs --text or --exemplar"))),
            None => Ok(()),
        }
    }

    /// Those of the model, as the flags change them.
    fn options(&self, usual: PhraseOptions) -> PhraseOptions {
        let usual = if self.instant { usual.at_once() } else { usual };
        PhraseOptions {
            latency: self.latency,
            detection_threshold: self.detection_threshold.unwrap_or(usual.detection_threshold),
            new_object_threshold: self.new_object_threshold.unwrap_or(usual.new_object_threshold),
            delay: self.delay.unwrap_or(usual.delay),
            recondition_every: self.recondition_every.unwrap_or(usual.recondition_every),
            max_objects: self.max_objects.map_or(usual.max_objects, NonZeroUsize::get),
            ..usual
        }
    }
}

impl Track {
    /// Follows the objects of phrases.
    pub(super) fn run_phrases(&self) -> Result<()> {
        let places = self.outputs.places(&self.video);
        self.prompts.check_conflicts()?;
        if self.resume {
            return Err(Usage::error("--resume cannot be used with --text and --exemplar"));
        }
        self.check_frames()?;
        let options = self.open_options();
        let model = self.model.source()?;
        self.claim(&mut self.run.claims(&model), &places)?;
        let source = open(&self.video, &options)?;
        let sam = model.start(&self.run)?;
        let tracker = sam.track_phrases(&[], self.phrase_options(&sam, &*source, &places));
        let tracker = tracker.with_context(|| model.shown())?;
        let overlay = overlay_options(source.frame_rate(), options.tools);
        let length = source.length();
        let again = self.reverse || self.both;
        let mut recorded = Recorded::new(source, again)?;
        let (first, last) = self.prompts.frames();
        if let Some(length) = length.filter(|length| last >= *length) {
            return Err(PhraseTrackError::Beyond { frame: last, length }.into());
        }
        let start = if self.reverse { last } else { first };
        let image = recorded.frame(start)?;
        // Errors in prompts are reported before the slow part and before existing results are overwritten.
        self.prompts.asked().check(&sam, image.size())?;
        self.prompts
            .check_each(image.size(), |prompt, size| Ok(tracker.check_prompt(prompt, size)?))?;
        self.make_history()?;
        let writers = places.open(0, &overlay)?;
        earlier::remove_other_frames(&places, &BTreeSet::new())?;
        interrupt::finish_gracefully();
        let progress = self.phrase_progress(length);
        let mut run = PhraseRun::new(tracker, writers, progress);
        run.looks_ahead = self.look_ahead.is_wanted(&sam, self.is_live());
        let result = self.both_ways((start, image), &mut recorded, &mut run);
        // What was followed is complete even if the run is interrupted, or a frame is broken.
        let flushed = run.flush();
        self.end_phrases(run, result.and(flushed), &places)
    }

    fn end_phrases(&self, run: PhraseRun, result: Result<()>, places: &Places) -> Result<()> {
        let PhraseRun { writers, progress, tracker, written, .. } = run;
        let finished = writers.finish();
        drop(progress);
        note_kept_at_the_end(self.verbose, || tracker.kept());
        let result = result.and(finished).and_then(|()| interrupt::check());
        if let (Err(_), Some(frame)) = (&result, written) {
            places.note_partial(frame);
        }
        result?;
        places.note_written();
        Ok(())
    }

    fn phrase_options(
        &self,
        sam: &Sam,
        source: &dyn FrameSource,
        places: &Places,
    ) -> PhraseOptions {
        let options = self.phrases.options(sam.phrase_options());
        PhraseOptions {
            length: source.length(),
            history: self.history.clone().map_or(History::Recent, History::Disk),
            goes_back: self.both,
            logits: places.has_raw(),
            fill_hole_area: self.fill_hole_area.unwrap_or(options.fill_hole_area),
            ..options
        }
    }

    fn phrase_progress(&self, length: Option<usize>) -> Progress {
        match length {
            Some(length) => Progress::bar(length.min(self.most_frames()) as u64, "frames"),
            None => Progress::spinner("frames"),
        }
    }

    /// Follows the video forward, then backward, as asked. `start` is the first frame.
    fn both_ways(
        &self,
        (start, image): (usize, Image),
        recorded: &mut Recorded,
        run: &mut PhraseRun,
    ) -> Result<()> {
        let way = if self.reverse { Direction::Backward } else { Direction::Forward };
        let mut next = Some((start, image));
        while let Some((frame, image)) = next {
            let more = run.looks_ahead && run.done + 1 < self.most_frames();
            // An error of the next frame is reported after the current one is written.
            let after = (more && way == Direction::Forward).then(|| recorded.after(frame));
            let following = after.as_ref().and_then(|after| after.as_ref().ok()?.as_ref());
            self.one_frame((frame, image), following, way, run)?;
            next = match (way, after) {
                _ if self.is_over(run) => None,
                (Direction::Forward, Some(after)) => after?.map(|image| (frame + 1, image)),
                (Direction::Forward, None) => {
                    recorded.after(frame)?.map(|image| (frame + 1, image))
                }
                (Direction::Backward, _) => self.before(frame, recorded)?,
            };
        }
        if self.is_over(run) {
            return Ok(());
        }
        self.check_reached(run)?;
        let mut next = if self.both { self.before(start, recorded)? } else { None };
        while let Some((frame, image)) = next {
            self.one_frame((frame, image), None, Direction::Backward, run)?;
            next = if self.is_over(run) { None } else { self.before(frame, recorded)? };
        }
        Ok(())
    }

    fn before(&self, frame: usize, recorded: &mut Recorded) -> Result<Option<(usize, Image)>> {
        let before = frame.checked_sub(1);
        before.map(|frame| Ok((frame, recorded.frame(frame)?))).transpose()
    }

    fn is_over(&self, run: &PhraseRun) -> bool {
        run.done >= self.most_frames() || interrupt::requested()
    }

    /// Returns an error if the video ended before a frame with a prompt.
    fn check_reached(&self, run: &PhraseRun) -> Result<()> {
        let (_, last) = self.prompts.frames();
        match run.highest {
            Some(highest) if last > highest => bail!(
                "{}: the video ends after {} frames, before the prompt on frame {last}",
                self.video.display(),
                highest + 1
            ),
            Some(_) | None => Ok(()),
        }
    }

    /// Follows one frame; `following` is encoded meanwhile.
    fn one_frame(
        &self,
        (frame, image): (usize, Image),
        following: Option<&Image>,
        way: Direction,
        run: &mut PhraseRun,
    ) -> Result<()> {
        let asked = self.prompts.asked();
        asked.ask(&mut run.tracker, frame, &mut run.known)?;
        if let Some(following) = following {
            run.tracker.look_ahead(frame, &image, following)?;
        }
        run.tracker.step(frame, &image, way)?;
        run.waiting.push_back(image);
        run.highest = run.highest.max(Some(frame));
        self.prompts.each_object(frame, |object, prompt| {
            Ok(run.tracker.prompt(frame, object, prompt).map(drop)?)
        })?;
        asked.remove(&mut run.tracker, frame)?;
        run.done += 1;
        note_kept(self.verbose, run.done, || run.tracker.kept());
        run.progress.set(run.done as u64);
        run.progress.say(format!("{} objects", run.tracker.objects().count()));
        while let Some(answer) = run.tracker.ready()? {
            run.write(&answer)?;
        }
        Ok(())
    }
}

struct PhraseRun {
    tracker: PhraseTracker,
    writers: Writers,
    progress: Progress,
    /// Frames whose answers are held back.
    waiting: VecDeque<Image>,
    /// Positions of the phrases that were given to the tracker, by their position on the command line.
    known: BTreeMap<usize, usize>,
    /// Whether the next frame is encoded while one is followed.
    looks_ahead: bool,
    /// Frames that were followed.
    done: usize,
    /// The last frame of the video that was followed.
    highest: Option<usize>,
    /// The last frame that was written.
    written: Option<usize>,
}

impl PhraseRun {
    fn new(tracker: PhraseTracker, writers: Writers, progress: Progress) -> Self {
        PhraseRun {
            tracker,
            writers,
            progress,
            waiting: VecDeque::new(),
            known: BTreeMap::new(),
            looks_ahead: false,
            done: 0,
            highest: None,
            written: None,
        }
    }

    /// Writes what is held back.
    fn flush(&mut self) -> Result<()> {
        while let Some(answer) = self.tracker.finish()? {
            self.write(&answer)?;
        }
        Ok(())
    }

    fn write(&mut self, answer: &PhraseFrame) -> Result<()> {
        let Some(image) = self.waiting.pop_front() else { return Ok(()) };
        answer.taken_back.iter().try_for_each(|taken| self.writers.take_back(taken))?;
        let object = |object: &PhraseObject| ObjectMask {
            id: object.id,
            mask: object.mask.clone(),
            score: object.score,
            found: Some(FoundObject {
                phrase: answer.phrase_of(object).map(str::to_owned),
                detection_score: object.score,
                probability: object.probability,
                predicted_iou: object.iou,
                presence: object.presence,
                object_score: object.object_score,
            }),
        };
        let objects: Vec<ObjectMask> = answer.objects.iter().map(object).collect();
        let result = FrameResult { index: answer.frame, image: &image, objects: &objects };
        self.writers.write_phrases(&result, answer)?;
        self.written = Some(answer.frame);
        Ok(())
    }
}
