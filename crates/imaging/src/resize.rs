//! Resizes that give the very numbers of Pillow and PyTorch.
//!
//! All are the same separable convolution: each output pixel is a weighted mean of a window of input pixels, the
//! window as wide as the shrinking demands (antialiasing); rows first, then columns. They differ in arithmetic only.

mod bytes;
mod floats;
mod window;

pub use bytes::{resize_pillow, resize_torch_bytes};
pub use floats::resize_torch_floats;
pub use window::Filter;

/// Rows of the output that a task computes.
const TASK_ROWS: usize = 32;
