//! Sources of frames.

use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use cutout_imaging::{DecodeError, DecodeLimits, Image, Size, decode};
use image::ImageFormat;

use crate::{StopHandle, Tools, VideoError};

mod animation;
mod archive;
mod canvas;
mod order;
mod pictures;
mod ppm;
mod probe;
mod raw;
mod still;
mod timing;
mod video;
mod webp;

use animation::Animation;
use archive::Archive;
use pictures::Pictures;
use ppm::PpmFrames;
use raw::RawFrames;
use still::Still;
use video::Video;

pub(crate) use video::file_url;

/// A clip: frames in temporal order. An error ends the clip; frames before it are valid.
pub trait FrameSource: Iterator<Item = Result<Image, VideoError>> + Send {
    /// Name in messages: the path, or a description such as "standard input".
    fn name(&self) -> &str;

    /// Expected number of frames; `None` if unknown. A damaged file may have fewer.
    fn length(&self) -> Option<usize>;

    /// Frames per second, or the mean if the rate varies; `None` if unknown.
    fn frame_rate(&self) -> Option<f64>;

    /// Random access to the frames; `None` for sources that can only be read in order.
    fn indexed(&self) -> Option<Arc<dyn IndexedFrames>> {
        None
    }

    /// A handle that stops the source while it waits for a frame of another program.
    fn stop_handle(&self) -> Option<StopHandle> {
        None
    }
}

/// Random access to frames, which are decoded on request.
pub trait IndexedFrames: Send + Sync {
    /// Number of frames.
    fn length(&self) -> usize;

    /// Frame `index`, counted from 0.
    fn frame(&self, index: usize) -> Result<Image, VideoError>;
}

/// Limits of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoLimits {
    /// Pixels of one frame, and bytes of an animation or still image that is read from a pipe.
    pub picture: DecodeLimits,
    /// Frames of an animation. Video files, folders and streams have no limit: a camera never ends.
    pub animation_frames: usize,
}

impl Default for VideoLimits {
    /// The default limits of images, and a million frames.
    fn default() -> Self {
        VideoLimits { picture: DecodeLimits::default(), animation_frames: 1_000_000 }
    }
}

/// Options for opening a clip.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Programs that read video files.
    pub tools: Tools,
    /// Limits of the clip.
    pub limits: VideoLimits,
    /// Reads the bytes as raw frames of this size, u8 `[height, width, 3]`, without detecting the format.
    pub raw: Option<Size>,
    /// For files of strangers: of the formats that `ffmpeg` reads, only MP4, MOV, Matroska, WebM and AVI, whose files name no
    /// other files to be read.
    pub is_untrusted: bool,
}

/// Opens a clip: a folder of images, or a file whose format is detected from the content: a zip archive of images, GIF, APNG,
/// WebP, a still image, a stream of PPM images, or anything that `ffmpeg` reads. `-` is standard input.
pub fn open(
    path: impl AsRef<Path>,
    options: &OpenOptions,
) -> Result<Box<dyn FrameSource>, VideoError> {
    let path = path.as_ref();
    if path.as_os_str() == "-" {
        return from_reader(io::stdin(), "standard input", options);
    }
    let name = path.display().to_string();
    let unreadable = |source| VideoError::Read { name: name.clone(), source };
    let found = fs::metadata(path).map_err(unreadable)?;
    if found.is_dir() {
        return Ok(Box::new(Pictures::open(path, options.limits.picture)?));
    }
    let mut file = File::open(path).map_err(unreadable)?;
    if !found.is_file() {
        // A pipe or device cannot be read twice.
        return from_reader(file, &name, options);
    }
    if let Some(size) = options.raw {
        let source = RawFrames::new(file, name, size, &options.limits)?;
        return Ok(Box::new(source.with_bytes(found.len())));
    }
    let beginning = Beginning::read(&mut file).map_err(unreadable)?;
    file.rewind().map_err(unreadable)?;
    match beginning.kind() {
        Kind::Nothing => Err(DecodeError::Empty { origin: name }.into()),
        Kind::Animation(format) => {
            let file = Box::new(BufReader::new(file));
            match Animation::open(file, &name, format, options.limits)? {
                Some(animation) => Ok(Box::new(animation)),
                None => Ok(Box::new(Pictures::single(path, options.limits.picture))),
            }
        }
        Kind::Archive => {
            Ok(Box::new(Archive::open(Box::new(BufReader::new(file)), &name, options.limits)?))
        }
        Kind::Still => Ok(Box::new(Pictures::single(path, options.limits.picture))),
        Kind::Ppm => Ok(Box::new(PpmFrames::new(BufReader::new(file), name, options.limits))),
        Kind::Other => Ok(Box::new(Video::open(path, options)?)),
    }
}

/// Opens a clip from a stream, detecting the format as [`open`] does. `name` is the name in messages.
pub fn from_reader(
    mut reader: impl Read + Send + 'static,
    name: &str,
    options: &OpenOptions,
) -> Result<Box<dyn FrameSource>, VideoError> {
    if let Some(size) = options.raw {
        return Ok(Box::new(RawFrames::new(reader, name.into(), size, &options.limits)?));
    }
    let unreadable = |source| VideoError::Read { name: name.into(), source };
    let beginning = Beginning::read(&mut reader).map_err(unreadable)?;
    let kind = beginning.kind();
    let whole = Cursor::new(beginning.bytes).chain(reader);
    match kind {
        Kind::Nothing => Err(DecodeError::Empty { origin: name.into() }.into()),
        Kind::Animation(_) | Kind::Archive | Kind::Still => {
            let mut bytes = Vec::new();
            let limit = options.limits.picture.file_bytes;
            // Reads one byte beyond the limit, so that `decode` detects a file that is too long.
            whole.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
            from_bytes(bytes, name, kind, options.limits)
        }
        Kind::Ppm => {
            Ok(Box::new(PpmFrames::new(BufReader::new(whole), name.into(), options.limits)))
        }
        Kind::Other => Ok(Box::new(Video::from_reader(Box::new(whole), name, options)?)),
    }
}

/// An animation, archive or still image in memory.
fn from_bytes(
    bytes: Vec<u8>,
    name: &str,
    kind: Kind,
    limits: VideoLimits,
) -> Result<Box<dyn FrameSource>, VideoError> {
    let bytes: Arc<[u8]> = bytes.into();
    let fits = bytes.len() as u64 <= limits.picture.file_bytes;
    if let (Kind::Archive, true) = (kind, fits) {
        return Ok(Box::new(Archive::open(Box::new(Cursor::new(bytes)), name, limits)?));
    }
    if let (Kind::Animation(format), true) = (kind, fits) {
        let input = Box::new(Cursor::new(Arc::clone(&bytes)));
        if let Some(animation) = Animation::open(input, name, format, limits)? {
            return Ok(Box::new(animation));
        }
    }
    Ok(Box::new(Still::new(decode(&bytes, name, &limits.picture)?, name)))
}

/// Kind of a clip, detected from its first bytes.
#[derive(Clone, Copy)]
enum Kind {
    Nothing,
    /// A format that holds animations or still images.
    Animation(Format),
    /// A zip archive.
    Archive,
    Still,
    Ppm,
    Other,
}

/// Formats of animations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Gif,
    Png,
    WebP,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Gif => "GIF",
            Format::Png => "PNG",
            Format::WebP => "WebP",
        }
    }
}

/// The first bytes of a clip.
struct Beginning {
    bytes: Vec<u8>,
}

impl Beginning {
    fn read(reader: &mut impl Read) -> io::Result<Self> {
        let mut bytes = Vec::new();
        reader.take(32).read_to_end(&mut bytes)?;
        Ok(Beginning { bytes })
    }

    fn kind(&self) -> Kind {
        match self.bytes.as_slice() {
            [] => Kind::Nothing,
            [b'P', b'6', white, ..] if white.is_ascii_whitespace() => Kind::Ppm,
            [b'P', b'K', 3, 4, ..] => Kind::Archive,
            bytes => match image::guess_format(bytes) {
                Ok(ImageFormat::Gif) => Kind::Animation(Format::Gif),
                Ok(ImageFormat::Png) => Kind::Animation(Format::Png),
                Ok(ImageFormat::WebP) => Kind::Animation(Format::WebP),
                Ok(ImageFormat::Jpeg | ImageFormat::Bmp | ImageFormat::Tiff) => Kind::Still,
                Ok(_) | Err(_) => Kind::Other,
            },
        }
    }
}
