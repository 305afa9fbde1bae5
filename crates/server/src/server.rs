//! The server: its state, and its life from binding to stopping.

use std::net::{SocketAddr, TcpListener};
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use cutout_imaging::{DecodeLimits, decode};
use cutout_sam::Scene;
use cutout_video::Tools;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::api::unknown_picture;
use crate::clips::{Clip, Clips, Frames, Means, Recording, Upload};
use crate::dialects::{LabelStudio, LiveTracks};
use crate::engine::{Engine, Lane, Preview, Ticket, Turn};
use crate::library::{Library, Picture};
use crate::metrics::Metrics;
use crate::models::Models;
use crate::options::{Fetch, Limits, Options};
use crate::problem::Problem;
use crate::{connections, guard};

/// Pictures that are decoded, and files that are encoded, at once.
const OFF_THREAD: usize = 2;
/// How often it is asked whether to stop.
const STOP_STEP: Duration = Duration::from_millis(50);

/// Why a server does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// There is no model.
    #[error("a server needs at least one model")]
    NoModel,
    /// The system gives no thread or no timer.
    #[error("cannot start the server: {0}")]
    Start(#[from] std::io::Error),
}

/// State that all requests share. Cloning it is cheap.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

/// State that all requests share.
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) models: Arc<Models>,
    pub(crate) library: Arc<Library>,
    pub(crate) clips: Arc<Clips>,
    pub(crate) tools: Tools,
    /// Labels that detectors look for.
    pub(crate) labels: Vec<String>,
    pub(crate) live_tracks: Arc<LiveTracks>,
    pub(crate) engine: Engine,
    pub(crate) metrics: Metrics,
    pub(crate) label_studio: LabelStudio,
    pub(crate) fetch: Option<Fetch>,
    off_thread: Semaphore,
    /// One clip is read at a time.
    recording: Semaphore,
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    options: Options,
}

impl Server {
    /// Binds the address. Connections are accepted by [`Server::run`].
    pub fn bind(options: Options) -> Result<Self, ServerError> {
        let address = options.address;
        let failed = |source| ServerError::Listen { address, source };
        if options.models.is_empty() {
            return Err(ServerError::NoModel);
        }
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Server { listener, address, options })
    }

    /// The address, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `should_stop` is true, then finishes those that run.
    pub fn run(self, should_stop: impl Fn() -> bool + Send) -> Result<(), ServerError> {
        let Server { listener, address, options } = self;
        let Options { token, allowed_origins, limits, .. } = &options;
        let (token, allowed_origins, limits) = (token.clone(), allowed_origins.clone(), *limits);
        let app = App::new(options)?;
        let guard = guard::Guard::new(address, token, allowed_origins, limits);
        let router = guard::router(app.clone(), guard);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(2 * OFF_THREAD)
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let stop = async {
                while !should_stop() {
                    tokio::time::sleep(STOP_STEP).await;
                }
            };
            connections::accept_until(listener, router, limits, stop).await;
            Ok::<(), ServerError>(())
        })?;
        // Requests that did not finish in time are dropped with the runtime, which ends their jobs.
        runtime.shutdown_timeout(Duration::from_millis(100));
        app.engine.close();
        Ok(())
    }
}

impl App {
    fn new(options: Options) -> Result<Self, ServerError> {
        let Options { models, limits, fetch, tools, labels, .. } = options;
        let models = Arc::new(Models::new(models));
        let library = Arc::new(Library::new(limits.library_bytes));
        let clips = Arc::new(Clips::new(&limits));
        let (idle_models, idle_library) = (Arc::clone(&models), Arc::clone(&library));
        let live_tracks = Arc::new(LiveTracks::new(&limits));
        let (idle_clips, idle_tracks) = (Arc::clone(&clips), Arc::clone(&live_tracks));
        let engine = Engine::start(limits.queue, move || {
            idle_clips.drop_idle();
            idle_models.drop_idle(limits.model_idle, |id| {
                idle_library.forget_scenes(id);
                idle_clips.forget_tracking(id);
                idle_tracks.clear();
            });
        })?;
        Ok(App(Arc::new(Shared {
            limits,
            models,
            library,
            clips,
            tools,
            labels,
            live_tracks,
            engine,
            metrics: Metrics::default(),
            label_studio: LabelStudio::default(),
            fetch,
            off_thread: Semaphore::new(OFF_THREAD),
            recording: Semaphore::new(1),
        })))
    }
}

impl Shared {
    /// The picture of this name.
    pub(crate) fn picture(&self, id: &str) -> Result<Arc<Picture>, Problem> {
        self.library.get(id).ok_or_else(|| unknown_picture(id))
    }

    /// Decodes a file for a model, unless it is in memory already.
    pub(crate) async fn add_picture(
        &self,
        bytes: Bytes,
        model: Option<&str>,
    ) -> Result<Arc<Picture>, Problem> {
        let model = self.models.named(model)?.source.id.clone();
        let limits =
            DecodeLimits { pixels: self.limits.pixels, file_bytes: self.limits.body_bytes as u64 };
        let library = Arc::clone(&self.library);
        self.off_thread(move || {
            let id = Picture::id_of(&bytes, &model);
            if let Some(known) = library.get(&id) {
                return Ok(known);
            }
            let image = decode(&bytes, "the picture", &limits)?;
            Ok(library.add(Picture::new(id, model, image)))
        })
        .await
    }

    /// Runs `work` with the features of a picture on the inference thread. They are computed first where they are not in
    /// memory; then `work` gets the time that this took.
    pub(crate) async fn with_scene<T: Send + 'static>(
        &self,
        picture: Arc<Picture>,
        lane: Lane,
        preview: Option<Preview>,
        work: impl FnOnce(&Turn, &Scene, Option<Duration>) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (models, library) = (Arc::clone(&self.models), Arc::clone(&self.library));
        let ticket = Ticket { lane, preview, time: self.limits.answer_time };
        self.engine
            .run(ticket, move |turn| {
                let start = Instant::now();
                let sam = models.named(Some(&picture.model))?.open()?;
                turn.check()?;
                let (scene, is_new) = picture.embed(&sam)?;
                let time = is_new.then(|| start.elapsed());
                let answer = turn.check().and_then(|()| work(turn, &scene, time));
                library.note(&picture, &scene);
                answer
            })
            .await
    }

    /// Runs `work` with a clip and its model on the inference thread.
    pub(crate) async fn with_clip<T: Send + 'static>(
        &self,
        clip: &Arc<Clip>,
        (lane, preview): (Lane, Option<Preview>),
        work: impl FnOnce(&Clip, Means<'_>) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (models, clip, limits) = (Arc::clone(&self.models), Arc::clone(clip), self.limits);
        let ticket = Ticket { lane, preview, time: limits.answer_time };
        self.engine
            .run(ticket, move |turn| {
                let sam = models.named(Some(&clip.model))?.open()?;
                turn.check()?;
                work(&clip, Means { sam: &sam, limits: &limits, turn })
            })
            .await
    }

    /// Reads a clip into frames on disk.
    pub(crate) async fn record(&self, upload: Upload) -> Result<Frames, Problem> {
        /// Ends the reading when the request is dropped.
        struct Waiting(Recording);
        impl Drop for Waiting {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        let stopping = |_| Problem::Busy("the server is stopping");
        let failed = |_| Problem::Internal("this clip made the server fail".to_owned());
        let time = self.limits.answer_time;
        let work = async {
            let _permit = self.recording.acquire().await.map_err(stopping)?;
            let waiting = Waiting(Recording::default());
            let (recording, tools, limits) = (waiting.0.clone(), self.tools.clone(), self.limits);
            let read = move || recording.record(upload, tools, &limits);
            tokio::task::spawn_blocking(read).await.map_err(failed)?
        };
        tokio::time::timeout(time, work).await.unwrap_or(Err(Problem::TimedOut(time.as_secs())))
    }

    /// Runs work of the processor that is no inference beside the runtime's threads.
    pub(crate) async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let failed = |_| Problem::Internal("this request made the server fail".to_owned());
        let _permit =
            self.off_thread.acquire().await.map_err(|_| Problem::Busy("the server is stopping"))?;
        tokio::task::spawn_blocking(work).await.map_err(failed)?
    }

    /// An error if a request has more parts than are accepted.
    pub(crate) fn check_count(&self, what: &str, found: usize) -> Result<(), Problem> {
        let most = self.limits.prompts;
        if found > most {
            return Err(Problem::Invalid(format!("{found} {what}; a request has at most {most}")));
        }
        Ok(())
    }
}

/// The JSON of a request.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| Problem::Invalid(format!("JSON: {error}")))
}
