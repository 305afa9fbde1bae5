//! Backend for CPUs: SIMD kernels, thread pool, executor.
//!
//! [`Cpu`] compiles a graph: the passes and the memory plan come from `cutout_graph`, `lower` turns each op into a
//! kernel, and a [`CpuProgram`] runs them one after another, each on all threads.
#![allow(unsafe_code, reason = "SIMD kernels and the buffers they share between threads")]

mod backend;
mod execute;
pub mod gemm;
mod kernels;
mod lower;
mod program;
mod rules;
pub mod simd;
pub mod vecmath;

pub use backend::Cpu;
pub use program::{CpuProgram, StepTime};
pub use simd::Isa;
