//! Errors and warnings.

use std::fmt;

/// Why a file could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JpegError {
    /// The file breaks a rule of the format, so that nothing can be shown.
    #[error("{0}")]
    Damaged(String),
    /// The file is valid, but of a kind that is not decoded.
    #[error("{0}")]
    Unsupported(String),
    /// The system did not provide the memory.
    #[error("{bytes} bytes of memory are not available")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
    },
}

impl JpegError {
    pub(crate) fn damaged(reason: impl Into<String>) -> Self {
        JpegError::Damaged(reason.into())
    }

    pub(crate) fn unsupported(reason: impl Into<String>) -> Self {
        JpegError::Unsupported(reason.into())
    }
}

/// What is wrong with a file that was decoded nevertheless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The file ends before its last pixel or its last scan.
    pub ends_early: bool,
    /// Places where the compressed data is invalid.
    pub faults: u32,
}

impl Damage {
    pub(crate) fn any(self) -> bool {
        self.ends_early || self.faults > 0
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ends_early {
            return formatter.write_str("the file ends early; what is missing is grey or coarse");
        }
        let places = if self.faults == 1 { "place" } else { "places" };
        write!(formatter, "the data is damaged in {} {places}; pixels there are wrong", self.faults)
    }
}

/// A vector of `length` copies of `value`; an error if the memory is not available.
pub(crate) fn filled<T: Clone>(value: T, length: usize) -> Result<Vec<T>, JpegError> {
    let mut values = reserved(length)?;
    values.resize(length, value);
    Ok(values)
}

/// An empty vector with room for `length` values; an error if the memory is not available.
pub(crate) fn reserved<T>(length: usize) -> Result<Vec<T>, JpegError> {
    let mut values = Vec::new();
    let bytes = length.saturating_mul(size_of::<T>());
    values.try_reserve_exact(length).map_err(|_| JpegError::Memory { bytes })?;
    Ok(values)
}
