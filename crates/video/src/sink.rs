//! Sinks of results.

use cutout_imaging::{Image, ImageError, Rle};
use serde::Serialize;

use crate::SinkError;

mod folder;
mod json_lines;
mod label_pictures;
mod overlay;
mod overlay_gif;
mod overlay_video;
mod written;

pub use folder::FrameFolder;
pub use json_lines::JsonLines;
pub use label_pictures::LabelPictures;
pub use overlay::{OverlayOptions, open_overlay};
pub use written::WrittenMasks;

/// An object in a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectMask {
    /// Number of the object, the same in all frames of the clip.
    pub id: u32,
    /// Mask at the size of the frame; empty if the object is occluded.
    pub mask: Rle,
    /// The model's confidence that the object is visible.
    pub score: f32,
    /// How the object was found, if it was not pointed at.
    pub found: Option<FoundObject>,
}

/// An object that was found by a phrase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundObject {
    /// The phrase.
    pub phrase: String,
    /// Probability of the detection that started the object.
    pub detection_score: f32,
    /// Probability that the object is visible in this frame.
    pub probability: f32,
    /// Predicted IoU of the mask, once the object is followed.
    pub predicted_iou: Option<f32>,
    /// Probability that this frame has any such object.
    pub presence: f32,
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

    /// Completes the output. Dropping a sink completes it too, but ignores errors.
    fn finish(self: Box<Self>) -> Result<(), SinkError>;
}
