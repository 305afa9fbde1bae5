//! What a server is started with.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

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
            models,
            limits: Limits::default(),
        }
    }
}
