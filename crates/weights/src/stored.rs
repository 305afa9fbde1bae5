//! How elements lie in a file, which is more than a tensor in memory can hold.

use std::fmt;

use cutout_tensor::{DType, Shape};

use crate::error::Problem;
use crate::gguf::blocks::BlockType;

/// Element type of a tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoredType {
    /// A type that tensors have in memory too: loaded without a copy.
    Plain(DType),
    /// Double precision: loaded as `f32`.
    F64,
    /// Quantised blocks: loaded as `f32`.
    Block(BlockType),
    /// A type that is listed but cannot be loaded, by the name the file gives it.
    Other {
        /// For instance `complex64`.
        name: String,
        /// Elements that are stored together, and the bytes they take; 0 bytes when that is not known.
        block: (usize, usize),
    },
}

impl StoredType {
    pub(crate) fn other(name: impl Into<String>, bytes: usize) -> Self {
        StoredType::Other { name: name.into(), block: (1, bytes) }
    }

    /// The type it has once loaded; `None` when it cannot be loaded.
    pub fn loads_as(&self) -> Option<DType> {
        match self {
            StoredType::Plain(dtype) => Some(*dtype),
            StoredType::F64 | StoredType::Block(_) => Some(DType::F32),
            StoredType::Other { .. } => None,
        }
    }

    /// Elements stored together and the bytes they take.
    fn block(&self) -> (usize, usize) {
        match self {
            StoredType::Plain(dtype) => (1, dtype.size()),
            StoredType::F64 => (1, 8),
            StoredType::Block(block) => (block.length(), block.bytes()),
            StoredType::Other { block, .. } => *block,
        }
    }

    /// Bytes of a whole tensor; 0 when the type's size is not known.
    pub(crate) fn bytes(&self, shape: &Shape) -> Result<u64, Problem> {
        let elements = shape.checked_len()?;
        let (length, bytes) = self.block();
        if length > 1 && !shape.last_axis().is_multiple_of(length) {
            let wanted = format!("a last axis that is a multiple of {length} for {self}");
            return Err(Problem::invalid("shape", wanted, shape));
        }
        let total = (elements / length.max(1)).checked_mul(bytes);
        let total = total.and_then(|total| isize::try_from(total).ok());
        total
            .map(|total| total as u64)
            .ok_or_else(|| Problem::Tensor(cutout_tensor::TensorError::TooLarge(shape.clone())))
    }
}

impl fmt::Display for StoredType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoredType::Plain(dtype) => dtype.fmt(f),
            StoredType::F64 => f.write_str("f64"),
            StoredType::Block(block) => block.fmt(f),
            StoredType::Other { name, .. } => f.write_str(name),
        }
    }
}
