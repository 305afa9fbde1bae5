//! The Segment Anything models and their public API.
//!
//! Components are graphs built by functions from values to values; `sam1` assembles them. Nothing here names a device:
//! programs are compiled by the backend that a model is opened with.

mod checkpoint;
pub mod config;
pub mod decoder;
mod image_encoder;
mod layers;
pub mod mask_choice;
mod mask_decoder;
pub mod memory;
mod model;
mod prompt;
pub mod prompt_encoder;
pub mod sam1;
pub mod sam2;
mod two_way_transformer;

pub use checkpoint::OpenError;
pub use model::{DecodedBatch, Embedding, ModelError, PromptBatch, Sam1};
pub use prompt::{Candidates, Label, Mapping, Point, Prompt, PromptError, Rect};
