//! Aligned memory for packed weights, scratch and the arena.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
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
        assert!(align_of::<T>() <= CACHE_LINE);
        let bytes = len.checked_mul(size_of::<T>())?;
        // Whole cache lines: no two buffers share one. Not whole huge pages: the last would be half empty on average.
        let bytes = bytes.max(1).checked_next_multiple_of(CACHE_LINE)?;
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { CACHE_LINE };
        let layout = Layout::from_size_align(bytes, align).ok()?;
        let pointer = if bytes >= HUGE_PAGE { map(&layout) } else { allocate(&layout) }?;
        Some(AlignedBuffer { pointer: pointer.cast(), len, layout, elements: PhantomData })
    }

    /// A buffer with the elements of `source`.
    pub fn copied_from(source: &[T]) -> Self {
        let mut buffer = Self::zeroed(source.len());
        buffer.copy_from_slice(source);
        buffer
    }
}

/// Zeroed memory of the heap.
fn allocate(layout: &Layout) -> Option<NonNull<u8>> {
    // SAFETY: the layout's size is not zero.
    NonNull::new(unsafe { alloc_zeroed(*layout) })
}

/// Zeroed memory of its own, in huge pages where the system has them. It is zero without being written, so that whoever
/// writes first pays for a page, on all threads at once where several fill the buffer.
#[cfg(target_os = "linux")]
fn map(layout: &Layout) -> Option<NonNull<u8>> {
    let kept = mapped_bytes(layout)?;
    let whole = kept.checked_add(layout.align())?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping wherever the system wants it.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), whole, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    let before = start.addr().wrapping_neg() % layout.align();
    let pointer = start.wrapping_byte_add(before);
    let after = whole - before - kept;
    for (start, length) in [(start, before), (pointer.wrapping_byte_add(kept), after)] {
        if length > 0 {
            // SAFETY: whole pages before or after what is kept, of a mapping that was just made and that nobody uses yet.
            unsafe { libc::munmap(start, length) };
        }
    }
    let huge = layout.size() / HUGE_PAGE * HUGE_PAGE;
    // SAFETY: whole pages of what is kept; the advice does not change contents. A refusal only costs speed.
    unsafe { libc::madvise(pointer, huge, libc::MADV_HUGEPAGE) };
    NonNull::new(pointer.cast())
}

/// Whole pages that hold a buffer.
#[cfg(target_os = "linux")]
fn mapped_bytes(layout: &Layout) -> Option<usize> {
    /// The largest page that any system has which calls it ordinary.
    const PAGE: usize = 64 << 10;
    layout.size().checked_next_multiple_of(PAGE)
}

#[cfg(not(target_os = "linux"))]
fn map(layout: &Layout) -> Option<NonNull<u8>> {
    allocate(layout)
}

/// Gives memory back.
///
/// # Safety
/// It was made by [`map`] from [`HUGE_PAGE`] bytes on, else by [`allocate`], with this layout, and nobody uses it any more.
unsafe fn release(pointer: NonNull<u8>, layout: &Layout) {
    #[cfg(target_os = "linux")]
    if layout.size() >= HUGE_PAGE {
        let bytes = mapped_bytes(layout).expect("it was mapped");
        // SAFETY: the caller vouches for the mapping.
        unsafe { libc::munmap(pointer.as_ptr().cast(), bytes) };
        return;
    }
    // SAFETY: the caller vouches for the allocation.
    unsafe { dealloc(pointer.as_ptr(), *layout) };
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
        // SAFETY: made by `try_zeroed` with this layout, and not given back before.
        unsafe { release(self.pointer.cast(), &self.layout) };
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

    /// Wherever the system puts them: mappings of one page more each come to lie at every distance from a huge page.
    #[test]
    fn large_buffers_lie_anywhere() {
        let buffers: Vec<AlignedBuffer<u8>> =
            (0..600).map(|page| AlignedBuffer::zeroed(HUGE_PAGE + page * 4096 + 1)).collect();
        for buffer in &buffers {
            assert_eq!(buffer.as_ptr() as usize % HUGE_PAGE, 0);
            assert_eq!((buffer[0], buffer[buffer.len() - 1]), (0, 0));
        }
    }
}
