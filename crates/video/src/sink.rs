//! Sinks of results.

use cutout_imaging::{Image, ImageError, Rle};
use serde::Serialize;

use crate::SinkError;

mod archive;
mod folder;
mod json_lines;
mod label_pictures;
mod mot;
mod overlay;
mod overlay_gif;
mod overlay_video;
mod video_json;
mod written;

pub use archive::ArchiveWriter;
pub use folder::FrameFolder;
pub use json_lines::JsonLines;
pub use label_pictures::LabelPictures;
pub use mot::MotText;
pub use overlay::{OverlayOptions, open_overlay};
pub use video_json::VideoJson;
pub use written::WrittenMasks;

/// An object in a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectMask {
    /// Number of the object, the same in all frames of the clip.
    pub id: u32,
    /// Mask at the size of the frame; empty if the object is occluded.
    pub mask: Rle,
    /// The model's confidence that the object is visible: a logit; of an object found by a phrase, the probability of its first
    /// detection.
    pub score: f32,
    /// What is known of an object among those that were found by phrases.
    pub found: Option<FoundObject>,
}

impl ObjectMask {
    /// Probability that the object is visible in its frame.
    pub fn confidence(&self) -> f32 {
        let logistic = || 1.0 / (1.0 + (-self.score).exp());
        self.found.as_ref().map_or_else(logistic, |found| found.probability)
    }
}

/// An object that was found by a phrase, or that a user pointed at among such objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundObject {
    /// The phrase; `None` for an object that a user pointed at.
    pub phrase: Option<String>,
    /// Probability of the detection that started the object; 1 if a user pointed at it.
    pub detection_score: f32,
    /// Probability that the object is visible in this frame.
    pub probability: f32,
    /// Predicted IoU of the mask, once the object is followed.
    pub predicted_iou: Option<f32>,
    /// Probability that this frame has any such object, if it was searched.
    pub presence: Option<f32>,
    /// Logit of the object being visible, once it is followed.
    pub object_score: Option<f32>,
}

/// The masks of one frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameResult<'a> {
    /// Number of the frame in the clip, counted from 0.
    pub index: usize,
    /// The frame.
    pub image: &'a Image,
    /// The objects in the frame.
    pub objects: &'a [ObjectMask],
}

impl FrameResult<'_> {
    /// Returns an error unless every mask has the size of the frame.
    fn check_sizes(&self) -> Result<(), SinkError> {
        let expected = self.image.size();
        match self.objects.iter().map(|object| object.mask.size()).find(|size| *size != expected) {
            None => Ok(()),
            Some(found) => {
                let source = ImageError::Mismatch { expected, found };
                Err(SinkError::Image { frame: self.index, source })
            }
        }
    }
}

/// Writes results frame by frame, in the order given. Written frames stay readable even if the run is interrupted.
pub trait Sink: Send {
    /// Writes a frame.
    fn write(&mut self, frame: &FrameResult<'_>) -> Result<(), SinkError>;

    /// An object that was written in frames from `first` to `last` turned out to be none. Pictures and overlays stay as they
    /// are.
    fn take_back(&mut self, id: u32, first: usize, last: usize) -> Result<(), SinkError> {
        let _ignored = (id, first, last);
        Ok(())
    }

    /// Completes the output. Dropping a sink completes it too, but ignores errors.
    fn finish(self: Box<Self>) -> Result<(), SinkError>;
}
