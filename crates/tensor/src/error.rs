//! What can be wrong with a tensor request.

use crate::{DType, Shape};

/// A request that a tensor cannot satisfy; each variant names what was wanted and what was found.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TensorError {
    /// The data has another length than the shape.
    #[error("shape {shape} needs {expected} elements, got {found}")]
    Length {
        /// The shape asked for.
        shape: Shape,
        /// Elements the shape has.
        expected: usize,
        /// Elements given.
        found: usize,
    },
    /// The elements have another type.
    #[error("expected elements of type {expected}, the tensor holds {found}")]
    Type {
        /// The type asked for.
        expected: DType,
        /// The type found.
        found: DType,
    },
    /// A plain slice was asked of a strided or misaligned view.
    #[error("a plain slice of {shape} was asked for, but the view is {reason}")]
    NotContiguous {
        /// Shape of the view.
        shape: Shape,
        /// "strided" or "misaligned".
        reason: &'static str,
    },
    /// Bytes that are no valid element (a `bool` that is neither 0 nor 1).
    #[error("the bytes of a {0} tensor hold an invalid value")]
    InvalidBits(DType),
    /// The shape does not fit the request.
    #[error("{0}")]
    Shape(String),
    /// The shape has more elements than an address can count.
    #[error("shape {0} has more elements than memory can hold")]
    TooLarge(Shape),
    /// So many bytes of memory could not be had.
    #[error("{0} bytes of memory could not be allocated")]
    OutOfMemory(usize),
}
