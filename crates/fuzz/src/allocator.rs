//! An allocator that counts, and fails on request.
#![allow(unsafe_code, reason = "a global allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

/// The system's allocator with a count of the bytes in use. Declare one as the `#[global_allocator]` of a program.
pub struct CountingAllocator;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
/// Large allocations until one fails; negative for never.
static LEFT: AtomicIsize = AtomicIsize::new(-1);

/// Allocations of at least this many bytes can be made to fail. Smaller ones are not sized by a user's data.
const LARGE: usize = 64 << 10;

impl CountingAllocator {
    /// Lets large allocation number `number`, counted from 0, and all large ones after it fail until `work` ends.
    pub fn failing_at<T>(number: usize, work: impl FnOnce() -> T) -> T {
        LEFT.store(number as isize, Ordering::Relaxed);
        let result = work();
        LEFT.store(-1, Ordering::Relaxed);
        result
    }

    fn refuses(size: usize) -> bool {
        if size < LARGE || LEFT.load(Ordering::Relaxed) < 0 {
            return false;
        }
        let left = |left: isize| (left > 0).then(|| left - 1);
        LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_err()
    }

    fn count(size: usize) {
        let now = NOW.fetch_add(size, Ordering::Relaxed) + size;
        MOST.fetch_max(now, Ordering::Relaxed);
    }
}

// SAFETY: every call is forwarded to the system allocator with unchanged arguments, or fails.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Self::refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        Self::count(layout.size());
        // SAFETY: the caller guarantees a valid `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Self::refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        Self::count(layout.size());
        // SAFETY: the caller guarantees a valid `layout`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller guarantees that `pointer` was allocated with `layout`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `work` and measures its peak allocation, in bytes. Other threads must be idle.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = work();
    (result, MOST.load(Ordering::Relaxed).saturating_sub(before))
}
