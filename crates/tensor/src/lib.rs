//! Element types, shapes, strides, host tensors, and comparison with named tolerances.
//!
//! A [`Tensor`] is a typed, strided view of shared bytes. Cloning, slicing, permuting and broadcasting copy no elements.
//! The bytes are a `Vec`, or a memory-mapped checkpoint opened by the `weights` crate.

mod blocks;
mod bytes;
mod compare;
mod element;
mod error;
mod finite;
mod lazy;
pub mod memory;
mod shape;
mod tensor;

pub use blocks::{BLOCK_LENGTH, QuantizedMatrix, Scales, quantize_group};
pub use bytes::{Bytes, SharedBytes};
pub use compare::{Difference, Tolerance, compare};
pub use element::{DType, Element};
pub use error::TensorError;
pub use finite::narrowed;
pub use lazy::{LazyTensor, Rows};
pub use memory::OutOfMemory;
pub use shape::{Shape, TensorType, contiguous_strides};
pub use tensor::{StorageId, Tensor};
