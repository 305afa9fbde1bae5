//! Encoding of frames, on the calling thread or ahead of time on another.

use std::thread::JoinHandle;

use cutout_graph::DeviceValue;
use cutout_imaging::{Image, Mapping, Preprocess};

use super::TrackError;
use crate::model::ModelError;
use crate::parts::{Encode, Encoded, FollowLevels, FrameFeatures, FrameLevels, Pixels};
use crate::sam::Sam;

/// Image features of a frame.
pub(super) struct EncodedFrame {
    /// From which objects are followed and remembered.
    pub(super) features: FrameFeatures<DeviceValue>,
    /// In SAM 3.1 `None` until the frame has prompts.
    pub(super) prompting: Option<Prompting>,
    /// What the detector of SAM 3 starts from.
    pub(super) trunk: Option<Encoded<DeviceValue>>,
    pub(super) mapping: Mapping,
}

/// Features that answer prompts.
#[derive(Clone)]
pub(super) struct Prompting {
    pub(super) features: FrameFeatures<DeviceValue>,
    /// Embedding without memories.
    pub(super) embedding: DeviceValue,
}

impl Prompting {
    fn of(levels: Encoded<DeviceValue>) -> Result<Self, ModelError> {
        match levels {
            Encoded {
                level0: Some(level0),
                level1: Some(level1),
                level2: Some(level2),
                embedding: Some(embedding),
                ..
            } => Ok(Prompting { features: FrameFeatures { level0, level1, level2 }, embedding }),
            _ => Err(ModelError::NoMemory),
        }
    }
}

impl EncodedFrame {
    /// The features that answer prompts, computed on first use.
    pub(super) fn prompting(&mut self, sam: &Sam) -> Result<Prompting, TrackError> {
        if let Some(known) = &self.prompting {
            return Ok(known.clone());
        }
        let trunk = self.trunk.clone().ok_or(ModelError::NoMemory)?;
        let made = Prompting::of(sam.model().run(&FrameLevels, trunk)?)?;
        Ok(self.prompting.insert(made).clone())
    }
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
    let features = encoded.pictures.into_iter().next().ok_or(ModelError::NoMemory)?;
    let trunk = features.trunk.is_some().then(|| features.clone());
    if let (Some(trunk), true) = (&trunk, sam.model().config().memory()?.multiplex.is_some()) {
        let features = sam.model().run(&FollowLevels, trunk.clone())?;
        return Ok(EncodedFrame { features, prompting: None, trunk: Some(trunk.clone()), mapping });
    }
    let levels = match &trunk {
        Some(trunk) => sam.model().run(&FrameLevels, trunk.clone())?,
        None => features,
    };
    let prompting = Prompting::of(levels)?;
    let features = prompting.features.clone();
    Ok(EncodedFrame { features, prompting: Some(prompting), trunk, mapping })
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
