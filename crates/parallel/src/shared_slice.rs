//! A slice whose disjoint parts are written by several threads.

/// A mutable slice that hands out disjoint parts to several threads.
pub struct SharedSlice<T> {
    pointer: *mut T,
    length: usize,
}

// SAFETY: parts are handed out by an `unsafe` function whose callers keep them disjoint; elements are `Send`.
unsafe impl<T: Send> Sync for SharedSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for SharedSlice<T> {}

impl<T> SharedSlice<T> {
    /// Shares `slice`.
    pub fn new(slice: &mut [T]) -> Self {
        SharedSlice { pointer: slice.as_mut_ptr(), length: slice.len() }
    }

    /// The elements `start..start + length`.
    ///
    /// # Safety
    ///
    /// The slice passed to [`SharedSlice::new`] is still borrowed, and no overlapping part is alive.
    #[expect(clippy::mut_from_ref, reason = "callers keep the parts disjoint")]
    pub unsafe fn part(&self, start: usize, length: usize) -> &mut [T] {
        assert!(
            start <= self.length && length <= self.length - start,
            "a part lies inside the slice"
        );
        // SAFETY: inside the slice as just checked.
        let first = unsafe { self.pointer.add(start) };
        // SAFETY: inside the slice, and unique by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(first, length) }
    }
}
