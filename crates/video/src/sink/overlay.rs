//! Overlays: frames with their masks drawn over them.

use std::path::Path;

use cutout_imaging::{
    Image, ImageError, Rle, Tag, distinct_colour, encode_image, overlay_with, tagged,
};

use super::overlay_gif::OverlayGif;
use super::overlay_video::{Encoding, OverlayVideo};
use super::{FrameFolder, FrameResult, ObjectMask, Sink};
use crate::{SinkError, Tools};

/// Options of an overlay.
#[derive(Clone, Debug, PartialEq)]
pub struct OverlayOptions {
    /// Frames per second of the output.
    pub frame_rate: f64,
    /// Programs that write video files.
    pub tools: Tools,
}

/// Opens an overlay. The extension selects the format: `.gif`; `.mp4`, `.mov`, `.mkv` or `.webm` through `ffmpeg`; no
/// extension, or an existing folder, for one PNG per frame.
pub fn open_overlay(
    path: impl AsRef<Path>,
    options: &OverlayOptions,
) -> Result<Box<dyn Sink>, SinkError> {
    let path = path.as_ref();
    let found = options.frame_rate;
    if !(found > 0.0 && found <= 1000.0) {
        return Err(SinkError::FrameRate { found });
    }
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match extension.as_deref() {
        None => OverlayFolder::open(path),
        Some(_) if path.is_dir() => OverlayFolder::open(path),
        Some("gif") => Ok(Box::new(OverlayGif::create(path, found)?)),
        Some(other) => match Encoding::of(other) {
            Some(encoding) => Ok(Box::new(OverlayVideo::create(path, encoding, options)?)),
            None => Err(SinkError::Extension { path: path.to_owned() }),
        },
    }
}

/// Most characters of a phrase that are drawn.
const LONGEST_NAME: usize = 24;

/// Draws every object in the colour of its number, which is the same in all frames.
pub(super) fn draw(frame: &FrameResult<'_>) -> Result<Image, SinkError> {
    let coloured: Vec<(&Rle, [u8; 3])> = frame
        .objects
        .iter()
        .map(|object| (&object.mask, distinct_colour(object.id as usize)))
        .collect();
    let fail = |source| SinkError::Image { frame: frame.index, source };
    let drawn = overlay_with(frame.image, &coloured).map_err(fail)?;
    if frame.objects.iter().all(|object| object.found.is_none()) {
        return Ok(drawn);
    }
    named(&drawn, frame.objects).map_err(fail)
}

/// Writes number and phrase above each object that was found by a phrase.
fn named(image: &Image, objects: &[ObjectMask]) -> Result<Image, ImageError> {
    let text = |object: &ObjectMask| {
        let phrase = object.found.as_ref()?.phrase.as_deref().unwrap_or_default();
        let name: String = phrase.chars().take(LONGEST_NAME).collect();
        Some(format!("{} {name}", object.id).trim_end().to_owned())
    };
    let texts: Vec<Option<String>> = objects.iter().map(text).collect();
    let tag = |(object, text): (&ObjectMask, &'_ Option<String>)| {
        let bounds = object.mask.bounds()?;
        Some((text.clone()?, bounds.left, bounds.top, distinct_colour(object.id as usize)))
    };
    let tags: Vec<_> = objects.iter().zip(&texts).filter_map(tag).collect();
    let tags: Vec<Tag<'_>> = tags
        .iter()
        .map(|(text, x, y, colour)| Tag { text, x: *x, y: *y, colour: *colour })
        .collect();
    tagged(image, &tags)
}

/// A folder of `00000.png`, `00001.png`, …
struct OverlayFolder {
    folder: FrameFolder,
}

impl OverlayFolder {
    fn open(path: &Path) -> Result<Box<dyn Sink>, SinkError> {
        Ok(Box::new(OverlayFolder { folder: FrameFolder::create(path)? }))
    }
}

impl Sink for OverlayFolder {
    fn write(&mut self, frame: &FrameResult<'_>) -> Result<(), SinkError> {
        self.folder.write_picture(frame.index, &encode_image(&draw(frame)?)?)
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}
