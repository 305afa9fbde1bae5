//! The intermediate representation of every model, from building it to the memory plan.
//!
//! `build → verify → passes → plan → run`: a [`Builder`] makes a [`Graph`] of [`Op`]s, [`passes`] rewrite it, a
//! [`plan`] places its values in memory, and a [`Backend`] turns it into a [`Program`]. [`interpret`] runs the same
//! graph by each op's plain-loop definition: slow, obvious, and the oracle for everything else.
//!
//! This crate does no input or output and has no `unsafe`.

mod backend;
mod builder;
pub mod cases;
mod dense;
mod device;
pub mod explain;
mod graph;
mod interpret;
mod layout;
mod op;
pub mod ops;
pub mod passes;
pub mod plan;
mod ports;
mod print;
mod profile;
mod real;
mod scope;
mod value;
mod verify;
mod weights;

pub use backend::{
    Backend, CompileError, Named, Planned, Port, Program, RunError, StepTime, check_inputs,
};
pub use builder::{BuildError, Builder};
pub use cases::Case;
pub use dense::{Data, DenseTensor, broadcast_position, ravel, unravel};
pub use device::{DeviceStorage, DeviceValue, TransferCounts, Transfers};
pub use graph::{Constant, Graph, Kind, Node, NodeId, Origin};
pub use interpret::{interpret, interpret_in, interpret_with};
pub use layout::Layout;
pub use op::{Cost, OpDef, OpError};
pub use ops::Op;
pub use ports::{Ports, flatten, map, port_name};
pub use profile::{Device, MAX_THREADS, Precision, Profile, ProfileError, StoredProfile};
pub use real::Real;
pub use scope::Scope;
pub use value::{Reduced, Value};
pub use verify::{VerifyError, verify};
pub use weights::{BindError, DeviceWeights, Packed, StaticTensor, WeightMemory, Weights};
