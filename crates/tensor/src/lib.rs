//! Element types, shapes, strides, host tensors, and comparison with named tolerances.
//!
//! A [`Tensor`] is a typed, strided view of shared bytes: cloning, slicing, permuting and broadcasting copy nothing,
//! and the bytes may be a `Vec`, or a memory-mapped checkpoint that the `weights` crate owns.

mod blocks;
mod compare;
mod element;
mod error;
mod lazy;
mod shape;
mod tensor;

pub use blocks::{BLOCK_LENGTH, QuantizedMatrix, Scales};
pub use compare::{Difference, Tolerance, compare};
pub use element::{DType, Element};
pub use error::TensorError;
pub use lazy::LazyTensor;
pub use shape::{Shape, TensorType, contiguous_strides};
pub use tensor::{Bytes, SharedBytes, StorageId, Tensor};
