//! Backend for CPUs: SIMD kernels, thread pool, executor.
//!
//! [`Cpu`] is the backend: `cutout_graph` optimises and plans a graph, `lower` turns each op into a kernel, and a program runs them one after another, each on all threads.
#![allow(unsafe_code, reason = "SIMD kernels and the buffers they share between threads")]

mod backend;
mod core_kind;
mod execute;
pub mod gemm;
mod kernels;
mod lower;
mod memory;
mod program;
mod rules;
pub mod simd;
mod tiles;
pub mod vecmath;

pub use backend::{Cpu, Units};
pub use gemm::{ByteConvolutions, ByteUnit, HalfUnit, strassen_rule};
pub use simd::Isa;
