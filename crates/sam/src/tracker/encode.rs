//! Encoding of frames, on the calling thread or ahead of time on another.

use std::thread::JoinHandle;

use cutout_graph::DeviceValue;
use cutout_imaging::{Image, Mapping, Preprocess};

use super::TrackError;
use crate::model::ModelError;
use crate::parts::{Encode, Encoded, FrameFeatures, FrameLevels, Pixels};
use crate::sam::Sam;

/// Image features of a frame.
pub(super) struct EncodedFrame {
    pub(super) features: FrameFeatures<DeviceValue>,
    /// Embedding without memories.
    pub(super) embedding: DeviceValue,
    /// What the detector of SAM 3 starts from.
    pub(super) trunk: Option<Encoded<DeviceValue>>,
    pub(super) mapping: Mapping,
}

/// Encodes a frame.
pub(super) fn encode(
    sam: &Sam,
    preprocess: &Preprocess,
    image: &Image,
) -> Result<EncodedFrame, TrackError> {
    let (pixels, mapping) = preprocess.run(image, sam.pool())?;
    let pixels = sam.model().upload(&pixels)?;
    let encoded = sam.model().run(&Encode { pictures: 1 }, Pixels { pixels })?;
    let features = encoded.pictures.into_iter().next();
    let trunk = features.clone().filter(|features| features.trunk.is_some());
    let levels = match features {
        Some(features @ Encoded { trunk: Some(_), .. }) => {
            Some(sam.model().run(&FrameLevels, features)?)
        }
        features => features,
    };
    match levels {
        Some(Encoded {
            level0: Some(level0),
            level1: Some(level1),
            level2: Some(level2),
            embedding: Some(embedding),
            ..
        }) => {
            let features = FrameFeatures { level0, level1, level2 };
            Ok(EncodedFrame { features, embedding, trunk, mapping })
        }
        _ => Err(ModelError::NoMemory.into()),
    }
}

/// A frame being encoded on its own thread.
pub(super) struct FrameEncoding {
    image: Image,
    encoding: JoinHandle<Result<EncodedFrame, TrackError>>,
}

impl FrameEncoding {
    /// Starts encoding. `None` if no thread can be started; the frame is then encoded when it is pushed.
    #[expect(clippy::disallowed_methods, reason = "two programs at once, which share the pool")]
    pub(super) fn start(sam: &Sam, preprocess: &Preprocess, image: &Image) -> Option<Self> {
        let (sam, preprocess, own) = (sam.clone(), preprocess.clone(), image.clone());
        let encoding = std::thread::Builder::new()
            .name("cutout-ahead".to_owned())
            .spawn(move || encode(&sam, &preprocess, &own))
            .ok()?;
        Some(FrameEncoding { image: image.clone(), encoding })
    }

    /// Waits for the features. `None`, without waiting, if `image` is another frame.
    pub(super) fn finish(self, image: &Image) -> Option<Result<EncodedFrame, TrackError>> {
        if self.image != *image {
            return None;
        }
        match self.encoding.join() {
            Ok(encoded) => Some(encoded),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
