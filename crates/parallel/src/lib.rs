//! The one way to run in parallel: a thread [`Pool`], scratch memory per thread, and aligned buffers.
//!
//! Work is cut into tasks by shape, never by thread count. Which thread runs a task does not change what the task
//! computes, so a result has the same bits for any number of threads.
#![allow(unsafe_code, reason = "memory that is shared between threads")]

mod buffer;
mod pool;
mod scratch;
mod shared_slice;

pub use buffer::{AlignedBuffer, CACHE_LINE, HUGE_PAGE};
pub use pool::Pool;
pub use scratch::{NoScratch, catch_no_scratch, with_scratch};
pub use shared_slice::SharedSlice;
