//! The readers.

mod checkpoints;
mod clips;
mod masks;
mod pictures;
mod requests;
mod scenes;
mod texts;

pub use checkpoints::{gguf, safetensors, torch_pickle, torch_zip};
pub use pictures::jpeg;

/// One reader, with valid inputs to mutate.
pub struct Target {
    /// Name on the command line.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Makes the valid inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words that mutations insert.
    pub words: &'static [&'static str],
    /// Reads an input. Returns whether it was accepted.
    pub read: fn(&[u8]) -> bool,
    /// Most memory that an input may take, in bytes, beyond a multiple of its own length.
    pub memory: usize,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    checkpoints::SAFETENSORS,
    checkpoints::GGUF,
    checkpoints::TORCH_ZIP,
    checkpoints::TORCH_PICKLE,
    pictures::PICTURES,
    pictures::JPEG,
    clips::CLIPS,
    clips::RAW_FRAMES,
    masks::NPY,
    masks::MASKS,
    masks::RLE,
    texts::PROFILES,
    texts::PROMPTS,
    requests::REQUESTS,
    scenes::SCENES,
];
