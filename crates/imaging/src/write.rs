//! Atomic file output: a file is written completely or not at all.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::{Rle, Size};

/// Why a file was not written. No partial file is left.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The folder or the file system does not permit writing.
    #[error("{}: no permission to write there", .0.display())]
    ReadOnly(PathBuf),
    /// The disk is full.
    #[error("{}: the disk is full", .0.display())]
    Full(PathBuf),
    /// The folder does not exist.
    #[error("{}: the folder does not exist", .0.display())]
    NoFolder(PathBuf),
    /// The path names a folder.
    #[error("{}: is a folder, not a file", .0.display())]
    IsFolder(PathBuf),
    /// Any other error of the operating system.
    #[error("{}: cannot write the file: {source}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl WriteError {
    /// Converts an I/O error from writing `path`.
    pub fn new(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        let kind = source.kind();
        if matches!(kind, ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) {
            WriteError::ReadOnly(path)
        } else if matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            WriteError::Full(path)
        } else if matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory) {
            WriteError::NoFolder(path)
        } else if kind == ErrorKind::IsADirectory {
            WriteError::IsFolder(path)
        } else {
            WriteError::Other { path, source }
        }
    }
}

/// Writes `bytes` to `path`; see [`write_with`].
pub fn write(path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), WriteError> {
    write_with(path, |file| file.write_all(bytes))
}

/// Runs `fill` on a temporary file beside `path`, then renames it to `path`: readers see the old file or the complete new
/// one. Devices and pipes are written directly.
pub fn write_with(
    path: impl AsRef<Path>,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    let path = path.as_ref();
    let fail = |source| WriteError::new(path, source);
    cutout_files::replace(path, fail, |writer| fill(writer).map_err(fail))
}

/// Writes masks of one size as a NumPy array, bool `[masks, height, width]`, with one mask in memory at a time. Masks of
/// another size are an error.
pub fn write_npy(path: impl AsRef<Path>, size: Size, masks: &[Rle]) -> Result<(), WriteError> {
    write_with(path, |file| {
        file.write_all(&npy_header(masks.len(), size))?;
        for mask in masks {
            if mask.size() != size {
                let message = format!("expected {size}, got a mask of {}", mask.size());
                return Err(io::Error::new(ErrorKind::InvalidInput, message));
            }
            let mask = mask.to_mask().map_err(io::Error::other)?;
            for row in mask.rows() {
                let bytes: Vec<u8> = row.iter().map(|set| u8::from(*set)).collect();
                file.write_all(&bytes)?;
            }
        }
        Ok(())
    })
}

/// Header of npy version 1.0: magic, length, and a Python dictionary padded so that the data starts at a multiple of 64.
fn npy_header(masks: usize, size: Size) -> Vec<u8> {
    let Size { width, height } = size;
    let shape = format!("({masks}, {height}, {width})");
    let mut text = format!("{{'descr': '|b1', 'fortran_order': False, 'shape': {shape}, }}");
    let padded = (text.len() + 11).next_multiple_of(64) - 11;
    text.push_str(&" ".repeat(padded - text.len()));
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_map_to_variants() {
        let of = |kind| WriteError::new(Path::new("x"), io::Error::from(kind));
        assert!(matches!(of(ErrorKind::PermissionDenied), WriteError::ReadOnly(_)));
        assert!(matches!(of(ErrorKind::ReadOnlyFilesystem), WriteError::ReadOnly(_)));
        assert!(matches!(of(ErrorKind::StorageFull), WriteError::Full(_)));
        assert!(matches!(of(ErrorKind::NotFound), WriteError::NoFolder(_)));
        assert!(matches!(of(ErrorKind::Interrupted), WriteError::Other { .. }));
    }

    #[test]
    fn npy_headers_are_aligned() {
        for masks in [0, 1, 1_000_000_000] {
            let header = npy_header(masks, Size::new(640, 480));
            assert_eq!(header.len() % 64, 0);
            assert_eq!(usize::from(u16::from_le_bytes([header[8], header[9]])) + 10, header.len());
            assert!(header.ends_with(b"\n"));
        }
    }
}
