//! Options and errors of the tracker.

use std::path::PathBuf;

use cutout_imaging::{ImageError, Size};
use cutout_tensor::TensorError;

use super::ObjectId;
use crate::model::ModelError;
use crate::model::config::{RecentFrames, TrackingRules};
use crate::prompt::PromptError;

/// Handling of frames out of reach of memory attention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum History {
    /// They are dropped; memory use does not grow with the video.
    #[default]
    Recent,
    /// They are stored in files in this folder and can be revisited.
    Disk(PathBuf),
}

/// Effect of a prompt on an already tracked frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Corrections {
    /// The corrected frame counts as a tracked frame.
    #[default]
    Pass,
    /// The corrected frame becomes a conditioning frame: its memory is read for the rest of the video.
    Condition,
}

/// Options of the tracker. The defaults are Meta's; `None` is what the family of the model does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackOptions {
    /// Number of frames, if it is known. Meta's model places object pointers in time by it in clips of fewer than sixteen
    /// frames; a live source counts as long.
    pub length: Option<usize>,
    /// Most prompted frames that memory attention reads, closest in time first. By default all with SAM 2, four with SAM 3 and 3.1.
    pub most_prompted_frames: Option<usize>,
    /// Effect of corrections. By default [`Corrections::Pass`] with SAM 2, [`Corrections::Condition`] with SAM 3. With SAM 3.1 an
    /// object that is corrected begins anew.
    pub corrections: Option<Corrections>,
    /// Whether memory attention passes over past frames on which the objects were not seen clearly. By default no with SAM 2,
    /// yes with SAM 3. SAM 3.1 never does.
    pub memory_selection: Option<bool>,
    /// Largest hole, in pixels of the low-resolution mask, that is filled. Meta's code fills those of 8 on a GPU and
    /// none on a processor.
    pub fill_hole_area: usize,
    /// Handling of frames out of reach.
    pub history: History,
}

impl TrackOptions {
    /// The rules of a family as these options change them.
    pub(super) fn rules(&self, family: TrackingRules) -> TrackingRules {
        let recent = |wanted| if wanted { RecentFrames::Clear } else { RecentFrames::Last };
        TrackingRules {
            most_prompted_frames: self.most_prompted_frames.or(family.most_prompted_frames),
            corrections: self.corrections.unwrap_or(family.corrections),
            recent_frames: self.memory_selection.map_or(family.recent_frames, recent),
            ..family
        }
    }
}

/// Direction of tracking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From earlier frames to later ones.
    #[default]
    Forward,
    /// From later frames to earlier ones.
    Backward,
}

/// Why an object cannot be tracked.
#[derive(Debug, thiserror::Error)]
pub enum TrackError {
    /// The model has no memory, or none that is run yet.
    #[error(
        "{model} cannot track here: tracking needs a file with the memory of SAM 2, 2.1, 3 or 3.1"
    )]
    NoMemory {
        /// The model.
        model: String,
    },
    /// A prompt before any frame.
    #[error("there is no frame yet: push one before giving prompts")]
    NoFrame,
    /// A prompt on a frame that is not the current one.
    #[error(
        "frame {asked} is not the current frame, frame {current} is: visit it before giving prompts"
    )]
    OtherFrame {
        /// The frame asked for.
        asked: usize,
        /// The current frame.
        current: usize,
    },
    /// A frame of another size than those before.
    #[error("frame {frame} has {found}, the video has {expected}")]
    FrameSize {
        /// The frame.
        frame: usize,
        /// Size of the video.
        expected: Size,
        /// Size of this frame.
        found: Size,
    },
    /// No frame before the first.
    #[error("there is no frame before the first")]
    BeforeTheFirst,
    /// An object that was never prompted, or was removed.
    #[error("object {id} is not tracked; {known}")]
    UnknownObject {
        /// The object.
        id: ObjectId,
        /// List of the tracked objects, for the message.
        known: String,
    },
    /// A mask of another size than the video.
    #[error("the mask has {found}, the video has {expected}")]
    MaskSize {
        /// Size of the video.
        expected: Size,
        /// Size of the mask.
        found: Size,
    },
    /// Logits of an earlier answer: the tracker keeps its own.
    #[error(
        "a tracker takes points, a box or a mask; it keeps the logits of its earlier answers itself"
    )]
    Logits,
    /// The prompt is wrong.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// The model fails.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The frame cannot be used.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The file is not the state of this model's tracker.
    #[error("{file}: cannot go on from this state: {reason}")]
    State {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// The state cannot be written or read.
    #[error(transparent)]
    StateFile(#[from] Box<cutout_weights::WeightsError>),
    /// The history cannot be written or read.
    #[error("the history of {holder}, frame {frame}: {source}")]
    History {
        /// The object or the bucket of objects, as text.
        holder: String,
        /// The frame.
        frame: usize,
        /// What went wrong.
        source: Box<cutout_weights::WeightsError>,
    },
}

impl From<TensorError> for TrackError {
    fn from(error: TensorError) -> Self {
        TrackError::Model(error.into())
    }
}
