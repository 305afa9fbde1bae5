//! Readers of clips (folders, animations, video files, pipes) and writers of the masks of every frame.
//!
//! ```text
//! folder, zip ────────┐                                                         ┌─▶ LabelPictures  00000.png, …
//! GIF, APNG, WebP ────┤                                                         ├─▶ JsonLines      run lengths
//! video, by ffmpeg ───┼─ open ─▶ FrameSource ─ Prefetch ─▶ (a model) ─▶ FrameResult ─▶ open_overlay  GIF, video, PNGs
//! PPM stream ─────────┤          one Image at a time
//! raw RGB ────────────┘
//! ```
//!
//! Memory use does not depend on the length of a clip. A source that fails delivers the frames before the failure and then
//! the error. Files written by a sink stay readable when the run is interrupted. The crate knows nothing about models and
//! reads no environment variables: [`Tools`] holds the path of `ffmpeg`.

mod error;
mod prefetch;
mod process;
mod sink;
mod source;
mod tools;

pub use error::{SinkError, VideoError};
pub use prefetch::Prefetch;
pub use process::StopHandle;
pub use sink::{
    ArchiveWriter, FoundObject, FrameFolder, FrameResult, JsonLines, LabelPictures, MotText,
    ObjectMask, OverlayOptions, Sink, VideoJson, WrittenMasks, open_overlay,
};
pub use source::{FrameSource, IndexedFrames, OpenOptions, VideoLimits, from_reader, open};
pub use tools::{Tools, find_program};
