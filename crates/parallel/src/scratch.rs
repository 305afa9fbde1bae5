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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Pool;

    #[test]
    fn scratch_is_aligned_kept_and_distinct_when_nested() {
        let first = with_scratch(100, |outer| {
            assert_eq!((outer.len(), outer.as_ptr() as usize % 64), (100, 0));
            outer.fill(1.0);
            with_scratch(50, |inner| inner.fill(2.0));
            assert!(outer.iter().all(|&x| x == 1.0));
            outer.as_ptr() as usize
        });
        assert_eq!(with_scratch(100, |again| again.as_ptr() as usize), first);
        let pool = Pool::new(2);
        pool.run_with_scratch(20, 1000, &|task, scratch| {
            assert_eq!((scratch.len(), scratch.as_ptr() as usize % 64), (1000, 0));
            scratch.fill(task as f32);
            assert!(scratch.iter().all(|&x| x == task as f32));
        });
    }

    /// More floats than any machine has memory for.
    const TOO_MANY: usize = 1 << 58;

    /// Too many for the first task.
    fn wanted(task: usize) -> usize {
        if task == 0 { TOO_MANY } else { 16 }
    }

    #[test]
    fn no_scratch_is_an_error_on_any_thread() {
        for threads in [1, 3] {
            let pool = Pool::new(threads);
            let missing = Err(NoScratch { bytes: 4 * TOO_MANY });
            for tasks in [1, 50] {
                let none = || pool.run_with_scratch(tasks, TOO_MANY, &|_, _| panic!("it has none"));
                assert_eq!(catch_no_scratch(none), missing);
                // In a task, beside what other tasks hold.
                let nested = || {
                    pool.run_with_scratch(tasks, 16, &|task, _| with_scratch(wanted(task), |_| ()));
                };
                assert_eq!(catch_no_scratch(nested), missing);
            }
            // Loops go on as before.
            let done = AtomicUsize::new(0);
            let all = || {
                pool.run_with_scratch(100, 1000, &|_, scratch| {
                    scratch.fill(1.0);
                    done.fetch_add(scratch.len(), Ordering::Relaxed);
                });
            };
            assert_eq!(catch_no_scratch(all), Ok(()));
            assert_eq!(done.into_inner(), 100_000);
        }
        assert_eq!(
            NoScratch { bytes: 12 }.to_string(),
            "12 bytes of scratch memory could not be allocated"
        );
    }

    #[test]
    #[should_panic(expected = "another reason")]
    fn other_panics_are_not_caught() {
        let _ = catch_no_scratch(|| panic!("another reason"));
    }
}
