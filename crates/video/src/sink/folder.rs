//! A folder with one file per frame.

use std::fs;
use std::path::{Path, PathBuf};

use cutout_imaging::{WriteError, write};

use crate::SinkError;

/// A folder with one file per frame. If it was created here and is still empty when dropped, it is removed.
#[derive(Debug)]
pub struct FrameFolder {
    path: PathBuf,
    /// Whether the folder was created here.
    is_new: bool,
}

impl FrameFolder {
    /// Extension of pictures.
    pub const PICTURE: &str = "png";

    /// Creates the folder if it does not exist.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self, SinkError> {
        let path = path.into();
        let is_new = !path.exists();
        if !is_new && !path.is_dir() {
            return Err(SinkError::NotAFolder { path });
        }
        fs::create_dir_all(&path).map_err(|source| WriteError::new(&path, source))?;
        Ok(FrameFolder { path, is_new })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the file of frame `index`: `00007.png` for frame 7 with the extension `png`.
    pub fn file(&self, index: usize, extension: &str) -> PathBuf {
        frame_file(&self.path, index, extension)
    }

    /// Writes a frame as PNG.
    pub(super) fn write_picture(&self, index: usize, png: &[u8]) -> Result<(), SinkError> {
        Ok(write(self.file(index, Self::PICTURE), png)?)
    }
}

/// Path of the file of a frame in a folder.
pub(super) fn frame_file(folder: &Path, index: usize, extension: &str) -> PathBuf {
    folder.join(format!("{index:05}.{extension}"))
}

impl Drop for FrameFolder {
    fn drop(&mut self) {
        if self.is_new {
            // Fails, as intended, if the folder is not empty.
            let _ignored = fs::remove_dir(&self.path);
        }
    }
}
