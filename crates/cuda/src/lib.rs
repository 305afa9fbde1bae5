//! Backend for NVIDIA GPUs. It needs the driver and nothing else.
//!
//! A planned graph is lowered to a list of [`launch::Launch`]es: plain data, made and tested without a GPU. A program resolves
//! their addresses, captures them into one CUDA graph and replays it. Kernels are compiled ahead of time; [`bundle`] has them.

mod backend;
pub mod bundle;
pub mod check;
#[allow(unsafe_code, reason = "the driver is a C library")]
mod driver;
pub mod fast;
pub mod launch;
pub mod lower;
pub mod order;
mod program;
mod report;
mod rules;
pub mod variants;
mod weights;

pub use backend::Cuda;
pub use driver::{Card, DeviceError, cards};
pub use rules::CudaRules;
pub use weights::Form;
