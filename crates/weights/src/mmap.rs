//! The only `unsafe` of the crate: mapping a file into memory.
#![allow(
    unsafe_code,
    reason = "a mapped file needs no copy, and only the caller can promise that it stays as it is"
)]

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use cutout_tensor::SharedBytes;

use crate::error::WeightsError;

/// Maps a file read-only. No byte of it is read until somebody looks at it.
pub(crate) fn map(path: &Path) -> Result<SharedBytes, WeightsError> {
    let refuse = |error| WeightsError::reading(path, error);
    // Before it is opened: opening a pipe would wait for somebody who writes to it.
    let metadata = fs::metadata(path).map_err(refuse)?;
    if !metadata.is_file() {
        let found = if metadata.is_dir() { "a folder" } else { "not a regular file" };
        return Err(WeightsError::Unrecognised {
            file: path.display().to_string(),
            found: found.into(),
        });
    }
    let file = File::open(path).map_err(refuse)?;
    if file.metadata().map_err(refuse)?.len() == 0 {
        return Ok(Arc::new(Vec::new()));
    }
    // SAFETY: the map is private to this process, read-only and only ever seen as `&[u8]`; every byte pattern is a valid
    // `u8`. The remaining duty, that nobody shortens or rewrites the file while it is open, lies with the user, as it
    // does for every program that maps its input; `Checkpoint::open` says so.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(refuse)?;
    Ok(Arc::new(map))
}
