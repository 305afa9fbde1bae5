//! Backend for NVIDIA GPUs. It needs the driver and nothing else.
//!
//! A planned graph is lowered to a list of [`launch::Launch`]es: plain data, made and tested without a GPU. A program resolves
//! their addresses, captures them into one CUDA graph and replays it.
#![allow(unsafe_code, reason = "the driver is a C library; only `driver.rs` calls it")]

pub mod bundle;
pub mod digest;
pub mod launch;
pub mod variants;
