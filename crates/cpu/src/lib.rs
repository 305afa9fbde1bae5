//! Backend for CPUs: SIMD kernels, thread pool, executor.
#![allow(unsafe_code, reason = "SIMD kernels and the buffers they share between threads")]

pub mod ceiling;
pub mod gemm;
pub mod memory;
pub mod pool;
pub mod simd;
pub mod vecmath;
