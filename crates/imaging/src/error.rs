//! What can be wrong with a picture.

use std::io;
use std::path::PathBuf;

use crate::Size;

/// A grid of pixels that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// A side of length zero.
    #[error("a picture needs at least one pixel, got {0}")]
    Empty(Size),
    /// More pixels than memory can address.
    #[error("{0} is too large for this machine's memory addresses")]
    TooLarge(Size),
    /// The number of values does not fit the size.
    #[error("{size} needs {expected} values, got {found}")]
    Length {
        /// The size asked for.
        size: Size,
        /// Values that size needs.
        expected: usize,
        /// Values given.
        found: usize,
    },
    /// Two grids that have to have the same size do not.
    #[error("expected {expected}, got {found}")]
    Mismatch {
        /// Size of the first.
        expected: Size,
        /// Size of the second.
        found: Size,
    },
}

/// Why a file did not become a picture. `origin` is the name the caller gave: usually the path.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The file could not be read at all.
    #[error("{}: cannot read it: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file has no bytes.
    #[error("{origin}: the file is empty")]
    Empty {
        /// The file.
        origin: String,
    },
    /// The first bytes are of none of the formats we read.
    #[error(
        "{origin}: not a picture we can read ({found}); PNG, JPEG, WebP, BMP, TIFF and GIF are"
    )]
    NotAnImage {
        /// The file.
        origin: String,
        /// What its first bytes look like.
        found: String,
    },
    /// The picture ends before its last pixel, or its contents are damaged.
    #[error("{origin}: damaged or incomplete {format} file: {reason}")]
    Damaged {
        /// The file.
        origin: String,
        /// Its format, by content.
        format: &'static str,
        /// What the decoder said.
        reason: String,
    },
    /// A kind of picture that this format allows and we do not read.
    #[error("{origin}: a kind of {format} file we cannot read: {reason}")]
    Unsupported {
        /// The file.
        origin: String,
        /// Its format, by content.
        format: &'static str,
        /// What the decoder said.
        reason: String,
    },
    /// More pixels than the limit.
    #[error("{origin}: {found} is more than the limit of {limit} pixels")]
    TooManyPixels {
        /// The file.
        origin: String,
        /// Its size, as its header says.
        found: Size,
        /// The most that is read.
        limit: u64,
    },
    /// More bytes than the limit.
    #[error("{origin}: {found} bytes is more than the limit of {limit} bytes")]
    TooManyBytes {
        /// The file.
        origin: String,
        /// Its length.
        found: u64,
        /// The most that is read.
        limit: u64,
    },
    /// Decoding would need more memory than a picture of this size can justify.
    #[error("{origin}: decoding this {format} file would need more memory than its size allows")]
    Memory {
        /// The file.
        origin: String,
        /// Its format, by content.
        format: &'static str,
    },
}
