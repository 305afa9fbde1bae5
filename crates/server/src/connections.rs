//! Connections: accepted up to a number, with a time for the head of each request, and closed in order.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tower_service::Service;

use crate::options::Limits;

/// What a client gets when there are too many connections.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Pause after the system refused a connection, for instance because too many files are open.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// Accepts connections until `stop` is ready. Then the requests that run have [`Limits::stop_time`] to finish.
pub(crate) async fn accept_until(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let most = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let free = Arc::new(Semaphore::new(most as usize));
    let (stopping, is_stopping) = watch::channel(false);
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        match Arc::clone(&free).try_acquire_owned() {
            Ok(permit) => {
                let served = serve(stream, router.clone(), limits, is_stopping.clone());
                tokio::spawn(async move {
                    served.await;
                    drop(permit);
                });
            }
            Err(_) => {
                tokio::spawn(refuse(stream, limits));
            }
        }
    }
    drop(listener);
    // The receivers are the connections; there may be none.
    let _ignored = stopping.send(true);
    let _in_time = tokio::time::timeout(limits.stop_time, free.acquire_many(most)).await;
}

async fn refuse(stream: TcpStream, limits: Limits) {
    // The client may be gone already. A new connection has room for the few bytes.
    if let Ok(Ok(())) = tokio::time::timeout(limits.head_time, stream.writable()).await {
        let _ignored = stream.try_write(FULL);
    }
}

/// Answers the requests of one connection.
async fn serve(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    mut stopping: watch::Receiver<bool>,
) {
    // Answers are small and wanted at once. A socket that cannot be told so still works.
    let _ignored = stream.set_nodelay(true);
    let answer = service_fn(move |request: hyper::Request<Incoming>| {
        let mut router = router.clone();
        let request: Request = request.map(Body::new);
        async move {
            Ok::<_, Infallible>(router.call(request).await.unwrap_or_else(|never| match never {}))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    let mut is_told = false;
    loop {
        tokio::select! {
            // An error is a client that left or sent no HTTP.
            _ended = connection.as_mut() => return,
            changed = stopping.changed(), if !is_told => {
                is_told = true;
                if changed.is_ok() {
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
