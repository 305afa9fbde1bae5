//! Checkpoint files.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod crafted;
mod layouts;
mod real_files;
mod round_trips;
mod support;
