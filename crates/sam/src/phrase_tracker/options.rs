//! Options and errors of phrases in video. The options have Meta's values as defaults.

use cutout_imaging::ImageError;
use cutout_tensor::TensorError;

use crate::find::FindError;
use crate::model::ModelError;
use crate::tracker::{History, ObjectId, TrackError};

/// Why objects of a phrase cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum PhraseTrackError {
    /// A frame after the last one.
    #[error("there is no frame {frame}: the video has {length} frames, from 0")]
    Beyond {
        /// The frame.
        frame: usize,
        /// Frames of the video.
        length: usize,
    },
    /// A prompt for an object that is followed no more.
    #[error(
        "object {id} is not followed, and its number is not used again; new objects have numbers from {next} on"
    )]
    Ended {
        /// The object.
        id: ObjectId,
        /// The next free number.
        next: ObjectId,
    },
    /// A new object beyond the limit.
    #[error("{most} objects are followed, which is the most that is allowed")]
    Full {
        /// The limit.
        most: usize,
    },
    /// Exemplars for a phrase that was not asked for.
    #[error("there is no phrase {phrase}, of {count} from 0")]
    UnknownPhrase {
        /// Position of the phrase.
        phrase: usize,
        /// How many phrases there are.
        count: usize,
    },
    /// A phrase in the place of exemplars.
    #[error("exemplars are boxes and points: a phrase is added by itself")]
    PhraseAmongExemplars,
    /// An option is not between 0 and 1.
    #[error("{option} must be between 0 and 1, not {value}")]
    OutOfRange {
        /// The option.
        option: &'static str,
        /// The given value.
        value: f32,
    },
    /// The detector fails, or the phrase is wrong.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The tracker fails.
    #[error(transparent)]
    Track(#[from] TrackError),
    /// A mask cannot be brought to another size.
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl From<TensorError> for PhraseTrackError {
    fn from(error: TensorError) -> Self {
        PhraseTrackError::Track(ModelError::from(error).into())
    }
}

/// How objects of a phrase are found and followed. The defaults are Meta's for SAM 3; [`Sam::phrase_options`](crate::Sam::phrase_options)
/// has those for a model.
#[derive(Clone, Debug, PartialEq)]
pub struct PhraseOptions {
    /// Number of frames, if it is known; see [`crate::TrackOptions::length`].
    pub length: Option<usize>,
    /// How many frames follow one before its answer is given. 0: as it is seen now; what turns out to be no object later is
    /// told then ([`crate::PhraseFrame::taken_back`]). `None`: as many as it takes to be sure, one less than `delay`.
    pub latency: Option<usize>,
    /// Handling of frames out of reach of memory attention; see [`crate::TrackOptions::history`].
    pub history: History,
    /// Whether frames before the first one are followed later, backward. The first prompted frames of each object are kept
    /// for them.
    pub goes_back: bool,
    /// Whether answers have the logits of the model.
    pub logits: bool,
    /// Detections with at most this probability are ignored.
    pub detection_threshold: f32,
    /// Detections that overlap a better one by more than this are ignored. Here and below, overlap is IoU with SAM 3 and the share
    /// of the smaller area with SAM 3.1.
    pub duplicate_iou: f32,
    /// A detection that overlaps no track by this much may start one.
    pub match_iou: f32,
    /// A track that no detection overlaps by this much is unmatched.
    pub unmatched_iou: f32,
    /// Least probability of a detection that starts a track; with SAM 3 only while there are others.
    pub new_object_threshold: f32,
    /// Frames after which a track is no longer on probation. Unless `latency` is given, answers are held back as long, so
    /// that objects which turn out to be none are not in them.
    pub delay: usize,
    /// Unmatched frames after which a track on probation is removed; 0 never removes one.
    pub unmatched_frames: usize,
    /// Frames as duplicate of an older track after which a track on probation is removed; 0 never removes one.
    pub duplicate_frames: usize,
    /// Every how many frames tracks are renewed by detections; 0 never renews them.
    pub recondition_every: usize,
    /// Least probability of a detection that renews a track.
    pub recondition_score: f32,
    /// Least overlap of a detection with the track that it renews.
    pub recondition_iou: f32,
    /// A track is renewed only if its object score is above this logit.
    pub recondition_logit: f32,
    /// Tracks that overlap by this IoU are taken for one object.
    pub occlusion_iou: f32,
    /// Holes and islands of at most this many cells of the low-resolution mask are removed.
    pub fill_hole_area: usize,
    /// Most tracks at a time; of more new objects, those with the best scores are taken.
    pub max_objects: usize,
}

impl Default for PhraseOptions {
    fn default() -> Self {
        PhraseOptions {
            length: None,
            latency: None,
            history: History::Recent,
            goes_back: false,
            logits: false,
            detection_threshold: 0.5,
            duplicate_iou: 0.1,
            match_iou: 0.1,
            unmatched_iou: 0.5,
            new_object_threshold: 0.7,
            delay: 15,
            unmatched_frames: 8,
            duplicate_frames: 8,
            recondition_every: 16,
            recondition_score: 0.8,
            recondition_iou: 0.8,
            recondition_logit: 0.8,
            occlusion_iou: 0.7,
            fill_hole_area: 16,
            max_objects: 10_000,
        }
    }
}

impl PhraseOptions {
    /// Meta's for SAM 3.1. Its limit of 16 objects is not set.
    pub(super) fn sam3_1() -> Self {
        PhraseOptions {
            detection_threshold: 0.4,
            new_object_threshold: 0.65,
            recondition_iou: 0.5,
            // A probability of 0.8.
            recondition_logit: 4f32.ln(),
            fill_hole_area: 0,
            ..PhraseOptions::default()
        }
    }

    /// As seen now: answers are not held back, and no object is removed because it was not confirmed.
    pub fn instant() -> Self {
        Self::default().at_once()
    }

    /// These options without waiting: see [`PhraseOptions::instant`].
    pub fn at_once(self) -> Self {
        PhraseOptions { delay: 0, unmatched_frames: 0, duplicate_frames: 0, ..self }
    }

    /// How many frames follow one before its answer is given.
    pub(super) fn frames_after(&self) -> usize {
        self.latency.unwrap_or(self.delay.saturating_sub(1))
    }

    pub(super) fn check(&self) -> Result<(), PhraseTrackError> {
        let shares = [
            ("the detection threshold", self.detection_threshold),
            ("the overlap of duplicates", self.duplicate_iou),
            ("the overlap of matches", self.match_iou),
            ("the overlap of unmatched tracks", self.unmatched_iou),
            ("the threshold of new objects", self.new_object_threshold),
            ("the score of renewing detections", self.recondition_score),
            ("the overlap of renewing detections", self.recondition_iou),
            ("the overlap of hidden tracks", self.occlusion_iou),
        ];
        match shares.into_iter().find(|(_, value)| !(0.0..=1.0).contains(value)) {
            Some((option, value)) => Err(PhraseTrackError::OutOfRange { option, value }),
            None => Ok(()),
        }
    }
}
