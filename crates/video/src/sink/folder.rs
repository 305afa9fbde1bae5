//! A folder with a file for each frame.

use std::fs;
use std::path::{Path, PathBuf};

use cutout_imaging::{WriteError, write};

use crate::SinkError;

/// A folder for files of frames. One that was made for them goes again when nothing was put into it.
#[derive(Debug)]
pub struct FrameFolder {
    path: PathBuf,
    /// Whether it was not there before.
    is_new: bool,
}

impl FrameFolder {
    /// Makes the folder if it is not there.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self, SinkError> {
        let path = path.into();
        let is_new = !path.exists();
        fs::create_dir_all(&path).map_err(|source| WriteError::new(&path, source))?;
        Ok(FrameFolder { path, is_new })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of frame number `index`: `00007.png` for frame 7 with the extension `png`.
    pub fn file(&self, index: usize, extension: &str) -> PathBuf {
        self.path.join(format!("{index:05}.{extension}"))
    }

    /// Writes a frame as PNG.
    pub(super) fn write_picture(&self, index: usize, png: &[u8]) -> Result<(), SinkError> {
        Ok(write(self.file(index, "png"), png)?)
    }
}

impl Drop for FrameFolder {
    fn drop(&mut self) {
        if self.is_new {
            // Fails, as it should, where something lies in it.
            let _ignored = fs::remove_dir(&self.path);
        }
    }
}
