//! Resizes that reproduce Pillow's and PyTorch's results.
//!
//! All are the same separable convolution, rows first, then columns. Each output pixel is a weighted mean of a window of
//! input pixels; the window widens with the reduction factor (antialiasing). They differ only in their arithmetic.

mod bytes;
mod floats;
mod window;

pub(crate) use bytes::Axis;
pub use bytes::{resize_pillow, resize_torch_bytes};
pub use floats::resize_torch_floats;
pub(crate) use floats::window_table;
pub use window::{Filter, WindowTable, WindowWeights};

/// Rows of the output that a task computes.
const TASK_ROWS: usize = 32;
