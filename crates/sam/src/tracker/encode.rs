//! Encoding of frames: when they are pushed, or ahead of time.

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
    let (pixels, mapping) = sam.input::<TrackError>(preprocess, image)?;
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

/// The frame after the current one, encoded ahead of time.
pub(super) enum NextFrame {
    /// The device computes on the host's cores: on a thread of its own, from the moment the frame is known.
    OnThread(FrameEncoding),
    /// The device computes while the host goes on: to be enqueued behind what the current frame needs.
    Known(Image),
    /// Enqueued.
    Enqueued(Image, Box<EncodedFrame>),
}

impl NextFrame {
    /// Encoding ahead of time. `None` if it cannot be; the frame is then encoded when it is pushed.
    pub(super) fn new(sam: &Sam, preprocess: &Preprocess, image: &Image) -> Option<Self> {
        match sam.model().backend().values_are_on_host() {
            true => FrameEncoding::start(sam, preprocess, image).map(NextFrame::OnThread),
            false => Some(NextFrame::Known(image.clone())),
        }
    }

    /// Enqueues the encoding, if it was not begun. `None` if that fails: the reason is found again when the frame is pushed.
    pub(super) fn enqueue(self, sam: &Sam, preprocess: &Preprocess) -> Option<Self> {
        match self {
            NextFrame::Known(image) => {
                let encoded = encode(sam, preprocess, &image).ok()?;
                Some(NextFrame::Enqueued(image, Box::new(encoded)))
            }
            begun @ (NextFrame::OnThread(_) | NextFrame::Enqueued(..)) => Some(begun),
        }
    }

    /// The features. `None`, without waiting, if `image` is another frame or encoding was not begun.
    pub(super) fn finish(self, image: &Image) -> Option<Result<EncodedFrame, TrackError>> {
        match self {
            NextFrame::OnThread(encoding) => encoding.finish(image),
            NextFrame::Known(_) => None,
            NextFrame::Enqueued(known, encoded) => (known == *image).then(|| Ok(*encoded)),
        }
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
    fn start(sam: &Sam, preprocess: &Preprocess, image: &Image) -> Option<Self> {
        let (sam, preprocess, own) = (sam.clone(), preprocess.clone(), image.clone());
        let encoding = std::thread::Builder::new()
            .name("cutout-ahead".to_owned())
            .spawn(move || encode(&sam, &preprocess, &own))
            .ok()?;
        Some(FrameEncoding { image: image.clone(), encoding })
    }

    /// Waits for the features. `None`, without waiting, if `image` is another frame.
    fn finish(self, image: &Image) -> Option<Result<EncodedFrame, TrackError>> {
        if self.image != *image {
            return None;
        }
        match self.encoding.join() {
            Ok(encoded) => Some(encoded),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
