//! What can be wrong with a checkpoint.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use cutout_tensor::TensorError;

/// A file format, recognised by content and never by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// A JSON header and plain tensors.
    Safetensors,
    /// A zip archive with one pickle and one entry per storage, as `torch.save` writes it.
    Torch,
    /// llama.cpp's container, plain or quantised.
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
    /// There is no such file.
    #[error("{}: no such file", path.display())]
    NotFound {
        /// The file asked for.
        path: PathBuf,
    },
    /// The disk has no room for the file; nothing was left behind.
    #[error("{}: the disk is full; nothing was written", path.display())]
    DiskFull {
        /// The file that was to be written.
        path: PathBuf,
    },
    /// The folder or file may not be written; nothing was left behind.
    #[error("{}: cannot write here, the place is read-only", path.display())]
    ReadOnly {
        /// The file that was to be written.
        path: PathBuf,
    },
    /// Any other answer of the operating system.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file concerned.
        path: PathBuf,
        /// "open", "write" …
        doing: &'static str,
        /// The system's own words.
        source: io::Error,
    },
    /// The content is no checkpoint format this crate reads.
    #[error("{file}: {found}; cutout reads safetensors, PyTorch zip files (.pt, .pth) and GGUF")]
    Unrecognised {
        /// The file concerned.
        file: String,
        /// What the content looks like.
        found: String,
    },
    /// The file is damaged, or asks for what is not allowed.
    #[error("{file}: {problem}")]
    Malformed {
        /// The file concerned.
        file: String,
        /// The format it has by its first bytes.
        format: Format,
        /// What is wrong.
        problem: Problem,
    },
    /// The file has no tensor of this name.
    #[error("{file}: has no tensor {tensor}{}", suggestion(nearest))]
    NoSuchTensor {
        /// The file concerned.
        file: String,
        /// The name asked for.
        tensor: String,
        /// The most similar name in the file.
        nearest: Option<String>,
    },
    /// The tensors belong to no model of the family.
    #[error("{file}: its {tensors} tensors, {example} among them, are not those of SAM 1, 2 or 3")]
    UnknownModel {
        /// The file concerned.
        file: String,
        /// How many tensors it has.
        tensors: usize,
        /// The name of the first.
        example: String,
    },
    /// The tensor is there but cannot be read.
    #[error("{file}: tensor {tensor}: {problem}")]
    Tensor {
        /// The file concerned.
        file: String,
        /// The tensor asked for.
        tensor: String,
        /// What is wrong.
        problem: Problem,
    },
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; the nearest name is {name}")).unwrap_or_default()
}

/// What is wrong inside a file: what was wanted, what was found and where.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// The file ends before a part of it does.
    #[error("the file is cut short: {what} needs {wanted} bytes, {found} are left")]
    Truncated {
        /// The part that is cut.
        what: String,
        /// Bytes it needs.
        wanted: u64,
        /// Bytes there are.
        found: u64,
    },
    /// A number in the file is beyond the limit set for it.
    #[error("{what}: {found} is more than the {limit} allowed")]
    Limit {
        /// What was counted.
        what: &'static str,
        /// The limit, one of [`crate::limits`].
        limit: u64,
        /// The number in the file.
        found: u64,
    },
    /// A field has a value it may not have.
    #[error("{what}: expected {wanted}, found {found}")]
    Invalid {
        /// The field.
        what: String,
        /// What would have been right.
        wanted: String,
        /// What is there.
        found: String,
    },
    /// Two tensors have the same name.
    #[error("the name {0} appears twice")]
    Duplicate(String),
    /// The data of two entries share bytes.
    #[error("{first} and {second} overlap")]
    Overlap {
        /// The entry that comes first in the file.
        first: String,
        /// The entry that starts before the first one ends.
        second: String,
    },
    /// A pickle that names a function or class outside the allow-list.
    #[error("the file asks to call {0}; cutout never runs code from a checkpoint")]
    Callable(String),
    /// A pickle instruction outside the allow-list.
    #[error("pickle instruction {name} (0x{code:02x}) at byte {position} is not allowed")]
    Instruction {
        /// Its byte.
        code: u8,
        /// Its name in Python's `pickletools`.
        name: &'static str,
        /// Where it stands in the pickle.
        position: usize,
    },
    /// The file holds something this crate does not read.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// The element type cannot be loaded.
    #[error("elements of type {0} cannot be loaded")]
    ElementType(String),
    /// The file is well formed and holds no tensors.
    #[error("the file holds no tensors")]
    NoTensors,
    /// A tensor could not be made of the bytes.
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

    /// Passes `found` through when it is within `limit`.
    pub(crate) fn within(what: &'static str, limit: u64, found: u64) -> Result<u64, Problem> {
        if found <= limit { Ok(found) } else { Err(Problem::Limit { what, limit, found }) }
    }
}

impl WeightsError {
    /// The error for what the system said about reading `path`.
    pub(crate) fn reading(path: &Path, source: io::Error) -> WeightsError {
        let path = path.to_path_buf();
        if source.kind() == io::ErrorKind::NotFound {
            return WeightsError::NotFound { path };
        }
        WeightsError::Io { path, doing: "open", source }
    }

    /// The error for what the system said about writing `path`.
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
