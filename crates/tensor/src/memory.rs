//! Allocation of user-sized memory: what a file, a flag or a picture decides the size of. Failure is an error here, where
//! `Vec` aborts the process.

use bytemuck::Zeroable;

/// Memory could not be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes of memory could not be allocated")]
pub struct OutOfMemory {
    /// Size of the failed allocation.
    pub bytes: usize,
}

impl OutOfMemory {
    fn of<T>(length: usize) -> Self {
        OutOfMemory { bytes: length.saturating_mul(size_of::<T>()) }
    }
}

/// `length` elements, all bits zero. Pages are touched on first use.
pub fn zeroed<T: Zeroable>(length: usize) -> Result<Vec<T>, OutOfMemory> {
    bytemuck::try_zeroed_vec(length).map_err(|()| OutOfMemory::of::<T>(length))
}

/// An empty vector with room for `length` elements.
pub fn with_capacity<T>(length: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut values = Vec::new();
    values.try_reserve_exact(length).map_err(|_| OutOfMemory::of::<T>(length))?;
    Ok(values)
}

/// A copy of `source`.
pub fn copied<T: Copy>(source: &[T]) -> Result<Vec<T>, OutOfMemory> {
    let mut values = with_capacity(source.len())?;
    values.extend_from_slice(source);
    Ok(values)
}

/// The first `length` elements of an iterator.
pub fn collected<T>(
    length: usize,
    elements: impl IntoIterator<Item = T>,
) -> Result<Vec<T>, OutOfMemory> {
    let mut values = with_capacity(length)?;
    // `take` bounds the number of elements by the capacity, so `extend` never allocates.
    values.extend(elements.into_iter().take(length));
    Ok(values)
}

/// Adds an element to a vector whose length the user decides.
pub fn push<T>(values: &mut Vec<T>, value: T) -> Result<(), OutOfMemory> {
    values.try_reserve(1).map_err(|_| OutOfMemory::of::<T>(values.len() + 1))?;
    values.push(value);
    Ok(())
}

/// Allocates `bytes` and frees them again: called before code of other crates that aborts where it cannot allocate.
pub fn probe(bytes: u64) -> Result<(), OutOfMemory> {
    let bytes = usize::try_from(bytes).map_err(|_| OutOfMemory { bytes: usize::MAX })?;
    with_capacity::<u8>(bytes).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_address_space_is_an_error() {
        let most = usize::MAX;
        assert_eq!(zeroed::<f32>(most).err(), Some(OutOfMemory { bytes: most }));
        assert_eq!(with_capacity::<f32>(most).err(), Some(OutOfMemory { bytes: most }));
        assert!(zeroed::<u8>(most / 4).is_err());
        assert!(collected(most / 4, [1u8]).is_err());
        assert!(probe(u64::MAX).is_err());
        assert!(probe(1 << 20).is_ok());
    }

    #[test]
    fn values_are_copied_and_collected() {
        assert_eq!(zeroed::<u16>(3).unwrap(), [0; 3]);
        assert_eq!(copied(&[1, 2, 3]).unwrap(), [1, 2, 3]);
        assert_eq!(collected(2, [1, 2, 3]).unwrap(), [1, 2]);
        assert_eq!(collected(5, [1, 2, 3]).unwrap(), [1, 2, 3]);
        let mut pushed = Vec::new();
        (0..3).for_each(|value| push(&mut pushed, value).unwrap());
        assert_eq!(pushed, [0, 1, 2]);
    }
}
