//! Readers and writers of checkpoint files: safetensors, PyTorch and GGUF.
//!
//! [`Checkpoint::open`] memory-maps a file, detects the format from its content, and lists the tensors without reading
//! them. [`Checkpoint::tensor`] returns a view of the mapped file, or a decoded copy for types that need decoding.
//! [`write_safetensors`] and [`write_gguf`] write a file completely or leave the old one in place. [`layout`] identifies
//! the model that a set of tensors belongs to, and translates Hugging Face's tensor names to Meta's.
//!
//! Files are untrusted input. Every size is checked against the file length and against [`limits`] before memory is
//! allocated; pickles are interpreted without calling any code; paths in a file are never opened. Errors name the file,
//! the tensor, the expected value and the actual one.

#[cfg(target_endian = "big")]
compile_error!("tensors are views of little-endian files, so the machine must be little-endian");

mod checkpoint;
mod cursor;
mod error;
mod gguf;
pub mod layout;
pub mod limits;
mod metadata;
mod mmap;
mod nearest;
mod outgoing;
mod output;
mod safetensors;
mod stored;
mod torch;
mod zip;

pub use checkpoint::{Checkpoint, TensorInfo};
pub use error::{Format, Problem, WeightsError};
pub use gguf::blocks::BlockType;
pub use gguf::write::{Encoding, write_gguf};
pub use metadata::{Metadata, MetadataValue};
pub use outgoing::{LeftOut, Outgoing, OutgoingTensor};
pub use safetensors::write::{write_safetensors, write_safetensors_in_turn};
pub use stored::StoredType;
