//! Errors of tensor operations.

use std::sync::Arc;

use crate::{DType, OutOfMemory, Shape};

/// Why a tensor operation failed. Each variant names the expected and the actual value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TensorError {
    /// The number of elements does not match the shape.
    #[error("shape {shape} needs {expected} elements, got {found}")]
    Length {
        /// The requested shape.
        shape: Shape,
        /// Number of elements of that shape.
        expected: usize,
        /// Number of elements given.
        found: usize,
    },
    /// The element type is not the requested one.
    #[error("expected elements of type {expected}, the tensor holds {found}")]
    Type {
        /// The requested type.
        expected: DType,
        /// The type of the tensor.
        found: DType,
    },
    /// A strided or misaligned view cannot be borrowed as a slice.
    #[error("a {reason} view of shape {shape} cannot be borrowed as a slice; copy it first")]
    NotContiguous {
        /// Shape of the view.
        shape: Shape,
        /// "strided" or "misaligned".
        reason: &'static str,
    },
    /// The bytes are not valid elements (a `bool` that is neither 0 nor 1).
    #[error("the bytes of a {0} tensor hold an invalid value")]
    InvalidBits(DType),
    /// The shape does not allow the operation.
    #[error("{0}")]
    Shape(String),
    /// The number of elements overflows `usize`.
    #[error("shape {0} has more elements than memory can hold")]
    TooLarge(Shape),
    /// An allocation of this many bytes failed.
    #[error("{0} bytes of memory could not be allocated")]
    OutOfMemory(usize),
    /// An element is NaN or infinite.
    #[error("element {element} is {value}, not a finite number")]
    NotFinite {
        /// Position in row-major order.
        element: usize,
        /// Its value.
        value: f64,
    },
    /// An element does not fit the element type that it is converted to.
    #[error("element {element} is {value:e}, beyond the range of {dtype}")]
    Range {
        /// Position in row-major order.
        element: usize,
        /// Its value.
        value: f64,
        /// The element type.
        dtype: DType,
    },
    /// An element of a checked tensor is NaN or infinite; see [`LazyTensor::checked`](crate::LazyTensor::checked).
    #[error("{name}: element {element} is {value}; the numbers of a weight must be finite")]
    Weight {
        /// Name given by whoever asked for the check: file and tensor.
        name: Arc<str>,
        /// Position in row-major order.
        element: usize,
        /// Its value.
        value: f64,
    },
}

impl From<OutOfMemory> for TensorError {
    fn from(error: OutOfMemory) -> Self {
        TensorError::OutOfMemory(error.bytes)
    }
}
