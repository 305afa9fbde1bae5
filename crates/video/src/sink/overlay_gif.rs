//! Overlays as GIF.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use cutout_imaging::{Image, Size, WriteError};
use gif::{DisposalMethod, Encoder, EncodingError, Extension, Frame, Repeat};

use super::overlay::draw;
use super::{FrameResult, Sink};
use crate::SinkError;

/// Quantisation speed from 1 (best colours) to 30 (fastest); the `gif` crate recommends 10.
const SPEED: i32 = 10;
/// The byte that ends a GIF.
const TRAILER: u8 = b';';

/// Writes an endlessly repeating GIF with a palette per frame; one frame is in memory at a time. The file is a complete GIF
/// after each frame: the trailer is written, and overwritten by the next frame.
pub(super) struct OverlayGif {
    path: PathBuf,
    state: State,
    clock: Clock,
}

enum State {
    /// No frame has set the size yet.
    Empty(Option<File>),
    Started(Encoder<BufWriter<File>>, Size),
}

impl OverlayGif {
    pub(super) fn create(path: &Path, frame_rate: f64) -> Result<Self, SinkError> {
        let file = File::create(path).map_err(|source| WriteError::new(path, source))?;
        let clock = Clock { frame_rate, frame: 0, shown_until: 0 };
        Ok(OverlayGif { path: path.to_owned(), state: State::Empty(Some(file)), clock })
    }

    /// The encoder for frames of the size of `frame`; the first one sets the size.
    fn encoder(
        &mut self,
        frame: &FrameResult<'_>,
    ) -> Result<&mut Encoder<BufWriter<File>>, SinkError> {
        let found = frame.image.size();
        if let State::Empty(file) = &mut self.state {
            let too_large =
                || SinkError::TooLarge { path: self.path.clone(), found, format: "GIF" };
            let (width, height) = dimensions(found).ok_or_else(too_large)?;
            let gone = || EncodingError::from(io::Error::from(io::ErrorKind::NotConnected));
            let encoder = file
                .take()
                .ok_or_else(gone)
                .and_then(|file| start(file, width, height))
                .map_err(|error| fail(&self.path, error))?;
            self.state = State::Started(encoder, found);
        }
        match &mut self.state {
            State::Started(encoder, expected) if *expected == found => Ok(encoder),
            State::Started(_, expected) => Err(SinkError::FrameSize {
                path: self.path.clone(),
                frame: frame.index,
                expected: *expected,
                found,
            }),
            State::Empty(_) => unreachable!("it was started above"),
        }
    }
}

impl Sink for OverlayGif {
    fn write(&mut self, frame: &FrameResult<'_>) -> Result<(), SinkError> {
        let path = self.path.clone();
        let delay = self.clock.next();
        let encoder = self.encoder(frame)?;
        let Some(delay) = delay else { return Ok(()) };
        let picture = quantize(&draw(frame)?, delay);
        append(encoder, &picture).map_err(|error| fail(&path, error))
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        let OverlayGif { path, state, .. } = *self;
        match state {
            State::Started(encoder, _) => encoder
                .into_inner()
                .and_then(|writer| {
                    Ok(writer.into_inner().map_err(io::IntoInnerError::into_error)?)
                })
                .and_then(|file| Ok(file.sync_all()?))
                .map_err(|error| fail(&path, error)),
            State::Empty(file) => {
                drop(file);
                // Without a frame the file is empty, which is not a valid GIF.
                std::fs::remove_file(&path).map_err(|source| WriteError::new(&path, source).into())
            }
        }
    }
}

fn start(file: File, width: u16, height: u16) -> Result<Encoder<BufWriter<File>>, EncodingError> {
    let mut encoder = Encoder::new(BufWriter::new(file), width, height, &[])?;
    encoder.set_repeat(Repeat::Infinite)?;
    let comment = cutout_files::SOFTWARE.as_bytes();
    encoder.write_raw_extension(Extension::Comment.into(), &[comment])?;
    Ok(encoder)
}

/// Writes a frame and the trailer, which the next frame overwrites.
fn append(encoder: &mut Encoder<BufWriter<File>>, frame: &Frame<'_>) -> Result<(), EncodingError> {
    encoder.write_frame(frame)?;
    let writer = encoder.get_mut();
    writer.write_all(&[TRAILER])?;
    // Seeking flushes the buffer.
    writer.seek(SeekFrom::Current(-1))?;
    Ok(())
}

fn fail(path: &Path, error: EncodingError) -> SinkError {
    let source =
        if let EncodingError::Io(source) = error { source } else { io::Error::other(error) };
    WriteError::new(path, source).into()
}

fn dimensions(size: Size) -> Option<(u16, u16)> {
    Some((size.width.try_into().ok()?, size.height.try_into().ok()?))
}

fn quantize(image: &Image, delay: u16) -> Frame<'static> {
    let (width, height) = dimensions(image.size()).unwrap_or_default();
    let mut frame = Frame::from_rgb_speed(width, height, image.as_rgb(), SPEED);
    frame.dispose = DisposalMethod::Keep;
    frame.delay = delay;
    frame
}

/// Delays of GIF frames. GIFs count in hundredths of a second, and viewers slow down frames shorter than two of them. The
/// start of each frame is rounded, so that errors do not add up; frames that would be too short are dropped.
struct Clock {
    frame_rate: f64,
    frame: u64,
    shown_until: u64,
}

impl Clock {
    /// Delay of the next frame, in hundredths of a second; `None` to drop the frame.
    fn next(&mut self) -> Option<u16> {
        let start = self.start_of(self.frame);
        self.frame += 1;
        if start < self.shown_until {
            return None;
        }
        let ends = (self.frame..).map(|frame| self.start_of(frame));
        self.shown_until = ends.into_iter().find(|end| *end >= start + 2).unwrap_or(start + 2);
        Some((self.shown_until - start).min(u16::MAX.into()) as u16)
    }

    fn start_of(&self, frame: u64) -> u64 {
        (100.0 * frame as f64 / self.frame_rate).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(frame_rate: f64, count: usize) -> Vec<Option<u16>> {
        let mut clock = Clock { frame_rate, frame: 0, shown_until: 0 };
        (0..count).map(|_| clock.next()).collect()
    }

    #[test]
    fn the_clock_does_not_drift() {
        assert_eq!(delays(30.0, 6), [3, 4, 3, 3, 4, 3].map(Some));
        assert_eq!(delays(25.0, 3), [Some(4); 3]);
        assert_eq!(delays(60.0, 6), [Some(2), Some(3), None, Some(2), Some(3), None]);
        assert_eq!(delays(0.001, 1), [Some(u16::MAX)]);
        for rate in [1.0, 12.5, 23.976, 29.97, 50.0, 59.94, 120.0, 1000.0] {
            let count = (rate * 20.0) as usize;
            let kept: Vec<u16> = delays(rate, count).into_iter().flatten().collect();
            assert!(kept.iter().all(|delay| *delay >= 2), "{rate}");
            let total: u64 = kept.iter().map(|delay| u64::from(*delay)).sum();
            assert!(total.abs_diff((100.0 * count as f64 / rate) as u64) <= 2, "{rate}: {total}");
        }
    }
}
