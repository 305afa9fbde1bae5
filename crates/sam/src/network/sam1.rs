//! SAM 1, ready to run: configuration and programs.

use std::path::Path;
use std::sync::Arc;

use cutout_graph::{Backend, BuildError, Graph, Profile, Program, Weights};
use cutout_tensor::{Tensor, TensorError};
use cutout_weights::Checkpoint;

use super::{Decoded, Embedding, Later, PromptBatch};
use crate::checkpoint::{OpenError, load_sam1};
use crate::config::Sam1Config;
use crate::programs::{ModelError, Programs, Setting};
use crate::sam1::{PromptShape, decoder_graph, encoder_graph, image_side_graph};

/// The part of a model that a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Encoder,
    ImageSide,
    Decoder(PromptShape),
}

/// The shape of a click: one point, and the padding that stands for no box.
const ONE_CLICK: PromptShape = PromptShape { prompts: 1, points: 2, masks: false };

/// SAM 1 on a backend, from pixels and tokens to logits. [`crate::Sam`] is the same from pictures and prompts to masks.
pub struct Sam1 {
    config: Sam1Config,
    programs: Programs<Part>,
}

impl Sam1 {
    /// Opens a checkpoint in any format and layout; every number of the configuration is read from its tensors.
    pub fn open(
        path: impl AsRef<Path>,
        backend: Arc<dyn Backend>,
        profile: Profile,
    ) -> Result<Self, OpenError> {
        let loaded = load_sam1(&Checkpoint::open(path)?)?;
        Ok(Sam1::new(loaded.config, loaded.weights, backend, profile))
    }

    /// A model from its parts.
    pub fn new(
        config: Sam1Config,
        weights: Weights,
        backend: Arc<dyn Backend>,
        profile: Profile,
    ) -> Self {
        Sam1 { config, programs: Programs::new(weights, backend, profile) }
    }

    /// The configuration.
    pub fn config(&self) -> &Sam1Config {
        &self.config
    }

    /// Encodes normalised, padded pixels `f32[1, size, size, 3]`.
    pub fn encode(&self, pixels: &Tensor) -> Result<Embedding, ModelError> {
        let features = self.program(Part::Encoder)?.run(&[("pixels", pixels)])?;
        self.with_features(features)
    }

    /// What the decoder needs, from features that were kept: `embedding: f32[1, grid, grid, width]`.
    pub(super) fn with_features(
        &self,
        features: Vec<(String, Tensor)>,
    ) -> Result<Embedding, ModelError> {
        let inputs: Vec<(&str, &Tensor)> =
            features.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let side = self.program(Part::ImageSide)?.run(&inputs)?;
        Ok(Embedding { features, side, later: Later::default() })
    }

    /// Decodes a batch of prompts on one image.
    pub fn decode(&self, image: &Embedding, batch: &PromptBatch) -> Result<Decoded, ModelError> {
        let &[prompts, points, _] = &batch.points.shape()[..] else {
            let message =
                format!("points must be f32[prompts, points, 2], got {}", batch.points.ty());
            return Err(TensorError::Shape(message).into());
        };
        let shape = PromptShape { prompts, points, masks: batch.masks.is_some() };
        let program = self.program(Part::Decoder(shape))?;
        let mut inputs = vec![("points", &batch.points), ("kinds", &batch.kinds)];
        let kept = match &batch.masks {
            Some(masks) => {
                inputs.push(("masks", masks));
                &image.features
            }
            None => &image.side,
        };
        inputs.extend(kept.iter().map(|(name, tensor)| (name.as_str(), tensor)));
        let mut outputs = program.run(&inputs)?.into_iter();
        let mut next = || outputs.next().expect("a decoder has two outputs").1;
        Ok(Decoded { logits: next(), iou: next(), object_score: None, tokens: None })
    }

    pub(super) fn setting(&self) -> &Setting {
        self.programs.setting()
    }

    fn program(&self, part: Part) -> Result<Arc<dyn Program>, ModelError> {
        self.programs.get(part, |part| self.graph(part))
    }

    /// Compiles what one click needs.
    pub(super) fn prepare(&self) -> Result<(), ModelError> {
        for part in [Part::Encoder, Part::ImageSide, Part::Decoder(ONE_CLICK)] {
            self.program(part)?;
        }
        Ok(())
    }

    /// The graphs of the model, by name; the decoder's for one click.
    pub(super) fn graphs(&self) -> Result<Vec<(&'static str, Graph)>, BuildError> {
        Ok(vec![
            ("encoder", self.graph(Part::Encoder)?),
            ("image_side", self.graph(Part::ImageSide)?),
            ("decoder", self.graph(Part::Decoder(ONE_CLICK))?),
        ])
    }

    fn graph(&self, part: Part) -> Result<Graph, BuildError> {
        match part {
            Part::Encoder => encoder_graph(&self.config),
            Part::ImageSide => image_side_graph(&self.config),
            Part::Decoder(shape) => decoder_graph(&self.config, shape),
        }
    }
}
