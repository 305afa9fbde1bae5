//! Errors of images.

use std::io;
use std::path::PathBuf;

use cutout_tensor::OutOfMemory;

use crate::Size;

/// Why a size or a number of pixels is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Width or height is 0.
    #[error("an image needs at least one pixel, got {0}")]
    Empty(Size),
    /// The number of values overflows the address space.
    #[error("{0} is too large for this machine's memory addresses")]
    TooLarge(Size),
    /// The number of values does not match the size.
    #[error("{size} needs {expected} values, got {found}")]
    Length {
        /// The requested size.
        size: Size,
        /// Values needed for that size.
        expected: usize,
        /// Values given.
        found: usize,
    },
    /// Memory for the pixels could not be allocated.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// Two grids differ in size.
    #[error("expected {expected}, got {found}")]
    Mismatch {
        /// The required size.
        expected: Size,
        /// The actual size.
        found: Size,
    },
}

/// Why a file could not be decoded. `origin` is the name given by the caller, usually the path.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The file could not be read.
    #[error("{}: cannot read the file: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is empty.
    #[error("{origin}: the file is empty")]
    Empty {
        /// The file.
        origin: String,
    },
    /// The first bytes match no supported format.
    #[error(
        "{origin}: not a picture ({found}); supported formats: PNG, JPEG, WebP, BMP, TIFF, GIF"
    )]
    NotAnImage {
        /// The file.
        origin: String,
        /// Description of the first bytes.
        found: String,
    },
    /// The file is damaged or ends before its last pixel.
    #[error("{origin}: damaged or incomplete {format} file: {reason}")]
    Damaged {
        /// The file.
        origin: String,
        /// Format, detected from the content.
        format: &'static str,
        /// Reason given by the decoder.
        reason: String,
    },
    /// The file uses a feature of the format that is not supported.
    #[error("{origin}: unsupported kind of {format} file: {reason}")]
    Unsupported {
        /// The file.
        origin: String,
        /// Format, detected from the content.
        format: &'static str,
        /// Reason given by the decoder.
        reason: String,
    },
    /// More pixels than the limit.
    #[error("{origin}: {found} is more than the limit of {limit} pixels")]
    TooManyPixels {
        /// The file.
        origin: String,
        /// Size given by the header.
        found: Size,
        /// Most pixels accepted.
        limit: u64,
    },
    /// More bytes than the limit.
    #[error("{origin}: {found} bytes is more than the limit of {limit} bytes")]
    TooManyBytes {
        /// The file.
        origin: String,
        /// Bytes read; files are read up to one byte beyond the limit.
        found: u64,
        /// Most bytes accepted.
        limit: u64,
    },
    /// Memory for the image and the decoder could not be allocated.
    #[error(
        "{origin}: decoding {size} needs {bytes} bytes of memory, which could not be allocated"
    )]
    OutOfMemory {
        /// The file.
        origin: String,
        /// Size given by the header.
        size: Size,
        /// Bytes needed.
        bytes: u64,
    },
    /// The decoder would need more memory than an image of this size warrants.
    #[error("{origin}: decoding this {format} file would need more memory than its size allows")]
    Memory {
        /// The file.
        origin: String,
        /// Format, detected from the content.
        format: &'static str,
    },
}
