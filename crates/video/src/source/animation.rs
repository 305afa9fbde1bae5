//! GIF, APNG and WebP animations.

use std::io::{BufRead, Seek};
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cutout_imaging::{Image, Size};
use gif::{ColorOutput, DisposalMethod, MemoryLimit};
use png::{BlendOp, ColorType, DisposeOp, Transformations};

use super::canvas::{Area, Blend, Canvas, Dispose, Patch};
use super::raw::check_size;
use super::timing::Timing;
use super::webp::WebPFrames;
use super::{Format, VideoLimits};
use crate::{FrameSource, VideoError};

/// Memory a decoder may use besides the pixels, in bytes: tables, one row, profiles.
const SPARE_BYTES: u64 = 64 << 20;

/// Seekable bytes of an animation, in a file or in memory.
pub(super) trait Input: BufRead + Seek + Send {}

impl<T: BufRead + Seek + Send> Input for T {}

type Reader = Box<dyn Input>;
type Reason = String;

/// Frames of an animation, composed as a viewer shows them.
pub(super) struct Animation {
    decoder: Decoder,
    canvas: Canvas,
    name: String,
    format: Format,
    timing: Timing,
    limit: usize,
    frame: usize,
    ended: bool,
}

/// Reads the patches in sequence.
enum Decoder {
    Gif(Box<gif::Decoder<Reader>>),
    Png(Box<PngFrames>),
    WebP(WebPFrames<Reader>),
}

struct PngFrames {
    reader: png::Reader<Reader>,
    /// Remaining frames according to the header.
    left: u32,
    /// The next image is a cover, not a frame.
    has_cover: bool,
}

impl Animation {
    /// Reads the headers; `None` if the file is a still image.
    pub(super) fn open(
        mut reader: Reader,
        name: &str,
        format: Format,
        limits: VideoLimits,
    ) -> Result<Option<Self>, VideoError> {
        let unreadable = |source| VideoError::Read { name: name.into(), source };
        let timing = Timing::read(&mut reader, format).map_err(unreadable)?;
        reader.rewind().map_err(unreadable)?;
        // A panic of a third-party decoder on a malicious file is reported as a damaged file.
        let opened = catch_unwind(AssertUnwindSafe(|| Decoder::open(reader, format, &limits)))
            .unwrap_or_else(|_| Err("the decoder panicked".into()));
        let damaged = |reason| VideoError::Animation {
            name: name.into(),
            format: format.name(),
            frame: 0,
            reason,
        };
        let Some(decoder) = opened.map_err(damaged)? else { return Ok(None) };
        let size = decoder.size();
        check_size(name, size, &limits)?;
        let limit = limits.animation_frames;
        if timing.frames > limit {
            return Err(VideoError::TooManyFrames { name: name.into(), limit });
        }
        let canvas =
            Canvas::new(size).map_err(|source| VideoError::Image { name: name.into(), source })?;
        let name = name.to_owned();
        Ok(Some(Animation { decoder, canvas, name, format, timing, limit, frame: 0, ended: false }))
    }

    fn read(&mut self) -> Result<Option<Image>, VideoError> {
        if self.timing.lacks_trailer && self.frame == self.timing.frames {
            return Ok(None);
        }
        let next = catch_unwind(AssertUnwindSafe(|| self.decoder.next()))
            .unwrap_or_else(|_| Err("the decoder panicked".into()));
        let Some(patch) = next.map_err(|reason| self.damaged(reason))? else {
            let name = self.name.clone();
            return if self.frame == 0 { Err(VideoError::NoFrames { name }) } else { Ok(None) };
        };
        if self.frame == self.limit {
            return Err(VideoError::TooManyFrames { name: self.name.clone(), limit: self.limit });
        }
        let image = self.canvas.show(&patch).map_err(|error| self.damaged(error.to_string()))?;
        if self.timing.lacks_trailer && self.frame + 1 == self.timing.frames {
            let (name, frame) = (&self.name, self.frame);
            let warning =
                format!("{name}: the GIF file has no end: it may be cut after frame {frame}");
            return Ok(Some(image.with_warning(warning)));
        }
        Ok(Some(image))
    }

    fn damaged(&self, reason: Reason) -> VideoError {
        let (name, format) = (self.name.clone(), self.format.name());
        VideoError::Animation { name, format, frame: self.frame, reason }
    }
}

impl Iterator for Animation {
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

impl FrameSource for Animation {
    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> Option<usize> {
        Some(self.timing.frames)
    }

    fn frame_rate(&self) -> Option<f64> {
        self.timing.frame_rate()
    }
}

impl Decoder {
    fn open(reader: Reader, format: Format, limits: &VideoLimits) -> Result<Option<Self>, Reason> {
        let bytes = limits.picture.pixels.saturating_mul(8).saturating_add(SPARE_BYTES);
        match format {
            Format::Gif => {
                let mut options = gif::DecodeOptions::new();
                options.set_color_output(ColorOutput::RGBA);
                let bytes = NonZeroU64::new(bytes).unwrap_or(NonZeroU64::MIN);
                options.set_memory_limit(MemoryLimit::Bytes(bytes));
                let decoder = options.read_info(reader).map_err(|error| error.to_string())?;
                Ok(Some(Decoder::Gif(Box::new(decoder))))
            }
            Format::Png => Ok(PngFrames::open(reader, bytes)?.map(Box::new).map(Decoder::Png)),
            Format::WebP => Ok(WebPFrames::open(reader)?.map(Decoder::WebP)),
        }
    }

    fn size(&self) -> Size {
        match self {
            Decoder::Gif(decoder) => Size::new(decoder.width().into(), decoder.height().into()),
            Decoder::Png(frames) => {
                let (width, height) = frames.reader.info().size();
                Size::new(width as usize, height as usize)
            }
            Decoder::WebP(frames) => frames.size(),
        }
    }

    fn next(&mut self) -> Result<Option<Patch>, Reason> {
        match self {
            Decoder::Gif(decoder) => {
                let frame = decoder.read_next_frame().map_err(|error| error.to_string())?;
                Ok(frame.map(gif_patch))
            }
            Decoder::Png(frames) => frames.next(),
            Decoder::WebP(frames) => frames.next(),
        }
    }
}

fn gif_patch(frame: &gif::Frame<'_>) -> Patch {
    let size = Size::new(frame.width.into(), frame.height.into());
    let dispose = match frame.dispose {
        DisposalMethod::Any | DisposalMethod::Keep => Dispose::Keep,
        DisposalMethod::Background => Dispose::Clear,
        DisposalMethod::Previous => Dispose::Restore,
    };
    Patch {
        area: Area { left: frame.left.into(), top: frame.top.into(), size },
        pixels: frame.buffer.to_vec(),
        blend: Blend::Over,
        dispose,
    }
}

impl PngFrames {
    fn open(reader: Reader, bytes: u64) -> Result<Option<Self>, Reason> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut decoder = png::Decoder::new_with_limits(reader, png::Limits { bytes });
        decoder.set_transformations(Transformations::normalize_to_color8());
        let reader = decoder.read_info().map_err(|error| error.to_string())?;
        let Some(animation) = reader.info().animation_control() else { return Ok(None) };
        let left = animation.num_frames;
        // A first image without a frame header is a fallback for programs without animation support.
        let has_cover = reader.info().frame_control().is_none();
        Ok(Some(PngFrames { reader, left, has_cover }))
    }

    fn next(&mut self) -> Result<Option<Patch>, Reason> {
        if self.left == 0 {
            return Ok(None);
        }
        if std::mem::take(&mut self.has_cover) {
            self.read()?;
        }
        let (size, pixels) = self.read()?;
        self.left -= 1;
        let Some(control) = self.reader.info().frame_control() else {
            return Err("a frame without a header".into());
        };
        let (left, top) = (control.x_offset as usize, control.y_offset as usize);
        let blend = match control.blend_op {
            BlendOp::Source => Blend::Replace,
            BlendOp::Over => Blend::Over,
        };
        let dispose = match control.dispose_op {
            DisposeOp::None => Dispose::Keep,
            DisposeOp::Background => Dispose::Clear,
            DisposeOp::Previous => Dispose::Restore,
        };
        Ok(Some(Patch { area: Area { left, top, size }, pixels, blend, dispose }))
    }

    /// Decodes the next image: its size and u8 `[height, width, 4]`.
    fn read(&mut self) -> Result<(Size, Vec<u8>), Reason> {
        let bytes = self.reader.output_buffer_size().ok_or("a frame larger than memory")?;
        let mut pixels = vec![0; bytes];
        let found = self.reader.next_frame(&mut pixels).map_err(|error| error.to_string())?;
        let size = Size::new(found.width as usize, found.height as usize);
        let info = self.reader.info();
        if info.interlaced && info.width != found.width {
            // The `png` crate lays out the rows of an interlaced frame with the width of the canvas.
            let stride = found.color_type.samples() * info.width as usize;
            let rows = pixels.chunks(stride).flat_map(|row| &row[..found.line_size.min(row.len())]);
            pixels = rows.copied().collect();
        }
        pixels.truncate(found.buffer_size());
        Ok((size, to_rgba(pixels, found.color_type)?))
    }
}

/// Converts pixels of one byte per channel to u8 `[height, width, 4]`.
fn to_rgba(pixels: Vec<u8>, color: ColorType) -> Result<Vec<u8>, Reason> {
    let spread = |channels: usize, rgba: fn(&[u8]) -> [u8; 4]| {
        Ok(pixels.chunks_exact(channels).flat_map(rgba).collect())
    };
    match color {
        ColorType::Grayscale => spread(1, |p| [p[0], p[0], p[0], 255]),
        ColorType::GrayscaleAlpha => spread(2, |p| [p[0], p[0], p[0], p[1]]),
        ColorType::Rgb => spread(3, |p| [p[0], p[1], p[2], 255]),
        ColorType::Rgba => Ok(pixels),
        ColorType::Indexed => Err("its palette was not applied".into()),
    }
}
