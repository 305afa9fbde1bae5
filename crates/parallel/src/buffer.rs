//! Aligned memory for packed weights, scratch and arenas.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::{AnyBitPattern, NoUninit};

/// Alignment of every buffer: one cache line, which is also the widest vector.
pub const CACHE_LINE: usize = 64;
/// Size and alignment of a huge page.
pub const HUGE_PAGE: usize = 2 << 20;

/// A fixed number of elements, aligned to a cache line.
///
/// Buffers of 2 MiB and more are aligned to huge pages and ask the operating system for them: fewer page faults on first
/// use and fewer TLB misses afterwards.
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
    /// Aborts like `Vec` when memory runs out. Panics if `len` elements exceed the address space.
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

    /// A buffer of `len` elements, all bits zero, or `None` if the allocation fails.
    pub fn try_zeroed(len: usize) -> Option<Self> {
        assert!(align_of::<T>() <= CACHE_LINE);
        let bytes = len.checked_mul(size_of::<T>())?;
        // Whole cache lines, so that no two buffers share one. Not whole huge pages: the last one would be half empty on
        // average.
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

/// Zeroed memory from the heap.
fn allocate(layout: &Layout) -> Option<NonNull<u8>> {
    // SAFETY: the layout's size is not zero.
    NonNull::new(unsafe { alloc_zeroed(*layout) })
}

/// Zeroed memory as a mapping of its own, in huge pages if the system has them. Pages are faulted in by the thread that first
/// writes them, so threads that fill the buffer together share that cost.
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
            // SAFETY: whole pages before or after what is kept, of a mapping that was just made and is not in use yet.
            unsafe { libc::munmap(start, length) };
        }
    }
    let huge = layout.size() / HUGE_PAGE * HUGE_PAGE;
    // SAFETY: whole pages of what is kept; the advice does not change contents. A refusal only costs speed.
    unsafe { libc::madvise(pointer, huge, libc::MADV_HUGEPAGE) };
    NonNull::new(pointer.cast())
}

/// Bytes of the whole pages that hold a buffer.
#[cfg(target_os = "linux")]
fn mapped_bytes(layout: &Layout) -> Option<usize> {
    /// Largest base page size of any supported system: 64 KiB on some ARM kernels.
    const PAGE: usize = 64 << 10;
    layout.size().checked_next_multiple_of(PAGE)
}

#[cfg(not(target_os = "linux"))]
fn map(layout: &Layout) -> Option<NonNull<u8>> {
    allocate(layout)
}

/// Frees memory.
///
/// # Safety
/// It was allocated with this layout, by [`map`] for [`HUGE_PAGE`] bytes and more, else by [`allocate`], and is no longer used.
unsafe fn release(pointer: NonNull<u8>, layout: &Layout) {
    #[cfg(target_os = "linux")]
    if layout.size() >= HUGE_PAGE {
        let bytes = mapped_bytes(layout).expect("it was mapped");
        // SAFETY: by this function's contract.
        unsafe { libc::munmap(pointer.as_ptr().cast(), bytes) };
        return;
    }
    // SAFETY: by this function's contract.
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
        // SAFETY: allocated by `try_zeroed` with this layout, and freed only here.
        unsafe { release(self.pointer.cast(), &self.layout) };
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

    /// Each mapping is one page longer than the last, so they start at every distance from a huge page boundary.
    #[test]
    fn large_buffers_are_aligned_wherever_the_mapping_starts() {
        let buffers: Vec<AlignedBuffer<u8>> =
            (0..600).map(|page| AlignedBuffer::zeroed(HUGE_PAGE + page * 4096 + 1)).collect();
        for buffer in &buffers {
            assert_eq!(buffer.as_ptr() as usize % HUGE_PAGE, 0);
            assert_eq!((buffer[0], buffer[buffer.len() - 1]), (0, 0));
        }
    }
}
