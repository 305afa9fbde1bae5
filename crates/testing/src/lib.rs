//! For tests only: fixtures made by PyTorch, the op harness that runs every case on every backend, random graphs.

mod case_tensors;
pub mod fixtures;
mod gated;
pub mod harness;
mod interpreted;
mod outputs;
mod quantized;
mod random;
mod random_graph;
mod rounded;
mod skip;
mod small_sam3;
mod stages;

pub use case_tensors::{case_tensors, input_tensor};
pub use gated::{Gate, Gated};
pub use harness::{Report, check_backend, check_quantized, check_reference_against_fixtures};
pub use interpreted::Interpreted;
pub use outputs::compare_outputs;
pub use quantized::interpret_quantized;
pub use random::Random;
pub use random_graph::RandomGraph;
pub use rounded::with_rounded_products;
pub use skip::skip;
pub use small_sam3::{SmallSam3, rotation_tables};
pub use stages::{StageFile, check_graph, compare_stages};
