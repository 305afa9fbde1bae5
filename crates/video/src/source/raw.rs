//! Streams of raw frames.

use std::io::Read;

use cutout_imaging::{Image, Size};

use super::VideoLimits;
use crate::{FrameSource, VideoError};

/// Frames of u8 `[height, width, 3]` without any header or separator.
pub(super) struct RawFrames<R> {
    reader: R,
    name: String,
    size: Size,
    bytes: usize,
    length: Option<usize>,
    frame: usize,
    ended: bool,
}

impl<R: Read + Send> RawFrames<R> {
    pub(super) fn new(
        reader: R,
        name: String,
        size: Size,
        limits: &VideoLimits,
    ) -> Result<Self, VideoError> {
        let pixels = check_size(&name, size, limits)?;
        Ok(RawFrames {
            reader,
            name,
            size,
            bytes: 3 * pixels,
            length: None,
            frame: 0,
            ended: false,
        })
    }

    /// Sets the number of frames from the length of the file, in bytes.
    pub(super) fn with_bytes(mut self, bytes: u64) -> Self {
        self.length = usize::try_from(bytes).ok().map(|bytes| bytes / self.bytes);
        self
    }

    fn read(&mut self) -> Result<Option<Image>, VideoError> {
        let current = StreamFrame { name: &self.name, frame: self.frame };
        let pixels = current.read_pixels(&mut self.reader, self.bytes)?;
        if pixels.is_empty() {
            return Ok(None);
        }
        if pixels.len() < self.bytes {
            return Err(current.truncated(self.bytes, pixels.len()));
        }
        current.image(self.size, pixels).map(Some)
    }
}

impl<R: Read + Send> Iterator for RawFrames<R> {
    type Item = Result<Image, VideoError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let found = self.read().transpose();
        match found {
            Some(Ok(_)) => self.frame += 1,
            Some(Err(_)) => self.ended = true,
            None => {
                self.ended = true;
                let name = self.name.clone();
                return (self.frame == 0).then_some(Err(VideoError::NoFrames { name }));
            }
        }
        found
    }
}

impl<R: Read + Send> FrameSource for RawFrames<R> {
    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> Option<usize> {
        self.length
    }

    fn frame_rate(&self) -> Option<f64> {
        None
    }
}

/// Name of a stream and number of its current frame, for reading and for errors.
#[derive(Clone, Copy)]
pub(super) struct StreamFrame<'a> {
    pub(super) name: &'a str,
    pub(super) frame: usize,
}

impl StreamFrame<'_> {
    /// Reads up to `bytes` bytes. Memory grows with the bytes read beyond 64 MiB, so a wrong size cannot exhaust it.
    pub(super) fn read_pixels(
        self,
        reader: &mut impl Read,
        bytes: usize,
    ) -> Result<Vec<u8>, VideoError> {
        let mut pixels = Vec::with_capacity(bytes.min(64 << 20));
        reader
            .take(bytes as u64)
            .read_to_end(&mut pixels)
            .map_err(|source| self.unreadable(source))?;
        Ok(pixels)
    }

    pub(super) fn unreadable(self, source: std::io::Error) -> VideoError {
        VideoError::Read { name: self.name.into(), source }
    }

    pub(super) fn truncated(self, expected: usize, found: usize) -> VideoError {
        VideoError::Truncated { name: self.name.into(), frame: self.frame, expected, found }
    }

    pub(super) fn image(self, size: Size, pixels: Vec<u8>) -> Result<Image, VideoError> {
        Image::from_rgb(size, pixels)
            .map_err(|source| VideoError::Image { name: self.name.into(), source })
    }
}

/// Number of pixels of a frame; an error if it exceeds the limit.
pub(super) fn check_size(
    name: &str,
    size: Size,
    limits: &VideoLimits,
) -> Result<usize, VideoError> {
    let pixels =
        size.pixels(4).map_err(|source| VideoError::Image { name: name.into(), source })?;
    let limit = limits.picture.pixels;
    if pixels as u64 > limit {
        return Err(VideoError::TooManyPixels { name: name.into(), found: size, limit });
    }
    Ok(pixels)
}
