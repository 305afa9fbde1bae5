//! The `Backend` trait and the compile driver shared by all backends:
//! `verify → shared passes → the backend's passes → plan → lower`.

use std::time::Duration;

use cutout_tensor::{Shape, Tensor, TensorError, TensorType, memory};

use crate::graph::{Graph, NodeId};
use crate::passes::{self, Pass};
use crate::plan::{self, Plan, Rules};
use crate::weights::DeviceWeights;
use crate::{BindError, DeviceValue, Profile, Transfers, VerifyError, Weights, verify};

/// A device: its kernel rules, its passes, and the lowering of planned graphs.
pub trait Backend: Send + Sync {
    /// Name for people: "cpu (avx512, 2 threads)".
    fn name(&self) -> String;

    /// Key of the device in caches of packed weights.
    fn device(&self) -> &str;

    /// Memory rules of the kernels, and element types in storage, for programs compiled with `profile`.
    fn rules<'a>(&'a self, profile: &'a Profile) -> Box<dyn Rules + 'a>;

    /// Largest useful batch of pictures or objects. Larger batches cost memory and are not faster.
    fn batch_limit(&self) -> usize;

    /// Whether the host reads a value of this device where it lies: fetching one then copies nothing.
    fn values_are_on_host(&self) -> bool;

    /// Passes of this backend alone, which run after the shared ones.
    fn passes(&self) -> &[Pass] {
        &[]
    }

    /// Turns every step of a plan into a kernel call and packs the weights.
    fn lower(&self, planned: &Planned<'_>) -> Result<Box<dyn Program>, CompileError>;

    /// A host tensor as a value of this device.
    fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, RunError>;

    /// Bytes that the caller keeps as a value `u8` of this device. A device with memory of its own copies them there without another copy
    /// on the host.
    fn upload_bytes(&self, shape: &Shape, bytes: &[u8]) -> Result<DeviceValue, RunError> {
        let own = memory::copied(bytes).map_err(TensorError::from)?;
        self.upload(&Tensor::from_vec(shape.clone(), own)?)
    }

    /// Counts every upload, and every fetch of a value of this device.
    fn transfers(&self) -> &Transfers;

    /// Waits until everything that was started is done. A device that computes while the host goes on needs it before a clock is read.
    fn synchronize(&self) -> Result<(), RunError> {
        Ok(())
    }

    /// Compiles a graph. Weights that were packed or folded for an earlier program are shared with it.
    fn compile(
        &self,
        graph: &Graph,
        weights: &Weights,
        profile: &Profile,
    ) -> Result<Box<dyn Program>, CompileError> {
        verify(graph)?;
        weights.check(graph)?;
        let context = passes::Context::new(Some(weights), profile);
        let graph = passes::optimize(graph, self.passes(), &context)?;
        let plan = plan::plan(&graph, &*self.rules(profile));
        let limit =
            profile.memory_limit_mib.map_or(isize::MAX as usize, |mib| mib.saturating_mul(1 << 20));
        if plan.activation_bytes() > limit {
            return Err(CompileError::Memory { needed: plan.activation_bytes(), limit });
        }
        let weights = weights.on(self.device());
        self.lower(&Planned { graph: &graph, plan: &plan, weights, profile })
    }
}

/// A graph with its plan, ready to be lowered.
pub struct Planned<'a> {
    /// The graph after all passes.
    pub graph: &'a Graph,
    /// Schedule and memory.
    pub plan: &'a Plan,
    /// The weights, as this device keeps them.
    pub weights: DeviceWeights<'a>,
    /// How the graph is compiled.
    pub profile: &'a Profile,
}

/// An input or output of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Name in printed graphs and messages.
    pub name: String,
    /// Type of the value.
    pub ty: TensorType,
}

impl Port {
    /// The inputs of a graph, in order.
    pub fn inputs(graph: &Graph) -> Vec<Port> {
        let port =
            |(name, id): (&str, NodeId)| Port { name: name.to_owned(), ty: graph.ty(id).clone() };
        graph.inputs().map(port).collect()
    }
}

/// A named tensor: an input of a run, or a result.
pub type Named = (String, Tensor);

/// How long one step of a run took.
#[derive(Clone, Debug)]
pub struct StepTime {
    /// Name of the op, or "copy".
    pub op: &'static str,
    /// The node of the optimised graph.
    pub node: NodeId,
    /// Wall time.
    pub time: Duration,
}

/// A compiled graph: a pure function that can be called from several threads.
pub trait Program: Send + Sync {
    /// The inputs, in the order that [`Program::run`] takes them.
    fn inputs(&self) -> &[Port];

    /// Names of the outputs, in the order that [`Program::run`] returns them.
    fn outputs(&self) -> Vec<&str>;

    /// Runs on values in the order of [`Program::inputs`]. Values of another device are fetched and uploaded.
    fn run(&self, inputs: &[&DeviceValue]) -> Result<Vec<DeviceValue>, RunError>;

    /// Runs and measures each step.
    fn run_timed(
        &self,
        inputs: &[&DeviceValue],
    ) -> Result<(Vec<DeviceValue>, Vec<StepTime>), RunError>;

    /// A host tensor as a value of the program's device.
    fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, RunError>;

    /// Bytes of memory that one run needs beside its inputs: temporary memory and outputs.
    fn activation_bytes(&self) -> usize;

    /// Bytes that the program itself holds while it is not running: constants that belong to no weight.
    fn held_bytes(&self) -> usize;
}

impl dyn Program + '_ {
    /// Runs on host tensors, given by name in any order, and fetches the results: for tests and tools.
    pub fn run_named(&self, inputs: &[(&str, &Tensor)]) -> Result<Vec<Named>, RunError> {
        let values = self.upload_all(inputs)?;
        let outputs = self.run(&values.iter().collect::<Vec<_>>())?;
        self.named(outputs)
    }

    /// Like `run_named`, with the time of each step.
    pub fn run_named_timed(
        &self,
        inputs: &[(&str, &Tensor)],
    ) -> Result<(Vec<Named>, Vec<StepTime>), RunError> {
        let values = self.upload_all(inputs)?;
        let (outputs, times) = self.run_timed(&values.iter().collect::<Vec<_>>())?;
        Ok((self.named(outputs)?, times))
    }

    fn upload_all(&self, inputs: &[(&str, &Tensor)]) -> Result<Vec<DeviceValue>, RunError> {
        let ordered = check_inputs(self.inputs(), inputs)?;
        ordered.into_iter().map(|tensor| self.upload(tensor)).collect()
    }

    fn named(&self, outputs: Vec<DeviceValue>) -> Result<Vec<Named>, RunError> {
        let named = |(name, value): (&str, DeviceValue)| Ok((name.to_owned(), value.fetch()?));
        self.outputs().into_iter().zip(outputs).map(named).collect()
    }
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
    #[error("{}", unreadable_weight(path, error))]
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
    /// The program does not fit the memory of the device.
    #[error(
        "the program needs {} MiB of GPU memory ({} of weights, {} of activations), and {} MiB are available; a smaller model, fewer prompts or objects at a time, or the processor would fit",
        mebibytes(weights + activations), mebibytes(*weights), mebibytes(*activations), available >> 20
    )]
    DeviceMemory {
        /// Bytes of all its weights.
        weights: usize,
        /// Bytes of activations, inputs and outputs.
        activations: usize,
        /// Bytes that it could have: what is free, or the rest of the limit, and what it holds already.
        available: usize,
    },
    /// The device failed: its driver's words.
    #[error("{what}: {reason}")]
    Device {
        /// What it was doing.
        what: String,
        /// What is wrong.
        reason: String,
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

/// A weight whose numbers were found wrong is named by the error, with its file; `path` may be an expression of it.
fn unreadable_weight(path: &str, error: &TensorError) -> String {
    match error {
        TensorError::Weight { .. } => error.to_string(),
        TensorError::Length { .. }
        | TensorError::Type { .. }
        | TensorError::NotContiguous { .. }
        | TensorError::InvalidBits(_)
        | TensorError::Shape(_)
        | TensorError::TooLarge(_)
        | TensorError::OutOfMemory(_)
        | TensorError::NotFinite { .. }
        | TensorError::Range { .. } => format!("{path}: {error}"),
    }
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
    /// Another number of values than the program has inputs.
    #[error("the program has {expected} inputs, got {found}")]
    InputCount {
        /// Inputs of the program.
        expected: usize,
        /// Values given.
        found: usize,
    },
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
    /// The activations could not be allocated.
    #[error("{0} bytes of memory for activations could not be allocated")]
    OutOfMemory(usize),
    /// The memory of the device is used up.
    #[error(
        "{bytes} bytes of GPU memory could not be allocated, {available} are available; fewer prompts or objects at a time, a smaller model or the processor would fit"
    )]
    DeviceMemory {
        /// Bytes asked for.
        bytes: usize,
        /// Bytes that could be had.
        available: usize,
    },
    /// The device failed: its driver's words.
    #[error("the device failed: {0}")]
    Device(String),
    /// The scratch memory of a thread could not be allocated.
    #[error("{op}: {bytes} bytes of scratch memory could not be allocated")]
    Scratch {
        /// Name of the op.
        op: &'static str,
        /// How much one thread needs.
        bytes: usize,
    },
}

/// Whole MiB that hold these bytes.
fn mebibytes(bytes: usize) -> usize {
    bytes.div_ceil(1 << 20)
}

/// The inputs of a run in the order `expected` declares them, each checked by name and type.
pub fn check_inputs<'a>(
    expected: &[Port],
    given: &[(&str, &'a Tensor)],
) -> Result<Vec<&'a Tensor>, RunError> {
    for (index, (name, _)) in given.iter().enumerate() {
        if !expected.iter().any(|port| port.name == *name) {
            let known: Vec<&str> = expected.iter().map(|port| port.name.as_str()).collect();
            return Err(RunError::UnknownInput {
                name: (*name).to_owned(),
                known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
            });
        }
        if given[..index].iter().any(|(other, _)| other == name) {
            return Err(RunError::RepeatedInput((*name).to_owned()));
        }
    }
    let find = |port: &Port| {
        let found = given.iter().find(|(name, _)| *name == port.name);
        let &(_, tensor) = found.ok_or_else(|| RunError::MissingInput(port.name.clone()))?;
        port.check(tensor.ty())?;
        Ok(tensor)
    };
    expected.iter().map(find).collect()
}

impl Port {
    /// Checks the type of what is given at this port.
    pub fn check(&self, found: &TensorType) -> Result<(), RunError> {
        if *found == self.ty {
            return Ok(());
        }
        let (name, expected, found) = (self.name.clone(), self.ty.clone(), found.clone());
        Err(RunError::InputType { name, expected, found })
    }
}
