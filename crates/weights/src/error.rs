//! Errors of reading and writing checkpoints.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use cutout_tensor::TensorError;

/// A file format, detected from the content; the file name does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// A JSON header followed by the tensors.
    Safetensors,
    /// A zip archive with one pickle and one entry per storage, as `torch.save` writes it.
    Torch,
    /// llama.cpp's container, with or without quantised tensors.
    Gguf,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Safetensors => "safetensors",
            Format::Torch => "PyTorch",
            Format::Gguf => "GGUF",
        })
    }
}

/// Why a checkpoint could not be opened, read or written. Each variant names the file.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file does not exist.
    #[error("{}: no such file", path.display())]
    NotFound {
        /// The requested file.
        path: PathBuf,
    },
    /// The disk is full. No partial file is left.
    #[error("{}: the disk is full; nothing was written", path.display())]
    DiskFull {
        /// The file to write.
        path: PathBuf,
    },
    /// The folder or file is read-only. No partial file is left.
    #[error("{}: cannot write: the folder or file is read-only", path.display())]
    ReadOnly {
        /// The file to write.
        path: PathBuf,
    },
    /// Any other error of the operating system.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file concerned.
        path: PathBuf,
        /// The failed operation: "open" or "write".
        doing: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The content is not a supported checkpoint format.
    #[error("{file}: {found}; cutout reads safetensors, PyTorch zip files (.pt, .pth) and GGUF")]
    Unrecognised {
        /// The file concerned.
        file: String,
        /// What the content looks like.
        found: String,
    },
    /// The file is damaged or violates a limit.
    #[error("{file}: {problem}")]
    Malformed {
        /// The file concerned.
        file: String,
        /// The format, detected from the first bytes.
        format: Format,
        /// What is wrong.
        problem: Problem,
    },
    /// The file has no tensor with this name.
    #[error("{file}: has no tensor {tensor}{}", suggestion(nearest))]
    NoSuchTensor {
        /// The file concerned.
        file: String,
        /// The requested name.
        tensor: String,
        /// The most similar name in the file.
        nearest: Option<String>,
    },
    /// The tensors match no known model.
    #[error("{file}: {}", not_a_model(*tensors, example))]
    UnknownModel {
        /// The file concerned.
        file: String,
        /// Number of tensors in the file.
        tensors: usize,
        /// Name of the first tensor.
        example: String,
    },
    /// The tensor exists but cannot be read.
    #[error("{file}: tensor {tensor}: {problem}")]
    Tensor {
        /// The file concerned.
        file: String,
        /// The requested tensor.
        tensor: String,
        /// What is wrong.
        problem: Problem,
    },
    /// A tensor has NaN or infinity in it. The error names the file and the tensor.
    #[error(transparent)]
    NotFinite(TensorError),
}

/// What the tensors of a file are not.
fn not_a_model(tensors: usize, example: &str) -> String {
    match tensors {
        0 => "it has no tensors".to_owned(),
        1 => format!("its one tensor, {example}, is not one of SAM 1, 2 or 3"),
        _ => format!("its {tensors} tensors, {example} among them, are not those of SAM 1, 2 or 3"),
    }
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; the nearest name is {name}")).unwrap_or_default()
}

/// A defect inside a file: the field, the expected value and the actual one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// The file ends too early.
    #[error("the file is cut short: {what} needs {wanted} bytes, {found} are left")]
    Truncated {
        /// The truncated part.
        what: String,
        /// Bytes required.
        wanted: u64,
        /// Bytes left in the file.
        found: u64,
    },
    /// A number in the file exceeds its limit.
    #[error("{what}: {found} is more than the {limit} allowed")]
    Limit {
        /// The limited quantity.
        what: &'static str,
        /// The limit, one of [`crate::limits`].
        limit: u64,
        /// The number in the file.
        found: u64,
    },
    /// A field has an invalid value.
    #[error("{what}: expected {wanted}, found {found}")]
    Invalid {
        /// The field.
        what: String,
        /// The accepted values.
        wanted: String,
        /// The value in the file.
        found: String,
    },
    /// Two tensors have the same name.
    #[error("the name {0} appears twice")]
    Duplicate(String),
    /// The data of two entries overlap.
    #[error("{first} and {second} overlap")]
    Overlap {
        /// The entry that comes first in the file.
        first: String,
        /// The entry that starts before the first one ends.
        second: String,
    },
    /// The pickle names a function or class outside the allow-list.
    #[error("the file asks to call {0}; cutout never runs code from a checkpoint")]
    Callable(String),
    /// The pickle contains an opcode outside the allow-list.
    #[error("pickle instruction {name} (0x{code:02x}) at byte {position} is not allowed")]
    Instruction {
        /// The opcode byte.
        code: u8,
        /// The opcode's name in Python's `pickletools`.
        name: &'static str,
        /// Byte offset in the pickle.
        position: usize,
    },
    /// The file uses a feature that is not supported.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// The element type cannot be loaded.
    #[error("elements of type {0} cannot be loaded")]
    ElementType(String),
    /// The file is well-formed but holds no tensors.
    #[error("the file holds no tensors")]
    NoTensors,
    /// The bytes do not form a valid tensor.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl Problem {
    pub(crate) fn invalid(
        what: impl Into<String>,
        wanted: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Problem {
        Problem::Invalid { what: what.into(), wanted: wanted.to_string(), found: found.to_string() }
    }

    /// Returns `found`, or an error if it exceeds `limit`.
    pub(crate) fn within(what: &'static str, limit: u64, found: u64) -> Result<u64, Problem> {
        if found <= limit { Ok(found) } else { Err(Problem::Limit { what, limit, found }) }
    }
}

impl WeightsError {
    /// Converts an error from loading `tensor` of `file`, unless it has both names already.
    pub(crate) fn loading(file: &str, tensor: &str, error: TensorError) -> WeightsError {
        if matches!(error, TensorError::Weight { .. }) {
            return WeightsError::NotFinite(error);
        }
        let (file, tensor) = (file.to_owned(), tensor.to_owned());
        WeightsError::Tensor { file, tensor, problem: error.into() }
    }

    /// Converts an I/O error from reading `path`.
    pub(crate) fn reading(path: &Path, source: io::Error) -> WeightsError {
        let path = path.to_path_buf();
        if source.kind() == io::ErrorKind::NotFound {
            return WeightsError::NotFound { path };
        }
        WeightsError::Io { path, doing: "open", source }
    }

    /// Converts an I/O error from writing `path`.
    #[expect(clippy::wildcard_enum_match_arm, reason = "io::ErrorKind is open-ended")]
    pub(crate) fn writing(path: &Path, source: io::Error) -> WeightsError {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                WeightsError::DiskFull { path }
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                WeightsError::ReadOnly { path }
            }
            _ => WeightsError::Io { path, doing: "write", source },
        }
    }
}
