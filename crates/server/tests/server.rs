//! The server over HTTP on a real port, and its page in a real browser.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::disallowed_methods, reason = "a test starts servers and clients on threads")]

mod api;
mod browser;
mod browser_clip;
mod browser_phrases;
mod dialect_clips;
mod dialects;
mod leaving;
mod limits;
mod mutations;
mod phrases;
mod support;
mod videos;
