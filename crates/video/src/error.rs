//! Errors of reading clips and writing results.

use std::io;
use std::path::PathBuf;

use cutout_imaging::{DecodeError, EncodeError, ImageError, Size, WriteError};

/// Why a clip cannot be read, or cannot be read further. `name` is the name of the source; frames are counted from 0.
#[derive(Debug, thiserror::Error)]
pub enum VideoError {
    /// An error of the operating system.
    #[error("{name}: cannot read: {source}")]
    Read {
        /// The clip.
        name: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An image cannot be decoded.
    #[error(transparent)]
    Picture(#[from] DecodeError),
    /// The size of a frame is invalid.
    #[error("{name}: {source}")]
    Image {
        /// The clip.
        name: String,
        /// What is wrong with it.
        source: ImageError,
    },
    /// The folder holds no images.
    #[error(
        "{}: no pictures in this folder ({others} other entries); frames are files ending in {extensions}",
        path.display()
    )]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
        /// Number of other entries in the folder.
        others: usize,
        /// Extensions of files that count as frames.
        extensions: String,
    },
    /// Two files of a folder have the same frame number.
    #[error("{} and {} have the same frame number; remove or rename one", first.display(), second.display())]
    SameFrame {
        /// One of the files.
        first: PathBuf,
        /// The other file.
        second: PathBuf,
    },
    /// Two images of a folder differ in size.
    #[error(
        "frames differ in size: {} has {first_size}, {} has {second_size}",
        first.display(),
        second.display()
    )]
    Sizes {
        /// The image that was decoded first.
        first: PathBuf,
        /// Its size.
        first_size: Size,
        /// The image of another size.
        second: PathBuf,
        /// Its size.
        second_size: Size,
    },
    /// A frame of a stream differs in size from the frames before it.
    #[error("{name}: frame {frame} has {found}, the frames before it have {expected}")]
    FrameSize {
        /// The clip.
        name: String,
        /// Number of the frame.
        frame: usize,
        /// Size of the first frame.
        expected: Size,
        /// Size of this one.
        found: Size,
    },
    /// An index beyond the last frame.
    #[error("{name}: there is no frame {frame}: the clip has {length} frames, counted from 0")]
    NoFrame {
        /// The clip.
        name: String,
        /// The requested index.
        frame: usize,
        /// Number of frames.
        length: usize,
    },
    /// The clip has no frames.
    #[error("{name}: the clip has no frames")]
    NoFrames {
        /// The clip.
        name: String,
    },
    /// The animation is damaged or ends too early.
    #[error("{name}: damaged or incomplete {format} animation at frame {frame}: {reason}")]
    Animation {
        /// The clip.
        name: String,
        /// Format, detected from the content.
        format: &'static str,
        /// Number of the frame that could not be read.
        frame: usize,
        /// Reason given by the decoder.
        reason: String,
    },
    /// A zip archive, or an image in it, cannot be read.
    #[error("{name}: cannot read the zip archive: {reason}")]
    Archive {
        /// The archive, or the archive and the image in it.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// More pixels than the limit.
    #[error("{name}: {found} is more than the limit of {limit} pixels")]
    TooManyPixels {
        /// The clip.
        name: String,
        /// Size given by the header.
        found: Size,
        /// Most pixels accepted.
        limit: u64,
    },
    /// More frames than the limit.
    #[error("{name}: more than the limit of {limit} frames")]
    TooManyFrames {
        /// The clip.
        name: String,
        /// Most frames accepted.
        limit: usize,
    },
    /// A frame of a stream is not a PPM image.
    #[error("{name}: frame {frame} is not a PPM picture: {reason}")]
    Stream {
        /// The clip.
        name: String,
        /// Number of the frame.
        frame: usize,
        /// What is wrong.
        reason: String,
    },
    /// The stream ends inside a frame.
    #[error("{name}: ends inside frame {frame}: {found} of {expected} bytes")]
    Truncated {
        /// The clip.
        name: String,
        /// Number of the frame.
        frame: usize,
        /// Bytes of a frame.
        expected: usize,
        /// Bytes received.
        found: usize,
    },
    /// `ffmpeg` is required but was not found.
    #[error(
        "{name}: reading this file requires ffmpeg, which was not found. Install it (`apt install ffmpeg`, `dnf install \
         ffmpeg`, `brew install ffmpeg`, `winget install ffmpeg`). Readable without ffmpeg: a folder or zip archive of \
         pictures; a GIF, APNG or WebP animation; a stream of PPM pictures; raw RGB frames"
    )]
    NoFfmpeg {
        /// The clip.
        name: String,
    },
    /// A program cannot be started.
    #[error("{}: cannot start the program: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// `ffmpeg` failed.
    #[error("{name}: ffmpeg failed after {frames} frames ({ending}): {said}")]
    Ffmpeg {
        /// The clip.
        name: String,
        /// Number of frames delivered.
        frames: usize,
        /// Exit status, or why there is none.
        ending: String,
        /// The last lines of its standard error.
        said: String,
    },
    /// `ffmpeg` read the whole file but reported damage. The frames it could decode were delivered.
    #[error("{name}: damaged or truncated; {frames} frames could be read; ffmpeg reported: {said}")]
    Damaged {
        /// The clip.
        name: String,
        /// Number of frames delivered.
        frames: usize,
        /// The last lines of its standard error.
        said: String,
    },
}

/// Why a result was not written. Results written before are kept.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The image cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// A mask does not have the size of the frame.
    #[error("frame {frame}: {source}")]
    Image {
        /// Number of the frame.
        frame: usize,
        /// The sizes that differ.
        source: ImageError,
    },
    /// Something that is no folder has the name of a folder of frames.
    #[error("{}: exists and is not a folder", path.display())]
    NotAFolder {
        /// The file.
        path: PathBuf,
    },
    /// Masks that were written cannot be read.
    #[error("{}: the masks cannot be read back: {reason}", path.display())]
    ReadBack {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The number of an object does not fit into a palette PNG.
    #[error("object {id}: palette PNGs hold objects 1 to 255")]
    ObjectId {
        /// The object.
        id: u32,
    },
    /// A frame differs in size from the first, in a file whose frames have one size.
    #[error("{}: frame {frame} has {found}, the frames before it have {expected}", path.display())]
    FrameSize {
        /// The file.
        path: PathBuf,
        /// Number of the frame.
        frame: usize,
        /// Size of the first frame.
        expected: Size,
        /// Size of this one.
        found: Size,
    },
    /// The frame is too large for the file format.
    #[error("{}: {found} is too large for a {format} file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The size.
        found: Size,
        /// The format.
        format: &'static str,
    },
    /// The frame rate is out of range.
    #[error("{found} is not a valid frame rate: expected more than 0 and at most 1000")]
    FrameRate {
        /// The given frame rate.
        found: f64,
    },
    /// The extension is not one of an overlay format.
    #[error(
        "{}: an overlay is a .gif, a video (.mp4, .mov, .mkv, .webm) or a folder without an extension",
        path.display()
    )]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// `ffmpeg` is required but was not found.
    #[error(
        "{}: writing this file requires ffmpeg, which was not found. Install it (`apt install ffmpeg`, `dnf install \
         ffmpeg`, `brew install ffmpeg`, `winget install ffmpeg`), or write {} or a folder of pictures, which do not \
         need it",
        path.display(),
        path.with_extension("gif").display()
    )]
    NoFfmpeg {
        /// The file.
        path: PathBuf,
    },
    /// A program cannot be started.
    #[error("{}: cannot start the program: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// `ffmpeg` failed.
    #[error("{}: ffmpeg failed after {frames} frames ({ending}): {said}", path.display())]
    Ffmpeg {
        /// The file.
        path: PathBuf,
        /// Number of frames passed to it.
        frames: usize,
        /// Exit status, or why there is none.
        ending: String,
        /// The last lines of its standard error.
        said: String,
    },
}
