//! Aligned memory whose size a model decides.

use bytemuck::{AnyBitPattern, NoUninit};
use cutout_parallel::AlignedBuffer;
use cutout_tensor::TensorError;

/// A buffer of `length` elements, all bits zero; an error if the memory cannot be allocated.
pub(crate) fn zeroed<T: AnyBitPattern + NoUninit>(
    length: usize,
) -> Result<AlignedBuffer<T>, TensorError> {
    let missing = || TensorError::OutOfMemory(length.saturating_mul(size_of::<T>()));
    AlignedBuffer::try_zeroed(length).ok_or_else(missing)
}
