//! Segment Anything over HTTP: a page to click on, a typed API, and the dialects of annotation tools.
//!
//! ```text
//! connection ─▶ connections ─▶ guard (host, origin, token, body) ─▶ api, dialects ─▶ Engine: one inference thread
//!                limits,          headers of every answer           types           │  short jobs first, long ones give way
//!                slow clients                                       once            ▼
//!                                                                                Library: pictures and features, LRU by bytes
//!                                                                                Clips: frames in a private folder, trackers
//! ```
//!
//! No path of a request is opened, and pictures are fetched only from a Label Studio that set the server up. Inference never runs on a worker of the runtime.

mod api;
mod clips;
mod connections;
mod dialects;
mod engine;
mod events;
mod guard;
mod library;
mod metrics;
mod models;
mod options;
mod page;
mod problem;
pub mod requests;
mod server;

pub use models::ModelSource;
pub use options::{Fetch, Limits, Options};
pub use server::{Server, ServerError};
