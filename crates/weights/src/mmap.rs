//! Memory-mapped files: mapping, and releasing pages. The only `unsafe` code of the crate.
#![allow(
    unsafe_code,
    reason = "a mapped file needs no copy, and only the caller can promise that it stays as it is"
)]

use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use cutout_tensor::{Bytes, SharedBytes};

use crate::error::WeightsError;

/// Maps a file read-only. The system loads a page when it is first accessed.
pub(crate) fn map(path: &Path) -> Result<SharedBytes, WeightsError> {
    let refuse = |error| WeightsError::reading(path, error);
    // Checked before opening, because opening a pipe blocks until a writer opens it too.
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
    // SAFETY: the map is read-only and only exposed as `&[u8]`; every byte pattern is a valid `u8`. The remaining
    // condition, that the file is not truncated or modified while it is mapped, is the caller's duty, as documented on
    // `Checkpoint::open`.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(refuse)?;
    Ok(Arc::new(MappedFile(map)))
}

/// A file, mapped read-only.
struct MappedFile(memmap2::Mmap);

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Bytes for MappedFile {
    fn is_mapped(&self) -> bool {
        true
    }

    /// Releases all pages that the range touches. A later read loads them again, from the page cache or from the disk.
    /// Errors are ignored: the pages then stay in memory.
    fn release(&self, range: Range<usize>) {
        let end = range.end.min(self.0.len());
        #[cfg(target_os = "linux")]
        if range.start < end {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the map is read-only and backed by the file, so no page was modified and reloading restores the same
            // bytes. The range was clipped to the map above.
            let _ =
                unsafe { self.0.unchecked_advise_range(advice, range.start, end - range.start) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_pages_can_be_read_again() {
        let path = std::env::temp_dir().join(format!("cutout-released-{}", std::process::id()));
        let content: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &content).expect("the folder for temporary files is writable");
        let mapped = map(&path).expect("the file was just written");
        std::fs::remove_file(&path).expect("the file is still there");
        assert!((*mapped).as_ref() == content);
        for range in [0..content.len(), 5..70_000, 70_000..70_001, 999_999..usize::MAX] {
            mapped.release(range);
            assert!((*mapped).as_ref() == content);
        }
    }
}
