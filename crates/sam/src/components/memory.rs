//! What carries objects from frame to frame: memories of frames, and the attention that reads them.

mod attention;
mod encoder;
mod pointer;
mod positions;

pub use encoder::MaskSource;

pub use attention::{Bank, FrameMemory, ObjectBank};

pub(crate) use attention::MemoryAttention;
pub(crate) use encoder::{MemoryEncoderInputs, memory_encoder};
pub(crate) use pointer::pointer;
