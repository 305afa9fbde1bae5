//! A model that is ready to run: weights, backend, and the programs compiled so far.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cutout_graph::{
    Backend, BuildError, CompileError, Graph, Named, Profile, Program, RunError, Weights,
};
use cutout_tensor::{Tensor, TensorError};
use cutout_weights::Checkpoint;
use cutout_weights::layout::Identity;

use crate::checkpoint::{OpenError, load_sam1};
use crate::config::Sam1Config;
use crate::sam1::{PromptShape, decoder_graph, encoder_graph, image_side_graph};

/// Programs of prompt shapes kept at most; beyond, all are dropped and compiled again when asked for, in milliseconds.
const MOST_PROGRAMS: usize = 64;

/// Why a model cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A graph cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A graph cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A program cannot run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A tensor cannot be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// The part of a model that a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Encoder,
    ImageSide,
    Decoder(PromptShape),
}

/// SAM 1, ready to run on a backend.
pub struct Sam1 {
    config: Sam1Config,
    identity: Option<Identity>,
    weights: Weights,
    backend: Arc<dyn Backend>,
    profile: Profile,
    programs: Mutex<HashMap<Part, Arc<dyn Program>>>,
}

/// What the decoder needs of an image: cheap to clone, the same for every prompt.
#[derive(Clone)]
pub struct Embedding {
    /// `f32[1, grid, grid, width]`, as the mask decoder receives it.
    pub embedding: Tensor,
    /// What follows from it before any prompt is known.
    side: Vec<Named>,
}

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
pub struct DecodedBatch {
    /// `f32[prompts, mask tokens, 4 grid, 4 grid]`.
    pub logits: Tensor,
    /// `f32[prompts, mask tokens]`.
    pub iou: Tensor,
}

impl Sam1 {
    /// Opens a checkpoint in any format and layout; family, size and every number of the configuration are read from
    /// its tensors.
    pub fn open(
        path: impl AsRef<Path>,
        backend: Arc<dyn Backend>,
        profile: Profile,
    ) -> Result<Self, OpenError> {
        let loaded = load_sam1(&Checkpoint::open(path)?)?;
        let identity = Some(loaded.identity);
        let sam = Sam1::new(loaded.config, loaded.weights, backend, profile);
        Ok(Sam1 { identity, ..sam })
    }

    /// A model from its parts.
    pub fn new(
        config: Sam1Config,
        weights: Weights,
        backend: Arc<dyn Backend>,
        profile: Profile,
    ) -> Self {
        let programs = Mutex::default();
        Sam1 { config, identity: None, weights, backend, profile, programs }
    }

    /// The configuration.
    pub fn config(&self) -> &Sam1Config {
        &self.config
    }

    /// What the checkpoint said it is; nothing for a model made from parts.
    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// Encodes normalised, padded pixels `f32[1, size, size, 3]`.
    pub fn encode(&self, pixels: &Tensor) -> Result<Embedding, ModelError> {
        let mut outputs = self.program(Part::Encoder)?.run(&[("pixels", pixels)])?;
        self.with_embedding(outputs.remove(0).1)
    }

    /// What the decoder needs, from an embedding `f32[1, grid, grid, width]` that was kept.
    pub fn with_embedding(&self, embedding: Tensor) -> Result<Embedding, ModelError> {
        let side = self.program(Part::ImageSide)?.run(&[("embedding", &embedding)])?;
        Ok(Embedding { embedding, side })
    }

    /// Decodes a batch of prompts on one image.
    pub fn decode(
        &self,
        image: &Embedding,
        batch: &PromptBatch,
    ) -> Result<DecodedBatch, ModelError> {
        let &[prompts, points, _] = &batch.points.shape()[..] else {
            let message =
                format!("points must be f32[prompts, points, 2], got {}", batch.points.ty());
            return Err(TensorError::Shape(message).into());
        };
        let shape = PromptShape { prompts, points, masks: batch.masks.is_some() };
        let program = self.program(Part::Decoder(shape))?;
        let mut inputs = vec![("points", &batch.points), ("kinds", &batch.kinds)];
        match &batch.masks {
            Some(masks) => inputs.extend([("masks", masks), ("embedding", &image.embedding)]),
            None => inputs.extend(image.side.iter().map(|(name, tensor)| (name.as_str(), tensor))),
        }
        let mut outputs = program.run(&inputs)?.into_iter();
        let mut next = || outputs.next().expect("a decoder has two outputs").1;
        Ok(DecodedBatch { logits: next(), iou: next() })
    }

    /// The program of a part, compiled the first time.
    fn program(&self, part: Part) -> Result<Arc<dyn Program>, ModelError> {
        // A panic while the lock is held leaves the map as it was: an entry is added whole or not at all.
        let locked = || self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = locked().get(&part) {
            return Ok(Arc::clone(program));
        }
        let program: Arc<dyn Program> =
            self.backend.compile(&self.graph(part)?, &self.weights, &self.profile)?.into();
        let mut programs = locked();
        if programs.len() >= MOST_PROGRAMS {
            programs.retain(|part, _| !matches!(part, Part::Decoder(_)));
        }
        Ok(Arc::clone(programs.entry(part).or_insert(program)))
    }

    fn graph(&self, part: Part) -> Result<Graph, BuildError> {
        match part {
            Part::Encoder => encoder_graph(&self.config),
            Part::ImageSide => image_side_graph(&self.config),
            Part::Decoder(shape) => decoder_graph(&self.config, shape),
        }
    }
}
