//! Clips that are read and written.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod animations;
mod archives;
mod folders;
mod sinks;
mod support;
mod video_files;
