//! Clips, frame by frame, and files with the masks of every frame.
//!
//! [`open`] reads a folder of pictures, GIF, APNG, WebP, a stream of PPM pictures, and with `ffmpeg` (see [`Tools`]) any
//! video file. [`open_overlay`], [`JsonLines`], [`VideoJson`], [`MotText`] and [`LabelPictures`] write the masks that a
//! [`crate::Tracker`] or [`crate::PhraseTracker`] gives. Memory use does not depend on the length of a clip.

// Clips.
#[doc(inline)]
pub use cutout_video::{
    FrameSource, IndexedFrames, OpenOptions, Prefetch, StopHandle, Tools, VideoLimits, from_reader,
    open,
};

// Masks of every frame.
#[doc(inline)]
pub use cutout_video::{
    FoundObject, FrameResult, JsonLines, LabelPictures, MotText, ObjectMask, OverlayOptions, Sink,
    VideoJson, open_overlay,
};

// Errors.
#[doc(inline)]
pub use cutout_video::{SinkError, VideoError};
