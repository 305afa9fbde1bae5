//! Memory encoder, memory attention and object pointers.

mod attention;
mod bucket;
mod encoder;
mod pointer;

pub use encoder::MaskSource;

pub use attention::{Bank, FrameMemory, ObjectBank};

pub(crate) use attention::MemoryAttention;
pub(crate) use bucket::{BucketMasks, bucket_memory};
pub(crate) use encoder::{MemoryEncoderInputs, memory_encoder};
pub(crate) use pointer::{Pointed, hidden_unless, pointer};
