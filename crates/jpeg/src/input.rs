//! The bytes of a file, segment by segment.

use crate::JpegError;

/// Marker codes: the second byte after 0xFF.
pub(crate) mod marker {
    pub(crate) const RESTART_0: u8 = 0xd0;
    pub(crate) const RESTART_7: u8 = 0xd7;
    pub(crate) const START_OF_IMAGE: u8 = 0xd8;
    pub(crate) const END_OF_IMAGE: u8 = 0xd9;
    pub(crate) const START_OF_SCAN: u8 = 0xda;
}

/// A position in a file. Beyond the end there are end-of-image markers.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) position: usize,
    /// Whether the end of the file was reached before an end-of-image marker.
    pub(crate) ended: bool,
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Input { bytes, position: 0, ended: false }
    }

    /// The code of the next marker. Other bytes before it are skipped.
    pub(crate) fn next_marker(&mut self) -> u8 {
        loop {
            let rest = self.bytes.get(self.position..).unwrap_or_default();
            let Some(start) = rest.iter().position(|&byte| byte == 0xff) else { break };
            let Some(code) = rest[start..].iter().position(|&byte| byte != 0xff) else { break };
            self.position += start + code + 1;
            match rest[start + code] {
                // A stuffed zero: data, not a marker.
                0 => {}
                found => return found,
            }
        }
        self.position = self.bytes.len();
        self.ended = true;
        marker::END_OF_IMAGE
    }

    /// The bytes of the segment at this position, without its length.
    pub(crate) fn segment(&mut self) -> Result<&'a [u8], JpegError> {
        let cut = || JpegError::damaged("it ends inside a header segment");
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let &[high, low, ref rest @ ..] = rest else {
            self.ended = true;
            return Err(cut());
        };
        let length = usize::from(u16::from_be_bytes([high, low])).saturating_sub(2);
        let Some(segment) = rest.get(..length) else {
            self.ended = true;
            return Err(cut());
        };
        self.position += 2 + length;
        Ok(segment)
    }
}

/// Reads the parameters of a segment, front to back.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], JpegError> {
        let short = || JpegError::damaged("a header segment is too short");
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, JpegError> {
        Ok(self.take(1)?[0])
    }

    /// Two bytes, the high one first.
    pub(crate) fn word(&mut self) -> Result<u16, JpegError> {
        let pair = self.take(2)?;
        Ok(u16::from_be_bytes([pair[0], pair[1]]))
    }

    /// The high and the low half of a byte.
    pub(crate) fn halves(&mut self) -> Result<(u8, u8), JpegError> {
        let byte = self.byte()?;
        Ok((byte >> 4, byte & 15))
    }
}
