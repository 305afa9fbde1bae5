//! The container of WebP animations. Every frame is a small WebP file without its header.

use std::io::{BufRead, Cursor, Read};

use cutout_imaging::{Size, webp_frame_size};
use image::codecs::webp::WebPDecoder;
use image::{DynamicImage, ImageDecoder};

use super::canvas::{Area, Blend, Dispose, Patch};

/// Frames of an animation, read in sequence.
pub(super) struct WebPFrames<R> {
    reader: R,
    /// Remaining bytes of the container according to its header.
    left: u64,
    size: Size,
}

type Reason = String;

impl<R: BufRead> WebPFrames<R> {
    /// Reads the header; `None` if the file is a still image.
    pub(super) fn open(mut reader: R) -> Result<Option<Self>, Reason> {
        let header = take(&mut reader, 30)?;
        // RIFF, length, WEBP, then a chunk. Only an extended header (VP8X) can declare an animation.
        if &header[12..16] != b"VP8X" || header[20] & 0x02 == 0 {
            return Ok(None);
        }
        let size = Size::new(1 + number(&header[24..27]), 1 + number(&header[27..30]));
        let extended = number(&header[16..20]);
        let mut frames = WebPFrames { reader, left: 0, size };
        // The length covers everything after it: the name, this chunk and the rest.
        let known = extended.next_multiple_of(2) as u64 + 12;
        frames.left = (number(&header[4..8]) as u64).saturating_sub(known);
        frames.skip(extended.next_multiple_of(2).saturating_sub(10) as u64)?;
        Ok(Some(frames))
    }

    /// Size of the canvas.
    pub(super) fn size(&self) -> Size {
        self.size
    }

    /// The next frame; `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<Patch>, Reason> {
        // Some writers add a byte of padding after the last chunk.
        while self.left >= 8 {
            let header = take(&mut self.reader, 8)?;
            let length = number(&header[4..8]) as u64;
            let padded = length + length % 2;
            self.left = self.left.saturating_sub(8 + padded);
            if &header[..4] == b"ANMF" {
                let chunk = take(&mut self.reader, padded)?;
                return self.patch(&chunk[..length as usize]).map(Some);
            }
            self.skip(padded)?;
        }
        Ok(None)
    }

    fn patch(&self, chunk: &[u8]) -> Result<Patch, Reason> {
        let Some((header, picture)) = chunk.split_at_checked(16) else {
            return Err("a frame without a header".into());
        };
        let [x, y, width, height] = [0, 3, 6, 9].map(|start| number(&header[start..start + 3]));
        let size = Size::new(width + 1, height + 1);
        let area = Area { left: 2 * x, top: 2 * y, size };
        if area.left + size.width > self.size.width || area.top + size.height > self.size.height {
            return Err(format!("a frame of {size} exceeds the canvas of {}", self.size));
        }
        let blend = if header[15] & 2 == 0 { Blend::Over } else { Blend::Replace };
        let dispose = if header[15] & 1 == 0 { Dispose::Keep } else { Dispose::Clear };
        Ok(Patch { area, pixels: decode(picture, size)?, blend, dispose })
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Reason> {
        let mut part = (&mut self.reader).take(bytes);
        match std::io::copy(&mut part, &mut std::io::sink()) {
            Ok(skipped) if skipped == bytes => Ok(()),
            Ok(_) => Err("the file is cut off".into()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Decodes the image of a frame to u8 `[height, width, 4]`; an error if its size is not `size`.
fn decode(picture: &[u8], size: Size) -> Result<Vec<u8>, Reason> {
    if let Some(found) = webp_frame_size(picture).filter(|found| *found != size) {
        return Err(format!("a frame of {found} where its header says {size}"));
    }
    let mut file = b"RIFF\0\0\0\0WEBP".to_vec();
    if picture.starts_with(b"ALPH") {
        // Separate chunks for alpha and colour require the extended header.
        file.extend(b"VP8X\x0a\0\0\0\x10\0\0\0");
        for side in [size.width, size.height] {
            file.extend(&((side - 1) as u32).to_le_bytes()[..3]);
        }
    }
    file.extend(picture);
    let length = u32::try_from(file.len() - 8).map_err(|_| "a frame of 4 GiB")?;
    file[4..8].copy_from_slice(&length.to_le_bytes());
    let decoder = WebPDecoder::new(Cursor::new(file)).map_err(|error| error.to_string())?;
    let (width, height) = decoder.dimensions();
    let found = Size::new(width as usize, height as usize);
    if found != size {
        return Err(format!("a frame of {found} where its header says {size}"));
    }
    let picture = DynamicImage::from_decoder(decoder).map_err(|error| error.to_string())?;
    Ok(picture.into_rgba8().into_raw())
}

/// Reads exactly `count` bytes. Memory grows with the bytes read, so a wrong `count` cannot exhaust it.
fn take(reader: &mut impl Read, count: u64) -> Result<Vec<u8>, Reason> {
    let mut bytes = Vec::new();
    reader.take(count).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 == count { Ok(bytes) } else { Err("the file is cut off".into()) }
}

/// A little-endian number of up to four bytes.
fn number(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}
