//! What a server is started with.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cutout_video::Tools;

use crate::models::ModelSource;

/// Bounds of what clients can use up.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of a request.
    pub body_bytes: usize,
    /// Most bytes of all requests that are being received.
    pub bodies_bytes: usize,
    /// Time in which the head of a request must arrive.
    pub head_time: Duration,
    /// Time in which the body of a request must arrive.
    pub body_time: Duration,
    /// Time from the arrival of a request to its answer, without the time that it is being received.
    pub answer_time: Duration,
    /// Most pixels of a picture.
    pub pixels: u64,
    /// Most connections at once.
    pub connections: usize,
    /// Most requests that wait for the model.
    pub queue: usize,
    /// Bytes of pictures and their features that are kept, by last use.
    pub library_bytes: usize,
    /// Points and boxes of a request, phrases of a query, objects of an export.
    pub prompts: usize,
    /// Most bytes of a request that sends a clip.
    pub clip_body_bytes: usize,
    /// Most frames of a clip.
    pub clip_frames: usize,
    /// Most bytes of the frames of a clip on disk, three for each pixel.
    pub clip_bytes: u64,
    /// Most objects with prompts of a clip.
    pub clip_objects: usize,
    /// Most clips at once; those that were not used for the longest time make room.
    pub clips: usize,
    /// Most bytes of the frames of all clips on disk.
    pub clips_bytes: u64,
    /// A clip that was not used for this time is dropped.
    pub clip_idle: Duration,
    /// Most bytes of the masks of a clip in memory.
    pub mask_bytes: usize,
    /// Longest clip of which everything that the model remembers is kept on disk. Of longer ones the nearest frames are kept.
    pub history_frames: usize,
    /// Most bytes of what the model remembers of a clip on disk.
    pub history_bytes: u64,
    /// Most bytes of a file of the masks of a clip.
    pub export_bytes: u64,
    /// A model that was not used for this time is dropped from memory.
    pub model_idle: Duration,
    /// Time that running requests have to finish when the server stops.
    pub stop_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body_bytes: 64 << 20,
            bodies_bytes: 512 << 20,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(60),
            answer_time: Duration::from_secs(180),
            pixels: 100_000_000,
            connections: 512,
            queue: 64,
            library_bytes: 1 << 30,
            prompts: 256,
            clip_body_bytes: 256 << 20,
            clip_frames: 3000,
            clip_bytes: 4 << 30,
            clip_objects: 32,
            clips: 8,
            clips_bytes: 16 << 30,
            clip_idle: Duration::from_secs(30 * 60),
            mask_bytes: 128 << 20,
            history_frames: 1000,
            history_bytes: 8 << 30,
            export_bytes: 512 << 20,
            model_idle: Duration::from_secs(15 * 60),
            stop_time: Duration::from_secs(10),
        }
    }
}

/// Fetches the bytes of an address, given the value of `Authorization` and the most bytes to read.
pub type Fetch = Arc<dyn Fn(&str, &str, usize) -> Result<Vec<u8>, String> + Send + Sync>;

/// What a server is started with.
pub struct Options {
    /// Where it listens; port 0 takes a free one.
    pub address: SocketAddr,
    /// The token that every request but those for the page and `/health` must carry.
    pub token: Option<String>,
    /// Origins of other pages that may use the API, as `https://example.org`. Empty: none.
    pub allowed_origins: Vec<String>,
    /// How pictures of Label Studio are fetched, from the host that set the server up only. Without it, none are.
    pub fetch: Option<Fetch>,
    /// Programs that read and write videos. Without them, clips are animations and pictures.
    pub tools: Tools,
    /// Phrases that detectors of annotation tools look for, as their labels.
    pub labels: Vec<String>,
    /// The models; the first answers requests that name none.
    pub models: Vec<ModelSource>,
    /// Bounds of what clients can use up.
    pub limits: Limits,
}

impl Options {
    /// Options for these models at an address, without a token.
    pub fn new(address: SocketAddr, models: Vec<ModelSource>) -> Self {
        Options {
            address,
            token: None,
            allowed_origins: Vec::new(),
            fetch: None,
            tools: Tools::default(),
            labels: Vec::new(),
            models,
            limits: Limits::default(),
        }
    }
}
