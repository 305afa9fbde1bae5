//! Pictures from files.

use std::path::Path;

use cutout_imaging::{DecodeError, DecodeLimits, Image};

use crate::stdio;

/// Opens a picture. If only part of its file is intact, says so on standard error.
pub(crate) fn open(path: &Path) -> Result<Image, DecodeError> {
    let image = cutout_imaging::open(path, &DecodeLimits::default())?;
    if let Some(warning) = image.warning() {
        stdio::warn(warning);
    }
    Ok(image)
}
