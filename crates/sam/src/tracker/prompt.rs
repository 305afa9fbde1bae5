//! Prompts of the tracker.

use cutout_imaging::{Mask, Size};

use super::TrackError;
use crate::prompt::Prompt;

/// A prompt for one object on one frame: points and a box, or a mask.
#[derive(Clone, Copy)]
pub enum TrackPrompt<'a> {
    /// All points of the object on this frame, and perhaps its box. A later prompt replaces them and refines the mask.
    Points(&'a Prompt),
    /// The object itself, as large as the video.
    Mask(&'a Mask),
}

impl<'a> From<&'a Prompt> for TrackPrompt<'a> {
    fn from(prompt: &'a Prompt) -> Self {
        TrackPrompt::Points(prompt)
    }
}

impl<'a> From<&'a Mask> for TrackPrompt<'a> {
    fn from(mask: &'a Mask) -> Self {
        TrackPrompt::Mask(mask)
    }
}

impl TrackPrompt<'_> {
    /// Rejects a prompt that does not fit a frame of that size.
    pub(super) fn check(self, size: Size, mask_side: usize) -> Result<(), TrackError> {
        match self {
            TrackPrompt::Points(prompt) if prompt.has_logits() => Err(TrackError::Logits),
            TrackPrompt::Points(prompt) => Ok(prompt.check(size, mask_side)?),
            TrackPrompt::Mask(mask) if mask.size() != size => {
                Err(TrackError::MaskSize { expected: size, found: mask.size() })
            }
            TrackPrompt::Mask(_) => Ok(()),
        }
    }
}
