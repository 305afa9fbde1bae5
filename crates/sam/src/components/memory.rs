//! Memory encoder, memory attention and object pointers.

mod attention;
mod encoder;
mod pointer;

pub use encoder::MaskSource;

pub use attention::{Bank, FrameMemory, ObjectBank};

pub(crate) use attention::MemoryAttention;
pub(crate) use encoder::{MemoryEncoderInputs, memory_encoder};
pub(crate) use pointer::pointer;
