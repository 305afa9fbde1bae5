//! Pictures from files.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cutout_imaging::{DecodeError, DecodeLimits, Image, Size, is_picture_name};

use crate::stdio;

/// Opens a picture. If only part of its file is intact, says so on standard error.
pub(crate) fn open(path: &Path) -> Result<Image, DecodeError> {
    let image = cutout_imaging::open(path, &DecodeLimits::default())?;
    if let Some(warning) = image.warning() {
        stdio::warn(warning);
    }
    Ok(image)
}

/// The picture itself, or the pictures of a folder, sorted by name.
pub(crate) fn pictures_in(input: &Path) -> Result<Vec<PathBuf>> {
    if !input.is_dir() {
        return Ok(vec![input.to_owned()]);
    }
    let mut pictures = Vec::new();
    for entry in input.read_dir().with_context(|| input.display().to_string())? {
        let path = entry.with_context(|| input.display().to_string())?.path();
        // A link to nothing is a picture that cannot be read, not one that is not there.
        if !path.is_dir() && is_picture_name(&path) {
            pictures.push(path);
        }
    }
    pictures.sort();
    if pictures.is_empty() {
        bail!("{}: no pictures in this folder", input.display());
    }
    Ok(pictures)
}

/// A deterministic picture with edges and gradients; `shift` moves its discs to the left, in pixels.
pub(crate) fn drawn(size: Size, shift: usize) -> Result<Image> {
    let pixel = |i: usize| {
        let (x, y) = (i % size.width, i / size.width);
        let disc =
            ((x + shift) % 300).abs_diff(150).pow(2) + (y % 300).abs_diff(150).pow(2) < 90 * 90;
        [(x * 255 / size.width) as u8, (y * 255 / size.height) as u8, if disc { 220 } else { 40 }]
    };
    Ok(Image::from_rgb(size, (0..size.pixels(3)?).flat_map(pixel).collect())?)
}
