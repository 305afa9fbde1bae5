//! The memory behind tensors.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::NoUninit;

/// Memory that tensors are views of: a `Vec`, or a memory-mapped file.
pub trait Bytes: AsRef<[u8]> + Send + Sync {
    /// Hints that these bytes are unlikely to be read again. A memory-mapped file drops the pages from memory; a later
    /// read loads them again. Other storage ignores the hint.
    fn release(&self, _range: Range<usize>) {}

    /// Whether the bytes are those of a mapped file, of which reads make whole pages resident.
    fn is_mapped(&self) -> bool {
        false
    }
}

impl Bytes for Vec<u8> {}

/// Bytes shared by several tensors.
pub type SharedBytes = Arc<dyn Bytes>;

/// A vector exposed as bytes; keeps the alignment of its elements.
pub(crate) struct Owned<T>(pub(crate) Vec<T>);

impl<T: NoUninit> AsRef<[u8]> for Owned<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl<T: NoUninit + Send + Sync> Bytes for Owned<T> {}
