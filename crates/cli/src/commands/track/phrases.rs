//! `cutout track --text`: every object of a phrase.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroUsize;

use anyhow::{Context, Result};
use clap::Args;
use cutout_imaging::Image;
use cutout_sam::{PhraseFrame, PhraseOptions, PhraseTracker};
use cutout_video::{FoundObject, FrameResult, FrameSource, ObjectMask, open};

use super::outputs::{Places, Writers, overlay_options};
use super::recorded::Recorded;
use super::{Track, earlier};
use crate::failure::Usage;
use crate::interrupt;
use crate::progress::Progress;
use crate::prompts::parse_share;

/// Flags of phrases.
#[derive(Args)]
#[command(next_help_heading = "Phrases (SAM 3)")]
pub(super) struct PhraseFlags {
    /// Find, follow and number every object that this phrase describes. Repeat for more phrases
    #[arg(long, value_name = "PHRASE")]
    text: Vec<String>,
    /// Ignore detections with at most this probability
    #[arg(long, value_name = "SCORE", value_parser = parse_share, requires = "text", allow_negative_numbers = true)]
    detection_threshold: Option<f32>,
    /// Least probability of a detection that starts a new object while others are followed
    #[arg(long, value_name = "SCORE", value_parser = parse_share, requires = "text", allow_negative_numbers = true)]
    new_object_threshold: Option<f32>,
    /// Hold answers back for this many frames, so that what turns out to be no object is not in them
    #[arg(long, value_name = "FRAMES", requires = "text", conflicts_with = "instant")]
    delay: Option<usize>,
    /// Answer each frame at once; nothing is taken back
    #[arg(long, requires = "text")]
    instant: bool,
    /// Renew objects by detections every so many frames; 0 for never
    #[arg(long, value_name = "FRAMES", requires = "text")]
    recondition_every: Option<usize>,
    /// Follow at most this many objects at a time
    #[arg(long, value_name = "N", requires = "text")]
    max_objects: Option<NonZeroUsize>,
}

impl PhraseFlags {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    fn options(&self, length: Option<usize>, fill_hole_area: Option<usize>) -> PhraseOptions {
        let usual = if self.instant { PhraseOptions::instant() } else { PhraseOptions::default() };
        PhraseOptions {
            length,
            fill_hole_area: fill_hole_area.unwrap_or(usual.fill_hole_area),
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
        self.check_phrases(&places)?;
        let options = self.open_options();
        let model = self.model.source()?;
        self.claim(&mut self.run.claims(&model), &places)?;
        let source = open(&self.video, &options)?;
        let sam = model.start(&self.run)?;
        let texts: Vec<&str> = self.phrases.text.iter().map(String::as_str).collect();
        let options_of_phrases = self.phrases.options(source.length(), self.fill_hole_area);
        let tracker =
            sam.track_phrases(&texts, options_of_phrases).with_context(|| model.shown())?;
        let overlay = overlay_options(source.frame_rate(), options.tools);
        let writers = places.open(0, &overlay)?;
        earlier::remove_other_frames(&places, &BTreeSet::new())?;
        interrupt::finish_gracefully();
        let mut run = PhraseRun { tracker, writers, waiting: VecDeque::new(), written: None };
        let result = self.push_all(source, &mut run);
        let finished = run.writers.finish();
        let result = result.and(finished).and_then(|()| interrupt::check());
        if let (Err(_), Some(frame)) = (&result, run.written) {
            places.note_partial(frame);
        }
        result?;
        places.note_written();
        Ok(())
    }

    /// Returns an error for flags that have no meaning with phrases.
    fn check_phrases(&self, places: &Places) -> Result<()> {
        let refused = [
            (self.prompts.are_given(), "--point, --box and --mask-input"),
            (self.reverse || self.both, "--reverse and --both"),
            (self.resume, "--resume"),
            (self.history.is_some(), "--history"),
            (places.has_raw(), "--raw"),
        ];
        match refused.into_iter().find(|(given, _)| *given) {
            Some((_, flags)) => Err(Usage::error(format!("{flags} cannot be used with --text"))),
            None => Ok(()),
        }
    }

    fn push_all(&self, source: Box<dyn FrameSource>, run: &mut PhraseRun) -> Result<()> {
        let most = self.most_frames();
        let progress = match source.length() {
            Some(length) => Progress::bar(length.min(most) as u64, "frames"),
            None => Progress::spinner("frames"),
        };
        let mut recorded = Recorded::new(source, false)?;
        let mut frame = 0;
        let mut next = Some(recorded.frame(0)?);
        while let Some(image) = next {
            run.push(image)?;
            frame += 1;
            progress.set(frame as u64);
            progress.say(format!("{} objects", run.tracker.objects().count()));
            let over = frame >= most || interrupt::requested();
            next = if over { None } else { recorded.after(frame - 1)? };
        }
        // What is held back is complete even if the run is interrupted.
        while let Some(answer) = run.tracker.finish()? {
            run.write(&answer)?;
        }
        Ok(())
    }
}

struct PhraseRun {
    tracker: PhraseTracker,
    writers: Writers,
    /// Frames whose answers are held back.
    waiting: VecDeque<Image>,
    /// The last frame that was written.
    written: Option<usize>,
}

impl PhraseRun {
    fn push(&mut self, image: Image) -> Result<()> {
        let answer = self.tracker.push(&image)?;
        self.waiting.push_back(image);
        answer.map_or(Ok(()), |answer| self.write(&answer))
    }

    fn write(&mut self, answer: &PhraseFrame) -> Result<()> {
        let Some(image) = self.waiting.pop_front() else { return Ok(()) };
        let object = |object: &cutout_sam::PhraseObject| ObjectMask {
            id: object.id,
            mask: object.mask.clone(),
            score: object.score,
            found: Some(FoundObject {
                phrase: answer.phrases[object.phrase].clone(),
                detection_score: object.score,
                probability: object.probability,
                predicted_iou: object.iou,
                presence: object.presence,
                object_score: object.object_score,
            }),
        };
        let objects: Vec<ObjectMask> = answer.objects.iter().map(object).collect();
        self.writers.write_masks(&FrameResult {
            index: answer.frame,
            image: &image,
            objects: &objects,
        })?;
        self.written = Some(answer.frame);
        Ok(())
    }
}
