//! Number and duration of the frames of an animation, read from the headers without decoding.

use std::io::{self, BufRead, ErrorKind, Read, Seek};

use super::Format;

/// Number of frames and total duration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Timing {
    pub(super) frames: usize,
    pub(super) seconds: f64,
    /// Whether the file is a GIF that ends after a whole frame, without its trailer.
    pub(super) lacks_trailer: bool,
}

impl Timing {
    /// Reads the headers from the start of the file. A damaged file is read up to the damage.
    pub(super) fn read<R: BufRead + Seek>(reader: &mut R, format: Format) -> io::Result<Self> {
        let mut timing = Timing::default();
        reader.rewind()?;
        let result = match format {
            Format::Gif => timing.read_gif(reader),
            Format::Png => timing.read_png(reader),
            Format::WebP => timing.read_webp(reader),
        };
        match result {
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(error),
            Ok(()) | Err(_) => Ok(timing),
        }
    }

    /// Average frames per second; `None` if the total duration is 0.
    pub(super) fn frame_rate(self) -> Option<f64> {
        let rate = self.frames as f64 / self.seconds;
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    fn read_gif<R: BufRead + Seek>(&mut self, reader: &mut R) -> io::Result<()> {
        let header: [u8; 13] = bytes(reader)?;
        skip(reader, colour_table(header[10]))?;
        let mut hundredths = 0;
        loop {
            let introducer = bytes(reader);
            self.lacks_trailer = self.frames > 0 && introducer.is_err();
            let [introducer] = introducer?;
            match introducer {
                b'!' => {
                    let [label] = bytes(reader)?;
                    if label == 0xf9 {
                        let [_, _, low, high, _] = bytes(reader)?;
                        hundredths = u16::from_le_bytes([low, high]);
                    }
                    skip_blocks(reader)?;
                }
                b',' => {
                    let descriptor: [u8; 9] = bytes(reader)?;
                    // The byte after the colour table is the initial LZW code size.
                    skip(reader, colour_table(descriptor[8]) + 1)?;
                    skip_blocks(reader)?;
                    self.frames += 1;
                    // Browsers show frames with a very short delay for a tenth of a second.
                    let shown = if hundredths < 2 { 10 } else { hundredths };
                    self.seconds += f64::from(shown) / 100.0;
                    hundredths = 0;
                }
                _ => return Ok(()),
            }
        }
    }

    fn read_png<R: BufRead + Seek>(&mut self, reader: &mut R) -> io::Result<()> {
        skip(reader, 8)?;
        loop {
            let [a, b, c, d, kind @ ..]: [u8; 8] = bytes(reader)?;
            let mut rest = i64::from(u32::from_be_bytes([a, b, c, d])) + 4;
            if &kind == b"fcTL" && rest >= 30 {
                let control: [u8; 26] = bytes(reader)?;
                rest -= 26;
                let above = u16::from_be_bytes([control[20], control[21]]);
                let below = match u16::from_be_bytes([control[22], control[23]]) {
                    0 => 100,
                    below => below,
                };
                self.frames += 1;
                self.seconds += f64::from(above) / f64::from(below);
            } else if &kind == b"IEND" {
                return Ok(());
            }
            skip(reader, rest)?;
        }
    }

    fn read_webp<R: BufRead + Seek>(&mut self, reader: &mut R) -> io::Result<()> {
        skip(reader, 12)?;
        loop {
            let [kind @ .., a, b, c, d]: [u8; 8] = bytes(reader)?;
            let size = i64::from(u32::from_le_bytes([a, b, c, d]));
            let mut rest = size + (size & 1);
            if &kind == b"ANMF" && rest >= 16 {
                let header: [u8; 16] = bytes(reader)?;
                rest -= 16;
                let milliseconds = u32::from_le_bytes([header[12], header[13], header[14], 0]);
                self.frames += 1;
                self.seconds += f64::from(milliseconds) / 1000.0;
            }
            skip(reader, rest)?;
        }
    }
}

fn bytes<const COUNT: usize>(reader: &mut impl Read) -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn skip<R: BufRead + Seek>(reader: &mut R, count: i64) -> io::Result<()> {
    reader.seek_relative(count)
}

/// Size of a GIF colour table in bytes, from its flags.
fn colour_table(flags: u8) -> i64 {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

/// Skips length-prefixed blocks up to and including the empty one.
fn skip_blocks<R: BufRead + Seek>(reader: &mut R) -> io::Result<()> {
    loop {
        match bytes(reader)? {
            [0] => return Ok(()),
            [length] => skip(reader, i64::from(length))?,
        }
    }
}
