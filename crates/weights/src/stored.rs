//! Element types in files. There are more of them than tensors in memory have.

use std::fmt;

use cutout_tensor::{DType, Shape};

use crate::error::Problem;
use crate::gguf::blocks::BlockType;

/// Element type of a tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoredType {
    /// A type that tensors in memory have as well: loaded without a copy.
    Plain(DType),
    /// Double precision: loaded as `f32`.
    F64,
    /// Quantised blocks: loaded as `f32`.
    Block(BlockType),
    /// A type that can be listed but not loaded, with its name in the file.
    Other {
        /// For instance `complex64`.
        name: String,
        /// Elements per block and bytes per block; 0 bytes if the size is unknown.
        block: (usize, usize),
    },
}

impl StoredType {
    pub(crate) fn other(name: impl Into<String>, bytes: usize) -> Self {
        StoredType::Other { name: name.into(), block: (1, bytes) }
    }

    /// Element type of the loaded tensor; `None` if the type cannot be loaded.
    pub fn loads_as(&self) -> Option<DType> {
        match self {
            StoredType::Plain(dtype) => Some(*dtype),
            StoredType::F64 | StoredType::Block(_) => Some(DType::F32),
            StoredType::Other { .. } => None,
        }
    }

    /// Elements per block and bytes per block.
    fn block(&self) -> (usize, usize) {
        match self {
            StoredType::Plain(dtype) => (1, dtype.size()),
            StoredType::F64 => (1, 8),
            StoredType::Block(block) => (block.length(), block.bytes()),
            StoredType::Other { block, .. } => *block,
        }
    }

    /// Bytes of a tensor of this shape; 0 if the size of the type is unknown.
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
