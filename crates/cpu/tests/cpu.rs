//! The CPU backend: kernels, programs and memory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod byte_attention;
mod byte_convolutions;
mod errors;
mod images;
mod many_windows;
mod ops;
mod outputs;
mod random_graphs;
mod rowwise;
mod sharing;
mod weight_memory;
mod winograd;
