//! Aligned memory for packed weights, scratch and the arena.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::{AnyBitPattern, NoUninit};
use cutout_graph::Packed;

use crate::gemm::PackedWeights;
use crate::gemm::int8::PackedInt8;

/// Alignment of every buffer: a cache line, and the widest vector.
pub const CACHE_LINE: usize = 64;
/// Size and alignment of a huge page.
pub const HUGE_PAGE: usize = 2 << 20;

/// A fixed number of elements, aligned to a cache line.
///
/// From 2 MiB on it is aligned to huge pages and asks the operating system for them, as many as it fills: fewer page faults
/// while it is filled and fewer misses of the translation cache afterwards.
pub struct AlignedBuffer<T: AnyBitPattern + NoUninit> {
    pointer: NonNull<T>,
    len: usize,
    layout: Layout,
    elements: PhantomData<T>,
}

// SAFETY: the buffer owns its elements as a `Vec<T>` does.
unsafe impl<T: AnyBitPattern + NoUninit + Send> Send for AlignedBuffer<T> {}
// SAFETY: a shared buffer only gives shared access to its elements.
unsafe impl<T: AnyBitPattern + NoUninit + Sync> Sync for AlignedBuffer<T> {}

impl<T: AnyBitPattern + NoUninit> AlignedBuffer<T> {
    /// A buffer of `len` elements, all bits zero.
    ///
    /// Aborts like `Vec` when memory runs out, and panics where `len` elements exceed the address space.
    pub fn zeroed(len: usize) -> Self {
        let bytes = len.saturating_mul(size_of::<T>());
        match Self::try_zeroed(len) {
            Some(buffer) => buffer,
            None => match Layout::from_size_align(bytes, CACHE_LINE) {
                Ok(layout) => handle_alloc_error(layout),
                Err(_) => panic!("{len} elements do not fit the address space"),
            },
        }
    }

    /// A buffer of `len` elements, all bits zero, or `None` when there is no memory for it.
    pub fn try_zeroed(len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<T>())?;
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { CACHE_LINE };
        // Whole cache lines: no two buffers share one. Not whole huge pages: the last would be half empty on average.
        let bytes = bytes.max(1).checked_next_multiple_of(CACHE_LINE)?;
        let layout = Layout::from_size_align(bytes, align).ok()?;
        assert!(align_of::<T>() <= CACHE_LINE);
        // SAFETY: the layout's size is not zero.
        let raw = unsafe { alloc(layout) };
        let pointer = NonNull::new(raw)?;
        advise_huge_pages(pointer.as_ptr(), &layout);
        // SAFETY: the allocation has `bytes` bytes.
        unsafe { pointer.as_ptr().write_bytes(0, bytes) };
        Some(AlignedBuffer { pointer: pointer.cast(), len, layout, elements: PhantomData })
    }

    /// A buffer with the elements of `source`.
    pub fn copied_from(source: &[T]) -> Self {
        let mut buffer = Self::zeroed(source.len());
        buffer.copy_from_slice(source);
        buffer
    }
}

/// Asks for the huge pages that lie wholly inside an allocation aligned to them. A refusal only costs speed.
fn advise_huge_pages(pointer: *mut u8, layout: &Layout) {
    #[cfg(target_os = "linux")]
    if layout.align() == HUGE_PAGE {
        let whole = layout.size() / HUGE_PAGE * HUGE_PAGE;
        // SAFETY: the range is whole pages of one allocation that was just made; the advice does not change contents.
        unsafe { libc::madvise(pointer.cast(), whole, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (pointer, layout);
}

impl<T: AnyBitPattern + NoUninit> Deref for AlignedBuffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the allocation holds `len` initialised elements and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }
}

impl<T: AnyBitPattern + NoUninit> DerefMut for AlignedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len) }
    }
}

impl<T: AnyBitPattern + NoUninit> Drop for AlignedBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout, and not freed before.
        unsafe { dealloc(self.pointer.as_ptr().cast(), self.layout) };
    }
}

impl Packed for AlignedBuffer<f32> {
    fn bytes(&self) -> usize {
        size_of_val(&**self)
    }
}

impl Packed for PackedWeights {
    fn bytes(&self) -> usize {
        self.bytes()
    }
}

impl Packed for PackedInt8 {
    fn bytes(&self) -> usize {
        self.bytes()
    }
}

impl<T: AnyBitPattern + NoUninit + std::fmt::Debug> std::fmt::Debug for AlignedBuffer<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AlignedBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_writable() {
        for len in [0, 1, 15, 16, 1000, HUGE_PAGE / 4, HUGE_PAGE / 4 + 1] {
            let mut buffer = AlignedBuffer::<f32>::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr() as usize % CACHE_LINE, 0);
            if len * 4 >= HUGE_PAGE {
                assert_eq!(buffer.as_ptr() as usize % HUGE_PAGE, 0);
            }
            assert!(buffer.iter().all(|&x| x == 0.0));
            buffer.fill(2.0);
            assert!(buffer.iter().all(|&x| x == 2.0));
        }
        assert_eq!(AlignedBuffer::copied_from(&[1i8, 2, 3])[..], [1, 2, 3]);
    }
}
