//! A model from pixels and tokens to logits, whichever family it is of.

use cutout_graph::{Backend, BuildError, Graph, Named, Profile, RunError, Weights};
use cutout_imaging::{Fit, ImageError, Mapping, Preprocess, Size, Upsampler};
use cutout_tensor::{Tensor, TensorError};

use crate::mask_choice::single_mask;
use crate::programs::{ModelError, Setting};
use crate::prompt::{Candidates, TokenOrder};

mod sam1;
mod sam2;
mod sam3;

use std::sync::OnceLock;

pub use sam1::Sam1;
pub(crate) use sam2::{Bank, Sam2};
pub(crate) use sam3::{Detected, ExemplarBatch, Sam3};

/// What the decoder needs of an image: cheap to clone, the same for every prompt.
#[derive(Clone)]
pub struct Embedding {
    /// What the encoder gave, by name: enough to make the rest again.
    pub(crate) features: Vec<Named>,
    /// What follows from the features before any prompt is known.
    side: Vec<Named>,
    /// What follows from them too, and not every question needs.
    later: Later,
}

/// What SAM 3 makes of an image when it is first asked in each of its two ways.
#[derive(Clone, Default)]
struct Later {
    /// For phrases and exemplars.
    finding: OnceLock<Vec<Named>>,
    /// For clicks, boxes and masks.
    clicks: OnceLock<Vec<Named>>,
}

impl Embedding {
    /// The features the mask decoder starts from, `f32[1, grid, grid, width]`, of SAM 1 and 2.
    pub fn image(&self) -> &Tensor {
        let named = self.features.iter().find(|(name, _)| name == IMAGE_FEATURE);
        &named.expect("every encoder of SAM 1 and 2 gives this feature").1
    }
}

impl Embedding {
    /// A feature, as an input.
    pub(crate) fn feature(
        &self,
        name: &'static str,
    ) -> Result<(&'static str, &Tensor), ModelError> {
        named(&self.features, name)
    }
}

/// Name of the feature that every family's mask decoder starts from.
pub(crate) const IMAGE_FEATURE: &str = "embedding";

/// One batch of prompts, as tensors.
pub struct PromptBatch {
    /// `f32[prompts, points, 2]`, in pixels of the model's input.
    pub points: Tensor,
    /// `i64[prompts, points]`.
    pub kinds: Tensor,
    /// Logits of earlier answers, `f32[prompts, 4 grid, 4 grid, 1]`.
    pub masks: Option<Tensor>,
}

/// What the decoder gives, for all mask tokens.
pub struct Decoded {
    /// `f32[prompts, mask tokens, 4 grid, 4 grid]`.
    pub logits: Tensor,
    /// `f32[prompts, mask tokens]`.
    pub iou: Tensor,
    /// Whether there is an object at all, as a logit: `f32[prompts]`. SAM 1 has none.
    pub object_score: Option<Tensor>,
    /// The tokens that became the masks, of which object pointers are made: `f32[prompts, mask tokens, width]`. SAM 1 has
    /// no use for them.
    pub tokens: Option<Tensor>,
}

/// The one of `features` that is called `name`, as an input.
fn named<'a>(
    features: &'a [Named],
    name: &'static str,
) -> Result<(&'static str, &'a Tensor), ModelError> {
    let found = features.iter().find(|(known, _)| known == name);
    let (_, tensor) = found.ok_or_else(|| RunError::MissingInput(name.to_owned()))?;
    Ok((name, tensor))
}

/// The mask tokens that answer a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// A model of one family.
pub(crate) enum Network {
    Sam1(Sam1),
    Sam2(Sam2),
    Sam3(Box<Sam3>),
}

impl Network {
    /// How a picture becomes the model's input.
    pub(crate) fn preprocess(&self) -> Preprocess {
        match self {
            Network::Sam1(sam) => Preprocess {
                side: sam.config().encoder.image_size,
                mean: [123.675, 116.28, 103.53],
                std: [58.395, 57.12, 57.375],
                fit: Fit::LongSide,
            },
            Network::Sam2(sam) => Preprocess {
                side: sam.config().encoder.image_size,
                mean: [0.485, 0.456, 0.406],
                std: [0.229, 0.224, 0.225],
                fit: Fit::SquareFloats,
            },
            Network::Sam3(sam) => Preprocess {
                side: sam.config().trunk.image_size,
                mean: [0.5; 3],
                std: [0.5; 3],
                fit: Fit::SquareBytes,
            },
        }
    }

    /// Side of the decoder's masks.
    pub(crate) fn mask_side(&self) -> usize {
        match self {
            Network::Sam1(sam) => 4 * sam.config().encoder.grid(),
            Network::Sam2(sam) => 4 * sam.config().encoder.grid(),
            Network::Sam3(sam) => 4 * sam.config().trunk.grid(),
        }
    }

    /// The way from the decoder's masks to the picture.
    pub(crate) fn upsampler(&self, mapping: &Mapping) -> Result<Upsampler, ImageError> {
        let low = Size::square(self.mask_side());
        match self {
            Network::Sam1(_) => Upsampler::through_model(low, mapping),
            Network::Sam2(_) | Network::Sam3(_) => Upsampler::direct(low, mapping.original),
        }
    }

    /// The order in which the model was shown points and boxes.
    pub(crate) fn token_order(&self) -> TokenOrder {
        match self {
            Network::Sam1(_) => TokenOrder::CornersLast,
            Network::Sam2(_) | Network::Sam3(_) => TokenOrder::CornersFirst,
        }
    }

    /// Encodes the model's input, `f32[1, side, side, 3]`.
    pub(crate) fn encode(&self, pixels: &Tensor) -> Result<Embedding, ModelError> {
        match self {
            Network::Sam1(sam) => sam.encode(pixels),
            Network::Sam2(sam) => sam.encode(pixels),
            Network::Sam3(sam) => sam.encode(pixels),
        }
    }

    /// An embedding from features that were kept.
    pub(crate) fn with_features(&self, features: Vec<Named>) -> Result<Embedding, ModelError> {
        match self {
            Network::Sam1(sam) => sam.with_features(features),
            Network::Sam2(sam) => sam.with_features(features),
            Network::Sam3(sam) => sam.with_features(features),
        }
    }

    /// Decodes a batch of prompts on one image.
    pub(crate) fn decode(
        &self,
        image: &Embedding,
        batch: &PromptBatch,
    ) -> Result<Decoded, ModelError> {
        match self {
            Network::Sam1(sam) => sam.decode(image, batch),
            Network::Sam2(sam) => sam.decode(image, batch),
            Network::Sam3(sam) => sam.decode(image, batch),
        }
    }

    /// Which tokens of prompt number `prompt` are its answer.
    pub(crate) fn choose(
        &self,
        decoded: &Decoded,
        prompt: usize,
        wanted: Candidates,
    ) -> Result<Chosen, TensorError> {
        let tokens = decoded.iou.shape()[1];
        match (self, wanted) {
            (_, Candidates::Three) => Ok(Chosen { first: 1, count: tokens - 1 }),
            (Network::Sam1(_), Candidates::One) => Ok(Chosen { first: 0, count: 1 }),
            (Network::Sam2(_) | Network::Sam3(_), Candidates::One) => {
                let logits = decoded.logits.slice(0, prompt..prompt + 1)?.to_vec::<f32>()?;
                let iou = decoded.iou.slice(0, prompt..prompt + 1)?.to_vec::<f32>()?;
                Ok(Chosen { first: single_mask(&logits, &iou), count: 1 })
            }
        }
    }

    /// The largest size of the logits that are given back and taken again as a prompt.
    fn logit_limit(&self) -> Option<f32> {
        match self {
            Network::Sam1(_) => None,
            Network::Sam2(_) | Network::Sam3(_) => Some(32.0),
        }
    }

    /// Holes of so many pixels of the decoder's masks, and smaller ones, are filled before a mask goes to the picture.
    pub(crate) fn largest_hole(&self) -> usize {
        match self {
            Network::Sam1(_) | Network::Sam2(_) => 0,
            Network::Sam3(_) => 256,
        }
    }

    /// The features the mask decoder starts from, `f32[1, grid, grid, width]`.
    pub(crate) fn image_embedding(&self, image: &Embedding) -> Result<Tensor, ModelError> {
        match self {
            Network::Sam1(_) | Network::Sam2(_) => Ok(image.image().clone()),
            Network::Sam3(sam) => Ok(named(sam.clicks(image)?, IMAGE_FEATURE)?.1.clone()),
        }
    }

    /// Logits as they are given back, within that size.
    pub(crate) fn limited(&self, logits: &Tensor) -> Result<Tensor, TensorError> {
        let Some(limit) = self.logit_limit() else { return Ok(logits.clone()) };
        let limited = logits.to_vec::<f32>()?.into_iter().map(|logit| logit.clamp(-limit, limit));
        Tensor::from_vec::<f32>(logits.shape().clone(), limited.collect())
    }

    /// Whether it understands phrases and exemplars.
    pub(crate) fn finds(&self) -> bool {
        match self {
            Network::Sam1(_) | Network::Sam2(_) => false,
            Network::Sam3(sam) => sam.config().finder.is_some(),
        }
    }

    /// Whether it answers points, boxes and masks.
    pub(crate) fn answers_clicks(&self) -> bool {
        match self {
            Network::Sam1(_) | Network::Sam2(_) => true,
            Network::Sam3(sam) => sam.config().clicks.is_some(),
        }
    }

    /// Compiles what one click needs.
    pub(crate) fn prepare(&self) -> Result<(), ModelError> {
        match self {
            Network::Sam1(sam) => sam.prepare(),
            Network::Sam2(sam) => sam.prepare(),
            Network::Sam3(sam) => sam.prepare(),
        }
    }

    /// The graphs of the model, by name.
    pub(crate) fn graphs(&self) -> Result<Vec<(&'static str, Graph)>, BuildError> {
        match self {
            Network::Sam1(sam) => sam.graphs(),
            Network::Sam2(sam) => sam.graphs(),
            Network::Sam3(sam) => sam.graphs(),
        }
    }

    pub(crate) fn weights(&self) -> &Weights {
        &self.setting().weights
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.setting().profile
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        self.setting().backend.as_ref()
    }

    fn setting(&self) -> &Setting {
        match self {
            Network::Sam1(sam) => sam.setting(),
            Network::Sam2(sam) => sam.setting(),
            Network::Sam3(sam) => sam.setting(),
        }
    }
}
