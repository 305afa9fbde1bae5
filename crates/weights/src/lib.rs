//! Checkpoint files to named tensors, and back.
//!
//! [`Checkpoint::open`] maps a safetensors, PyTorch or GGUF file into memory, recognises the format by content, and lists
//! its tensors without reading any of them; [`Checkpoint::tensor`] is a view of the mapped file wherever the element type
//! allows. [`write_safetensors`] and [`write_gguf`] write files whole or not at all. [`layout`] knows how the names of
//! Meta's and Hugging Face's checkpoints correspond, and which model a set of tensors belongs to.
//!
//! A checkpoint is never trusted: every size is compared with the file and with [`limits`] before memory is set aside, no
//! code of a pickle is ever run, and no path in a file is ever opened. Errors name the file, the tensor, what was wanted
//! and what was found.

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
