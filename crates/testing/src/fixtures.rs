//! PyTorch's numbers for the op cases, as `fixtures/make.py` stores them.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutout_graph::Case;
use cutout_tensor::{DType, Element, Tensor, TensorError, TensorType};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::case_tensors::{case_tensors, fnv1a};

/// How to regenerate the fixtures.
pub const HINT: &str = "run `python fixtures/make.py` (its top says what it needs)";

/// Why fixtures cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FixtureError {
    /// The file cannot be read.
    #[error("{path}: {error}; {HINT}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: std::io::Error,
    },
    /// The file is not a safetensors file.
    #[error(transparent)]
    Format(#[from] SafeTensorError),
    /// The file lacks the list of cases that it was made from.
    #[error("the metadata has no valid list of cases; {HINT}")]
    Metadata,
    /// An element type that `Tensor` does not have.
    #[error("{name} has elements of type {dtype:?}")]
    Type {
        /// The tensor.
        name: String,
        /// Its type.
        dtype: Dtype,
    },
    /// A tensor is invalid.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// How the file was made.
#[derive(serde::Deserialize)]
struct Provenance {
    cases: BTreeMap<String, String>,
}

/// The expected outputs of the op cases.
pub struct Expected {
    /// Output by `op/case`.
    pub outputs: HashMap<String, Tensor>,
    /// [`digest`] of each case at the time its output was made.
    pub digests: BTreeMap<String, String>,
}

impl Expected {
    /// Where the outputs are in the workspace.
    pub fn path() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ops/expected.safetensors")
    }

    /// Reads a file that `fixtures/make.py` has written.
    pub fn load(path: &Path) -> Result<Self, FixtureError> {
        let (outputs, metadata) = read_tensors(path)?;
        let made = metadata.get("made").and_then(|made| serde_json::from_str(made).ok());
        let Provenance { cases: digests } = made.ok_or(FixtureError::Metadata)?;
        Ok(Expected { outputs, digests })
    }
}

/// Metadata of a safetensors file.
pub type Metadata = HashMap<String, String>;

/// All tensors of a safetensors file, and its metadata.
pub fn read_tensors(path: &Path) -> Result<(HashMap<String, Tensor>, Metadata), FixtureError> {
    let bytes =
        std::fs::read(path).map_err(|error| FixtureError::File { path: path.to_owned(), error })?;
    let (_, header) = SafeTensors::read_metadata(&bytes)?;
    let mut tensors = HashMap::new();
    for (name, view) in SafeTensors::deserialize(&bytes)?.tensors() {
        let dtype = dtype_of(view.dtype())
            .ok_or_else(|| FixtureError::Type { name: name.clone(), dtype: view.dtype() })?;
        let ty = TensorType::new(dtype, view.shape());
        tensors.insert(name, Tensor::from_bytes(ty, Arc::new(view.data().to_vec()), 0)?);
    }
    Ok((tensors, header.metadata().clone().unwrap_or_default()))
}

/// A checksum of everything a case's output depends on: the op's attributes, and the types and bytes of its inputs.
pub fn digest(case: &Case) -> Result<String, TensorError> {
    let mut text = case.op.printed().into_bytes();
    for tensor in case_tensors(case)? {
        text.extend(tensor.ty().to_string().into_bytes());
        text.extend(stored(&tensor)?.1);
    }
    Ok(format!("{:016x}", fnv1a(&text)))
}

/// The SHA-256 of bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A tensor's element type and row-major bytes, as a safetensors file stores them.
pub fn stored(tensor: &Tensor) -> Result<(Dtype, Vec<u8>), TensorError> {
    fn bytes<T: Element>(tensor: &Tensor) -> Result<Vec<u8>, TensorError> {
        Ok(bytemuck::cast_slice(&tensor.to_vec::<T>()?).to_vec())
    }
    Ok(match tensor.dtype() {
        DType::F32 => (Dtype::F32, bytes::<f32>(tensor)?),
        DType::F16 => (Dtype::F16, bytes::<f16>(tensor)?),
        DType::BF16 => (Dtype::BF16, bytes::<bf16>(tensor)?),
        DType::I8 => (Dtype::I8, bytes::<i8>(tensor)?),
        DType::U8 => (Dtype::U8, bytes::<u8>(tensor)?),
        DType::I32 => (Dtype::I32, bytes::<i32>(tensor)?),
        DType::I64 => (Dtype::I64, bytes::<i64>(tensor)?),
        DType::Bool => (Dtype::BOOL, bytes::<bool>(tensor)?),
    })
}

/// The element type of a stored tensor, if `DType` has it.
fn dtype_of(dtype: Dtype) -> Option<DType> {
    let known = [
        (Dtype::F32, DType::F32),
        (Dtype::F16, DType::F16),
        (Dtype::BF16, DType::BF16),
        (Dtype::I8, DType::I8),
        (Dtype::U8, DType::U8),
        (Dtype::I32, DType::I32),
        (Dtype::I64, DType::I64),
        (Dtype::BOOL, DType::Bool),
    ];
    known.into_iter().find(|(stored, _)| *stored == dtype).map(|(_, ours)| ours)
}
