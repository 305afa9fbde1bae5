//! What a device must offer: compile a graph, run the program.

use cutout_tensor::{Tensor, TensorError, TensorType};

use crate::graph::Graph;
use crate::{BindError, Profile, VerifyError, Weights};

/// A device that compiles graphs.
pub trait Backend: Send + Sync {
    /// Name for people: "cpu (avx512, 2 threads)".
    fn name(&self) -> String;

    /// Verifies, optimises and plans `graph` and packs its weights, which are not kept beside what they are packed into.
    /// What was packed or folded for an earlier program over the same weights is shared with it.
    fn compile(
        &self,
        graph: &Graph,
        weights: &Weights,
        profile: &Profile,
    ) -> Result<Box<dyn Program>, CompileError>;
}

/// A named tensor: an input of a run, or a result.
pub type Named = (String, Tensor);

/// A compiled graph: a pure function that can be called from several threads.
pub trait Program: Send + Sync {
    /// Runs on inputs given in any order; the outputs come in the graph's order.
    fn run(&self, inputs: &[(&str, &Tensor)]) -> Result<Vec<Named>, RunError>;

    /// Bytes of activations one run needs.
    fn arena_bytes(&self) -> usize;
}

/// Why a graph cannot be compiled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CompileError {
    /// The graph is malformed.
    #[error("the graph is malformed: {0}")]
    Verify(#[from] VerifyError),
    /// The weights do not fit.
    #[error("the weights do not fit the model:\n{0}")]
    Bind(#[from] BindError),
    /// A weight cannot be read.
    #[error("{path}: {error}")]
    Weight {
        /// The weight, or what is derived from it.
        path: String,
        /// What is wrong.
        error: TensorError,
    },
    /// The activations would not fit.
    #[error("the program needs {needed} bytes of activations, the limit is {limit}")]
    Memory {
        /// Bytes needed.
        needed: usize,
        /// Bytes allowed by the profile or the address space.
        limit: usize,
    },
    /// The backend cannot run this.
    #[error("{op}: {reason}")]
    Unsupported {
        /// The op, as printed.
        op: String,
        /// Why not.
        reason: String,
    },
}

/// Why a run cannot start or go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// A name the graph does not have.
    #[error("unknown input {name:?}; the inputs are {known}")]
    UnknownInput {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// An input is not given.
    #[error("input {0:?} is missing")]
    MissingInput(String),
    /// An input is given twice.
    #[error("input {0:?} is given twice")]
    RepeatedInput(String),
    /// An input has another type.
    #[error("input {name:?} must be {expected}, got {found}")]
    InputType {
        /// The input.
        name: String,
        /// Type in the graph.
        expected: TensorType,
        /// Type given.
        found: TensorType,
    },
    /// The weights do not fit.
    #[error("the weights do not fit the model:\n{0}")]
    Bind(#[from] BindError),
    /// A tensor cannot be read.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// An input's values are outside what the op is defined on (an index beyond its table).
    #[error("{op}: {reason}")]
    Value {
        /// The op, as printed.
        op: String,
        /// What is wrong.
        reason: String,
    },
    /// Memory for the activations could not be had.
    #[error("{0} bytes of memory for activations could not be allocated")]
    OutOfMemory(usize),
    /// A thread could not have the memory it works in.
    #[error("{op}: {bytes} bytes of scratch memory could not be allocated")]
    Scratch {
        /// Name of the op.
        op: &'static str,
        /// How much one thread needs.
        bytes: usize,
    },
}

/// The inputs of a run in the order `expected` declares them, each checked by name and type.
pub fn check_inputs<'a>(
    expected: &[(String, TensorType)],
    given: &[(&str, &'a Tensor)],
) -> Result<Vec<&'a Tensor>, RunError> {
    for (index, (name, _)) in given.iter().enumerate() {
        if !expected.iter().any(|(known, _)| known == name) {
            let known: Vec<&str> = expected.iter().map(|(known, _)| known.as_str()).collect();
            return Err(RunError::UnknownInput {
                name: (*name).to_owned(),
                known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
            });
        }
        if given[..index].iter().any(|(other, _)| other == name) {
            return Err(RunError::RepeatedInput((*name).to_owned()));
        }
    }
    let find = |(name, ty): &(String, TensorType)| {
        let found = given.iter().find(|(given, _)| given == name);
        let &(_, tensor) = found.ok_or_else(|| RunError::MissingInput(name.clone()))?;
        if tensor.ty() == ty {
            return Ok(tensor);
        }
        let (expected, found) = (ty.clone(), tensor.ty().clone());
        Err(RunError::InputType { name: name.clone(), expected, found })
    };
    expected.iter().map(find).collect()
}
