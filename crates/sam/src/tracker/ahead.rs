//! The next frame, encoded while the one at hand is tracked.

use std::thread::JoinHandle;

use cutout_imaging::{Image, Mapping, Preprocess};

use super::TrackError;
use crate::network::Embedding;
use crate::sam::Sam;

/// What the image encoder makes of a frame.
pub(super) struct Encoded {
    pub(super) features: Embedding,
    pub(super) mapping: Mapping,
}

/// Turns a frame into what is tracked on.
pub(super) fn encode(
    sam: &Sam,
    preprocess: &Preprocess,
    image: &Image,
) -> Result<Encoded, TrackError> {
    let (pixels, mapping) = preprocess.run(image, sam.pool())?;
    Ok(Encoded { features: sam.network().encode(&pixels)?, mapping })
}

/// A frame that is being encoded on a thread of its own.
pub(super) struct Ahead {
    image: Image,
    encoding: JoinHandle<Result<Encoded, TrackError>>,
}

impl Ahead {
    /// Begins to encode. Nothing where the system has no thread to give: the frame is then encoded when its turn comes.
    #[expect(clippy::disallowed_methods, reason = "two programs at once, which share the pool")]
    pub(super) fn begin(sam: &Sam, preprocess: &Preprocess, image: &Image) -> Option<Self> {
        let (sam, preprocess, own) = (sam.clone(), preprocess.clone(), image.clone());
        let encoding = std::thread::Builder::new()
            .name("cutout-ahead".to_owned())
            .spawn(move || encode(&sam, &preprocess, &own))
            .ok()?;
        Some(Ahead { image: image.clone(), encoding })
    }

    /// Waits for the frame; nothing at once if it is another one than `image`.
    pub(super) fn finish(self, image: &Image) -> Option<Result<Encoded, TrackError>> {
        if self.image != *image {
            return None;
        }
        match self.encoding.join() {
            Ok(encoded) => Some(encoded),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
