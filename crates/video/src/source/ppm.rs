//! Streams of PPM images, as `ffmpeg -f image2pipe -c:v ppm` writes them.

use std::io::{BufRead, ErrorKind, Read};

use cutout_imaging::{Image, Size};

use super::VideoLimits;
use super::raw::{StreamFrame, check_size};
use crate::{FrameSource, VideoError};

/// Most bytes of a header: three numbers, white space and comments.
const HEADER_BYTES: usize = 1024;

/// The frames of a stream.
pub(super) struct PpmFrames<R> {
    reader: R,
    name: String,
    limits: VideoLimits,
    size: Option<Size>,
    frame: usize,
    ended: bool,
    /// The stream has ended, possibly inside a frame.
    exhausted: bool,
}

impl<R: BufRead + Send> PpmFrames<R> {
    pub(super) fn new(reader: R, name: String, limits: VideoLimits) -> Self {
        PpmFrames { reader, name, limits, size: None, frame: 0, ended: false, exhausted: false }
    }

    /// Frames delivered so far.
    pub(super) fn delivered(&self) -> usize {
        self.frame
    }

    /// Whether the stream has ended; `false` if it failed for another reason.
    pub(super) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    fn read(&mut self) -> Result<Option<Image>, VideoError> {
        let current = StreamFrame { name: &self.name, frame: self.frame };
        let mut header = Header { current, reader: &mut self.reader, bytes: 0, exhausted: false };
        let found = header.read();
        self.exhausted = header.exhausted;
        let Some(found) = found? else { return Ok(None) };
        let bytes = 3 * check_size(&self.name, found, &self.limits)?;
        let expected = *self.size.get_or_insert(found);
        if found != expected {
            let (name, frame) = (self.name.clone(), self.frame);
            return Err(VideoError::FrameSize { name, frame, expected, found });
        }
        let pixels = current.read_pixels(&mut self.reader, bytes)?;
        if pixels.len() < bytes {
            self.exhausted = true;
            return Err(current.truncated(bytes, pixels.len()));
        }
        current.image(found, pixels).map(Some)
    }
}

impl<R: BufRead + Send> Iterator for PpmFrames<R> {
    type Item = Result<Image, VideoError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let found = self.read().transpose();
        match found {
            Some(Ok(_)) => self.frame += 1,
            Some(Err(_)) | None => self.ended = true,
        }
        found
    }
}

impl<R: BufRead + Send> FrameSource for PpmFrames<R> {
    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> Option<usize> {
        None
    }

    fn frame_rate(&self) -> Option<f64> {
        None
    }
}

/// Parser of a header: `P6`, width, height and largest value, separated by white space and comments from `#` to the end of
/// the line. One white-space character precedes the pixels.
struct Header<'a, R> {
    current: StreamFrame<'a>,
    reader: &'a mut R,
    bytes: usize,
    exhausted: bool,
}

impl<R: Read> Header<'_, R> {
    /// The size, or `None` at the end of the stream.
    fn read(&mut self) -> Result<Option<Size>, VideoError> {
        let Some(first) = self.byte()? else { return Ok(None) };
        let second = self.expect_byte()?;
        if [first, second] != *b"P6" {
            return Err(self.wrong(format!("it starts with the bytes {first:#04x} {second:#04x}")));
        }
        let (width, height) = (self.number()?, self.number()?);
        match self.number()? {
            255 => Ok(Some(Size::new(width, height))),
            other => Err(self.wrong(format!("its largest value is {other}, expected 255"))),
        }
    }

    /// Reads the next number and the byte after it.
    fn number(&mut self) -> Result<usize, VideoError> {
        let mut digits = String::new();
        loop {
            match self.expect_byte()? {
                digit @ b'0'..=b'9' => digits.push(char::from(digit)),
                b'#' if digits.is_empty() => while self.expect_byte()? != b'\n' {},
                white if white.is_ascii_whitespace() && digits.is_empty() => {}
                white if white.is_ascii_whitespace() => break,
                other => return Err(self.wrong(format!("its header has the byte {other:#04x}"))),
            }
        }
        digits.parse().map_err(|_| self.wrong(format!("{digits} is not a valid number")))
    }

    fn expect_byte(&mut self) -> Result<u8, VideoError> {
        match self.byte()? {
            Some(byte) => Ok(byte),
            None => Err(self.wrong("its header is cut off".into())),
        }
    }

    fn byte(&mut self) -> Result<Option<u8>, VideoError> {
        if self.bytes == HEADER_BYTES {
            return Err(self.wrong("its header does not end".into()));
        }
        self.bytes += 1;
        let mut byte = [0];
        match self.reader.read_exact(&mut byte) {
            Ok(()) => Ok(Some(byte[0])),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                self.exhausted = true;
                Ok(None)
            }
            Err(error) => Err(self.current.unreadable(error)),
        }
    }

    fn wrong(&self, reason: String) -> VideoError {
        VideoError::Stream { name: self.current.name.into(), frame: self.current.frame, reason }
    }
}
