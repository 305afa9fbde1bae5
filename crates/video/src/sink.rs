//! Where results go.

use cutout_imaging::{Image, ImageError, Rle};

use crate::SinkError;

mod folder;
mod json_lines;
mod label_pictures;
mod overlay;
mod overlay_gif;
mod overlay_video;

pub use folder::FrameFolder;
pub use json_lines::JsonLines;
pub use label_pictures::LabelPictures;
pub use overlay::{OverlayOptions, open_overlay};

/// An object in a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectMask {
    /// Who it is, in all frames of the clip.
    pub id: u32,
    /// Where it is, at the size of the frame; empty where it is hidden.
    pub mask: Rle,
    /// How sure the model is that it is there.
    pub score: f32,
}

/// What was found in a frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameResult<'a> {
    /// Number of the frame in the clip, from 0 on.
    pub index: usize,
    /// The frame.
    pub image: &'a Image,
    /// The objects in it.
    pub objects: &'a [ObjectMask],
}

impl FrameResult<'_> {
    /// Fails unless every mask has the size of the frame.
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

/// Takes results, frame by frame, in the order they come. What it has taken is in its file, and stays readable whatever
/// happens to the run.
pub trait Sink: Send {
    /// Takes a frame.
    fn write(&mut self, frame: &FrameResult<'_>) -> Result<(), SinkError>;

    /// Completes the output and tells what goes wrong with that. A sink that is dropped completes it as well as it can.
    fn finish(self: Box<Self>) -> Result<(), SinkError>;
}
