//! The programs of one model, compiled the first time each is asked for.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use cutout_graph::{Backend, BuildError, CompileError, Graph, Profile, Program, RunError, Weights};
use cutout_tensor::TensorError;

/// Programs kept at most; beyond, all are dropped and compiled again when asked for, in milliseconds. Packed weights
/// stay: they belong to the weights.
const MOST_PROGRAMS: usize = 32;

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
    /// The checkpoint has no part that understands phrases and exemplars.
    #[error("the checkpoint has no detector: it cannot find objects by phrase or exemplar")]
    NoDetector,
    /// The checkpoint has no part that answers clicks.
    #[error(
        "the checkpoint has no interactive head: it finds objects by phrase or exemplar and not by click, box or mask"
    )]
    NoInteractiveHead,
    /// A tensor cannot be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// What programs are compiled from, and how.
pub(crate) struct Setting {
    pub(crate) weights: Weights,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) profile: Profile,
}

/// The programs that were compiled in a setting so far. `Part` says which program.
pub(crate) struct Programs<Part> {
    setting: Setting,
    compiled: Mutex<HashMap<Part, Arc<dyn Program>>>,
}

impl<Part: Copy + Eq + Hash> Programs<Part> {
    pub(crate) fn new(weights: Weights, backend: Arc<dyn Backend>, profile: Profile) -> Self {
        Programs { setting: Setting { weights, backend, profile }, compiled: Mutex::default() }
    }

    /// The program of a part, whose graph is built if it is not compiled yet.
    pub(crate) fn get(
        &self,
        part: Part,
        graph: impl FnOnce(Part) -> Result<Graph, BuildError>,
    ) -> Result<Arc<dyn Program>, ModelError> {
        // A panic while the lock is held leaves the map as it was: an entry is added whole or not at all.
        let locked = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = locked().get(&part) {
            return Ok(Arc::clone(program));
        }
        let Setting { weights, backend, profile } = &self.setting;
        let program: Arc<dyn Program> = backend.compile(&graph(part)?, weights, profile)?.into();
        let mut compiled = locked();
        if compiled.len() >= MOST_PROGRAMS {
            compiled.clear();
        }
        Ok(Arc::clone(compiled.entry(part).or_insert(program)))
    }

    pub(crate) fn setting(&self) -> &Setting {
        &self.setting
    }
}
