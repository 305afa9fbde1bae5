//! Pictures and masks.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod decode;
mod files;
mod masks;
mod resize;
mod shapes;
