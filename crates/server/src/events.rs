//! Server-sent events: an answer that goes on while a client listens.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::problem::Problem;

/// Events that wait for a slow client; then the work waits too.
const WAITING: usize = 4;
/// Time without an event after which a line is sent that says nothing, so that nobody takes the connection for dead.
const SILENCE: Duration = Duration::from_secs(15);

/// Where events come out.
struct Listener(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Listener {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Where events go in.
pub(crate) struct Events(mpsc::Sender<Bytes>);

/// That nobody listens any more.
#[derive(Debug)]
pub(crate) struct Left;

impl Events {
    /// An answer, and what its events are sent to.
    pub(crate) fn start() -> (Self, Response) {
        let (sender, receiver) = mpsc::channel(WAITING);
        let kind = (header::CONTENT_TYPE, "text/event-stream");
        let response = ([kind], Body::new(Listener(receiver))).into_response();
        (Events(sender), response)
    }

    /// Sends an event with a name; without one if the name is empty.
    pub(crate) async fn send(&self, name: &str, data: &impl Serialize) -> Result<(), Left> {
        let data = serde_json::to_string(data).unwrap_or_else(|_| "null".to_owned());
        let name = if name.is_empty() { String::new() } else { format!("event: {name}\n") };
        self.write(format!("{name}data: {data}\n\n")).await
    }

    async fn write(&self, text: String) -> Result<(), Left> {
        self.0.send(Bytes::from(text)).await.map_err(|_| Left)
    }

    /// Waits for work. It is dropped when the client leaves; then the answer is [`Problem::Gone`].
    pub(crate) async fn wait<T>(
        &self,
        work: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                answer = work.as_mut() => return answer,
                () = self.0.closed() => return Err(Problem::Gone),
                () = tokio::time::sleep(SILENCE) => {
                    self.write(":\n\n".to_owned()).await.map_err(|_| Problem::Gone)?;
                }
            }
        }
    }
}
