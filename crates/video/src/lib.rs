//! Frames in, results out: clips from folders, animations, video files and pipes; the masks of every frame to files.
//!
//! ```text
//! folder of pictures ─┐                                                         ┌─▶ LabelPictures  00000.png, …
//! GIF, APNG, WebP ────┤                                                         ├─▶ JsonLines      run lengths
//! video, by ffmpeg ───┼─ open ─▶ FrameSource ─ Prefetch ─▶ (a model) ─▶ FrameResult ─▶ open_overlay  GIF, video, PNGs
//! PPM stream ─────────┤          one Image at a time
//! raw RGB ────────────┘
//! ```
//!
//! Memory does not depend on the length of a clip, in either direction. A source that breaks half-way delivers what came
//! before and then says what happened; what a sink has written stays readable when the run is cut off. Nothing here
//! knows what a model is, and the environment is not read: where `ffmpeg` lies is told by [`Tools`].

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
    FrameFolder, FrameResult, JsonLines, LabelPictures, ObjectMask, OverlayOptions, Sink,
    open_overlay,
};
pub use source::{FrameSource, IndexedFrames, OpenOptions, VideoLimits, from_reader, open};
pub use tools::{Tools, find_program};
