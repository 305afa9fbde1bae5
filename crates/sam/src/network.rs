//! A model from pixels and tokens to logits, whichever family it is of.

use cutout_graph::{Backend, BuildError, Graph, Named, Profile, Weights};
use cutout_imaging::{Fit, ImageError, Mapping, Preprocess, Size, Upsampler};
use cutout_tensor::Tensor;

use crate::programs::ModelError;
use crate::prompt::{Candidates, TokenOrder};

mod sam1;

pub use sam1::Sam1;

/// What the decoder needs of an image: cheap to clone, the same for every prompt.
#[derive(Clone)]
pub struct Embedding {
    /// What the encoder gave, by name: enough to make the rest again.
    pub(crate) features: Vec<Named>,
    /// What follows from the features before any prompt is known.
    side: Vec<Named>,
}

impl Embedding {
    /// The features the mask decoder starts from, `f32[1, grid, grid, width]`.
    pub fn image(&self) -> &Tensor {
        let named = self.features.iter().find(|(name, _)| name == IMAGE_FEATURE);
        &named.expect("every encoder gives this feature").1
    }
}

/// Name of the feature that every family has.
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
    /// Whether there is an object at all, as a logit: `f32[prompts, 1]`. SAM 1 has none.
    pub object_score: Option<Tensor>,
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
        }
    }

    /// Side of the decoder's masks.
    pub(crate) fn mask_side(&self) -> usize {
        match self {
            Network::Sam1(sam) => 4 * sam.config().encoder.grid(),
        }
    }

    /// The way from the decoder's masks to the picture.
    pub(crate) fn upsampler(&self, mapping: &Mapping) -> Result<Upsampler, ImageError> {
        let low = Size::square(self.mask_side());
        match self {
            Network::Sam1(_) => Upsampler::through_model(low, mapping),
        }
    }

    /// The order in which the model was shown points and boxes.
    pub(crate) fn token_order(&self) -> TokenOrder {
        match self {
            Network::Sam1(_) => TokenOrder::CornersLast,
        }
    }

    /// Encodes the model's input, `f32[1, side, side, 3]`.
    pub(crate) fn encode(&self, pixels: &Tensor) -> Result<Embedding, ModelError> {
        match self {
            Network::Sam1(sam) => sam.encode(pixels),
        }
    }

    /// An embedding from features that were kept.
    pub(crate) fn with_features(&self, features: Vec<Named>) -> Result<Embedding, ModelError> {
        match self {
            Network::Sam1(sam) => sam.with_features(features),
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
        }
    }

    /// Which tokens of prompt number `prompt` are its answer.
    pub(crate) fn choose(&self, decoded: &Decoded, _prompt: usize, wanted: Candidates) -> Chosen {
        let tokens = decoded.iou.shape()[1];
        match (self, wanted) {
            (Network::Sam1(_), Candidates::One) => Chosen { first: 0, count: 1 },
            (Network::Sam1(_), Candidates::Three) => Chosen { first: 1, count: tokens - 1 },
        }
    }

    /// Compiles what one click needs.
    pub(crate) fn prepare(&self) -> Result<(), ModelError> {
        match self {
            Network::Sam1(sam) => sam.prepare(),
        }
    }

    /// The graphs of the model, by name.
    pub(crate) fn graphs(&self) -> Result<Vec<(&'static str, Graph)>, BuildError> {
        match self {
            Network::Sam1(sam) => sam.graphs(),
        }
    }

    pub(crate) fn weights(&self) -> &Weights {
        match self {
            Network::Sam1(sam) => sam.weights(),
        }
    }

    pub(crate) fn profile(&self) -> &Profile {
        match self {
            Network::Sam1(sam) => sam.profile(),
        }
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        match self {
            Network::Sam1(sam) => sam.backend(),
        }
    }
}
