//! What can be wrong with a clip, and with what is written about it.

use std::io;
use std::path::PathBuf;

use cutout_imaging::{DecodeError, EncodeError, ImageError, Size, WriteError};

/// Why a clip cannot be read, or not further. `name` is the file, or what else the frames come from; frames are counted
/// from 0.
#[derive(Debug, thiserror::Error)]
pub enum VideoError {
    /// The system does not give us the bytes.
    #[error("{name}: cannot read it: {source}")]
    Read {
        /// The clip.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A picture that cannot be decoded.
    #[error(transparent)]
    Picture(#[from] DecodeError),
    /// A grid of pixels that cannot be.
    #[error("{name}: {source}")]
    Image {
        /// The clip.
        name: String,
        /// What is wrong with it.
        source: ImageError,
    },
    /// A folder without a picture.
    #[error(
        "{}: no pictures in this folder (other things in it: {others}); files ending in {extensions} count as frames",
        path.display()
    )]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
        /// What else is in it.
        others: usize,
        /// Which files count.
        extensions: String,
    },
    /// Two files of a folder that claim the same place in the clip.
    #[error("{} and {} have the same place in the clip: which is the frame?", first.display(), second.display())]
    SameFrame {
        /// One.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// Two pictures of a folder differ in size.
    #[error(
        "frames differ in size: {} has {first_size}, {} has {second_size}",
        first.display(),
        second.display()
    )]
    Sizes {
        /// The picture that came first.
        first: PathBuf,
        /// Its size.
        first_size: Size,
        /// The picture that does not fit.
        second: PathBuf,
        /// Its size.
        second_size: Size,
    },
    /// A frame of a stream differs in size from those before.
    #[error("{name}: frame {frame} has {found}, those before have {expected}")]
    FrameSize {
        /// The clip.
        name: String,
        /// Which frame.
        frame: usize,
        /// Size of the first frame.
        expected: Size,
        /// Size of this one.
        found: Size,
    },
    /// An index behind the last frame.
    #[error("{name}: there is no frame {frame}, there are {length} frames from 0 on")]
    NoFrame {
        /// The clip.
        name: String,
        /// The index asked for.
        frame: usize,
        /// How many there are.
        length: usize,
    },
    /// A clip without a frame.
    #[error("{name}: there is not a single frame in it")]
    NoFrames {
        /// The clip.
        name: String,
    },
    /// An animation that is damaged or ends too early.
    #[error("{name}: damaged or incomplete {format} animation at frame {frame}: {reason}")]
    Animation {
        /// The clip.
        name: String,
        /// Its format, by content.
        format: &'static str,
        /// Which frame could not be read.
        frame: usize,
        /// What the decoder said.
        reason: String,
    },
    /// More pixels than the limit.
    #[error("{name}: {found} is more than the limit of {limit} pixels")]
    TooManyPixels {
        /// The clip.
        name: String,
        /// The size its header says.
        found: Size,
        /// The most that is read.
        limit: u64,
    },
    /// More frames than the limit.
    #[error("{name}: more than the limit of {limit} frames")]
    TooManyFrames {
        /// The clip.
        name: String,
        /// The most that is read.
        limit: usize,
    },
    /// A stream of frames that is none.
    #[error("{name}: frame {frame} is no PPM picture: {reason}")]
    Stream {
        /// The clip.
        name: String,
        /// Which frame.
        frame: usize,
        /// What is wrong.
        reason: String,
    },
    /// A stream that ends inside a frame.
    #[error("{name}: ends inside frame {frame}: {found} of {expected} bytes")]
    Truncated {
        /// The clip.
        name: String,
        /// Which frame.
        frame: usize,
        /// Bytes of a frame.
        expected: usize,
        /// Bytes that came.
        found: usize,
    },
    /// `ffmpeg` is needed and not there.
    #[error(
        "{name}: to read this, ffmpeg is needed, and it was not found. Install it (`apt install ffmpeg`, `dnf install \
         ffmpeg`, `brew install ffmpeg`, `winget install ffmpeg`). Without it these can be read: a folder of pictures; \
         a GIF, APNG or WebP animation; a stream of PPM pictures; raw RGB frames"
    )]
    NoFfmpeg {
        /// The clip.
        name: String,
    },
    /// A program of others cannot be started.
    #[error("{}: cannot start it: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// `ffmpeg` failed.
    #[error("{name}: ffmpeg failed after {frames} frames ({ending}): {said}")]
    Ffmpeg {
        /// The clip.
        name: String,
        /// Frames that it delivered.
        frames: usize,
        /// How it ended.
        ending: String,
        /// The last lines of its standard error.
        said: String,
    },
    /// `ffmpeg` went through the file and complained about it: what is there was delivered, something is missing.
    #[error("{name}: damaged or cut off; {frames} frames could be read; ffmpeg said: {said}")]
    Damaged {
        /// The clip.
        name: String,
        /// Frames that were delivered.
        frames: usize,
        /// The last lines of its standard error.
        said: String,
    },
}

/// Why a result was not written. What was written before stays.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The picture cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Mask and frame do not fit together.
    #[error("frame {frame}: {source}")]
    Image {
        /// Which frame.
        frame: usize,
        /// What does not fit.
        source: ImageError,
    },
    /// An object that a palette picture has no number for.
    #[error("object {id}: palette pictures have room for objects 1 to 255")]
    ObjectId {
        /// The object.
        id: u32,
    },
    /// A frame of another size than the first, in a file that has one size.
    #[error("{}: frame {frame} has {found}, those before have {expected}", path.display())]
    FrameSize {
        /// The file.
        path: PathBuf,
        /// Which frame.
        frame: usize,
        /// Size of the first frame.
        expected: Size,
        /// Size of this one.
        found: Size,
    },
    /// A file format that has no room for frames of this size.
    #[error("{}: {found} is too large for a {format} file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The size.
        found: Size,
        /// The format.
        format: &'static str,
    },
    /// Not a number of frames per second.
    #[error("{found} is no frame rate: it has to be above 0 and at most 1000")]
    FrameRate {
        /// What was given.
        found: f64,
    },
    /// An extension that is of no overlay.
    #[error(
        "{}: an overlay is a .gif, a video (.mp4, .mov, .mkv, .webm) or a folder without an extension",
        path.display()
    )]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// `ffmpeg` is needed and not there.
    #[error(
        "{}: to write this, ffmpeg is needed, and it was not found. Install it (`apt install ffmpeg`, `dnf install \
         ffmpeg`, `brew install ffmpeg`, `winget install ffmpeg`), or write {} or a folder of pictures, which need \
         nothing",
        path.display(),
        path.with_extension("gif").display()
    )]
    NoFfmpeg {
        /// The file.
        path: PathBuf,
    },
    /// A program of others cannot be started.
    #[error("{}: cannot start it: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// `ffmpeg` failed.
    #[error("{}: ffmpeg failed after {frames} frames ({ending}): {said}", path.display())]
    Ffmpeg {
        /// The file.
        path: PathBuf,
        /// Frames that it was given.
        frames: usize,
        /// How it ended.
        ending: String,
        /// The last lines of its standard error.
        said: String,
    },
}
