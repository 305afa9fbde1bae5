//! Scratch memory: buffers that belong to a thread and are reused by its later tasks.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::AlignedBuffer;

thread_local! {
    /// Free scratch buffers of this thread, at most one per level of nesting.
    static FREE: RefCell<Vec<AlignedBuffer<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Scratch memory could not be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes of scratch memory could not be allocated")]
pub struct NoScratch {
    /// Size of the failed allocation.
    pub bytes: usize,
}

/// Calls `body` with `floats` elements of this thread's scratch memory, aligned to a cache line, with unspecified
/// contents. Nested calls get different memory.
///
/// If the allocation fails, unwinds with a [`NoScratch`] payload (no panic message). [`catch_no_scratch`] turns it into an
/// error at the top of the run, so kernels need not handle it.
pub fn with_scratch<R>(floats: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    let free = FREE.with_borrow_mut(Vec::pop);
    // Drops a buffer that is too small before allocating a larger one.
    let free = free.filter(|buffer| buffer.len() >= floats);
    let missing = || -> AlignedBuffer<f32> {
        resume_unwind(Box::new(NoScratch { bytes: floats.saturating_mul(size_of::<f32>()) }))
    };
    let allocate = || AlignedBuffer::try_zeroed(floats).unwrap_or_else(missing);
    let mut buffer = free.unwrap_or_else(allocate);
    let result = body(&mut buffer[..floats]);
    FREE.with_borrow_mut(|free| free.push(buffer));
    result
}

/// Calls `body` and returns [`NoScratch`] if one of its scratch allocations failed. Other panics continue.
pub fn catch_no_scratch<R>(body: impl FnOnce() -> R) -> Result<R, NoScratch> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| match panic.downcast::<NoScratch>() {
        Ok(missing) => *missing,
        Err(panic) => resume_unwind(panic),
    })
}
