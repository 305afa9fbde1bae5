//! A model of any family: its configuration, its weights, and the programs that run it on a device.

pub(crate) mod builtin;
pub mod config;
pub(crate) mod inspect;
pub(crate) mod load;
pub mod part;
mod programs;
pub mod tokenizer;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cutout_graph::{
    Backend, BuildError, CompileError, DeviceValue, Graph, Profile, RunError, TransferCounts,
    Weights, flatten, map,
};
use cutout_tensor::{Tensor, TensorError};

use config::ModelConfig;
use part::{Of, Part, Stages, graph_of};
use programs::{Compiled, Programs};
use tokenizer::{Tokenizer, Tokens};

/// Most cached phrases. A full cache is cleared.
const MAX_PHRASES: usize = 256;

/// Why a model cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A graph cannot be built.
    #[error("{}", .0.without_location())]
    Build(#[from] BuildError),
    /// A graph cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A program cannot run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The checkpoint has no detector.
    #[error("the checkpoint has no detector: it cannot find objects by phrase or exemplar")]
    NoDetector,
    /// The checkpoint has no prompt encoder and mask decoder.
    #[error(
        "the checkpoint has no interactive head: it finds objects by phrase or exemplar and not by click, box or mask"
    )]
    NoInteractiveHead,
    /// The checkpoint has no memory encoder and memory attention.
    #[error("the checkpoint has no memory: it cannot track objects through a video")]
    NoMemory,
    /// A score of the model is NaN or infinite.
    #[error("the model answers with a score of {0}: its weights or its input are out of range")]
    NotFinite(f64),
    /// A tensor cannot be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// A model on a device. It runs [parts](Part), each compiled on first use.
pub struct Model {
    config: ModelConfig,
    weights: Arc<Weights>,
    backend: Arc<dyn Backend>,
    profile: Profile,
    programs: Programs,
    tokenizer: OnceLock<Tokenizer>,
    phrases: Mutex<HashMap<Tokens, DeviceValue>>,
}

impl Model {
    /// A model from its configuration and weights, which models on several devices may share.
    pub fn new(
        config: ModelConfig,
        weights: impl Into<Arc<Weights>>,
        backend: Arc<dyn Backend>,
        profile: Profile,
    ) -> Self {
        Model {
            config,
            weights: weights.into(),
            backend,
            profile,
            programs: Programs::default(),
            tokenizer: OnceLock::new(),
            phrases: Mutex::default(),
        }
    }

    /// Sizes and kinds of all parts.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Values that crossed between host and device so far.
    pub fn transfers(&self) -> TransferCounts {
        self.backend.transfers().counts()
    }

    /// A host tensor as a value of the model's device.
    pub fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, ModelError> {
        Ok(self.backend.upload(tensor)?)
    }

    /// Runs a part on the device; no value is fetched.
    pub fn run<P: Part + 'static>(
        &self,
        part: &P,
        inputs: Of<P::Inputs, DeviceValue>,
    ) -> Result<Of<P::Outputs, DeviceValue>, ModelError>
    where
        Of<P::Outputs, usize>: Send + Sync + Clone,
    {
        let compiled = self.compiled(part)?;
        let inputs = flatten::<P::Inputs, _>(inputs);
        let outputs = compiled.program.run(&inputs.iter().collect::<Vec<_>>())?;
        let output = &mut |_: &str, number: usize| outputs[number].clone();
        Ok(map::<P::Outputs, _, _>(compiled.outputs.clone(), output))
    }

    /// Compiles a part ahead of its first run.
    pub(crate) fn prepare<P: Part + 'static>(&self, part: &P) -> Result<(), ModelError>
    where
        Of<P::Outputs, usize>: Send + Sync,
    {
        self.compiled(part).map(drop)
    }

    fn compiled<P: Part + 'static>(&self, part: &P) -> Result<Arc<Compiled<P>>, ModelError>
    where
        Of<P::Outputs, usize>: Send + Sync,
    {
        self.programs.get(part, || {
            let (graph, outputs) = graph_of(part, &self.config, Stages::Hidden)?;
            let program = self.backend.compile(&graph, &self.weights, &self.profile)?;
            Ok(Compiled { program, outputs })
        })
    }

    /// Drops compiled programs and packed weights; they are rebuilt on use.
    pub fn evict(&self) {
        self.programs.clear();
        self.weights.evict();
    }

    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        self.tokenizer.get_or_init(Tokenizer::new)
    }

    /// The features of a phrase: cached, or computed by `encode`.
    pub(crate) fn phrase(
        &self,
        tokens: &Tokens,
        encode: impl FnOnce() -> Result<DeviceValue, ModelError>,
    ) -> Result<DeviceValue, ModelError> {
        // A panic while the lock is held leaves the map as it was: an entry is added whole or not at all.
        let locked = || self.phrases.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = locked().get(tokens) {
            return Ok(known.clone());
        }
        let features = encode()?;
        let mut phrases = locked();
        if phrases.len() >= MAX_PHRASES {
            phrases.clear();
        }
        Ok(phrases.entry(tokens.clone()).or_insert(features).clone())
    }

    /// The graph of a part without its ports.
    pub(crate) fn graph<P: Part>(&self, part: &P) -> Result<Graph, ModelError> {
        Ok(graph_of(part, &self.config, Stages::Hidden)?.0)
    }
}
