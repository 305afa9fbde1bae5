//! Where frames come from.

use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use cutout_imaging::{DecodeError, DecodeLimits, Image, Size, decode};
use image::ImageFormat;

use crate::{StopHandle, Tools, VideoError};

mod animation;
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
use pictures::Pictures;
use ppm::PpmFrames;
use raw::RawFrames;
use still::Still;
use video::Video;

pub(crate) use video::file_url;

/// A clip: frames in the order of time. After an error there are no more frames; those before it were good.
pub trait FrameSource: Iterator<Item = Result<Image, VideoError>> + Send {
    /// What to call it in messages: the path, or what else it is.
    fn name(&self) -> &str;

    /// How many frames to expect in all, where that is known. A damaged file may bring fewer.
    fn length(&self) -> Option<usize>;

    /// Frames per second, where that is known; the mean where it varies.
    fn frame_rate(&self) -> Option<f64>;

    /// The frames by index, where any of them can be had at any time.
    fn indexed(&self) -> Option<Arc<dyn IndexedFrames>> {
        None
    }

    /// What ends the source while it waits for somebody else's frames.
    fn stop_handle(&self) -> Option<StopHandle> {
        None
    }
}

/// Frames in any order, decoded when asked for.
pub trait IndexedFrames: Send + Sync {
    /// How many there are.
    fn length(&self) -> usize;

    /// Frame `index`, from 0 on.
    fn frame(&self, index: usize) -> Result<Image, VideoError>;
}

/// How large a clip may be before it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoLimits {
    /// Pixels of one frame, and bytes of an animation or picture that comes through a pipe.
    pub picture: DecodeLimits,
    /// Frames of an animation. Video files, folders and streams have no such limit: a camera never ends.
    pub animation_frames: usize,
}

impl Default for VideoLimits {
    /// Those of pictures; a million frames.
    fn default() -> Self {
        VideoLimits { picture: DecodeLimits::default(), animation_frames: 1_000_000 }
    }
}

/// How a clip is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// What reads video files.
    pub tools: Tools,
    /// How much is read.
    pub limits: VideoLimits,
    /// The bytes are raw frames of this size, u8 `[height, width, 3]` one after another, whatever they look like.
    pub raw: Option<Size>,
}

/// Opens a clip: a folder of pictures, or a file by its content: GIF, APNG, WebP, a still picture, a stream of PPM
/// pictures, or anything that `ffmpeg` reads. `-` is standard input.
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
        // What is read from a pipe or a device cannot be read again.
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
        Kind::Still => Ok(Box::new(Pictures::single(path, options.limits.picture))),
        Kind::Ppm => Ok(Box::new(PpmFrames::new(BufReader::new(file), name, options.limits))),
        Kind::Other => Ok(Box::new(Video::open(path, options)?)),
    }
}

/// A clip from bytes that can be read once, by their content as in [`open`]. `name` is what messages call it.
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
        Kind::Animation(_) | Kind::Still => {
            let mut bytes = Vec::new();
            let limit = options.limits.picture.file_bytes;
            // One byte more than allowed shows that there are too many; `decode` says so.
            whole.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
            from_bytes(bytes, name, kind, options.limits)
        }
        Kind::Ppm => {
            Ok(Box::new(PpmFrames::new(BufReader::new(whole), name.into(), options.limits)))
        }
        Kind::Other => Ok(Box::new(Video::from_reader(Box::new(whole), name, options)?)),
    }
}

/// An animation or a still picture that is in memory.
fn from_bytes(
    bytes: Vec<u8>,
    name: &str,
    kind: Kind,
    limits: VideoLimits,
) -> Result<Box<dyn FrameSource>, VideoError> {
    let bytes: Arc<[u8]> = bytes.into();
    let fits = bytes.len() as u64 <= limits.picture.file_bytes;
    if let (Kind::Animation(format), true) = (kind, fits) {
        let input = Box::new(Cursor::new(Arc::clone(&bytes)));
        if let Some(animation) = Animation::open(input, name, format, limits)? {
            return Ok(Box::new(animation));
        }
    }
    Ok(Box::new(Still::new(decode(&bytes, name, &limits.picture)?, name)))
}

/// What the first bytes of a clip say.
#[derive(Clone, Copy)]
enum Kind {
    Nothing,
    /// May move, may be still.
    Animation(Format),
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
