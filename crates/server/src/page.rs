//! The page, embedded in the program.

use std::sync::LazyLock;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{Response, StatusCode};
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;
use ring::digest::{SHA256, digest};

use crate::problem::Problem;
use crate::server::App;

/// A file of the page.
struct File {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    /// Quoted hash of the bytes.
    tag: String,
}

macro_rules! files {
    ($($name:literal, $kind:expr, $path:literal;)*) => {
        [$(File::new($name, $kind, include_bytes!($path))),*]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    files! {
        "index.html", HTML, "../ui/index.html";
        "style.css", CSS, "../ui/style.css";
        "icon.svg", "image/svg+xml", "../ui/icon.svg";
        "main.js", SCRIPT, "../ui/main.js";
        "api.js", SCRIPT, "../ui/api.js";
        "clip.js", SCRIPT, "../ui/clip.js";
        "clip-state.js", SCRIPT, "../ui/clip-state.js";
        "files.js", SCRIPT, "../ui/files.js";
        "frames.js", SCRIPT, "../ui/frames.js";
        "kinds.js", SCRIPT, "../ui/kinds.js";
        "messages.js", SCRIPT, "../ui/messages.js";
        "timeline.js", SCRIPT, "../ui/timeline.js";
        "state.js", SCRIPT, "../ui/state.js";
        "view.js", SCRIPT, "../ui/view.js";
        "pointer.js", SCRIPT, "../ui/pointer.js";
        "keyboard.js", SCRIPT, "../ui/keyboard.js";
        "panel.js", SCRIPT, "../ui/panel.js";
        "preview.js", SCRIPT, "../ui/preview.js";
        "ball.gif", "image/gif", "../../../examples/ball.gif";
        "still-life.jpg", "image/jpeg", "../../../examples/still-life.jpg";
    }
    .into()
});

impl File {
    fn new(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> Self {
        let hash = digest(&SHA256, bytes);
        let hash: String = hash.as_ref()[..12].iter().map(|byte| format!("{byte:02x}")).collect();
        File { name, kind, bytes, tag: format!("\"{hash}\"") }
    }

    /// The file, or that the client has it already.
    fn answer(&self, headers: &HeaderMap) -> Response<Body> {
        let known = headers.get(header::IF_NONE_MATCH).and_then(|tag| tag.to_str().ok());
        let has_it = known.is_some_and(|known| known.split(", ").any(|tag| tag == self.tag));
        let mut response = if has_it {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            self.bytes.into_response()
        };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if let Ok(tag) = HeaderValue::from_str(&self.tag) {
            headers.insert(header::ETAG, tag);
        }
        response
    }
}

/// The routes of the page.
pub(crate) fn routes() -> Router<App> {
    Router::new().route("/", get(start)).route("/app/{file}", get(file))
}

/// Whether a path needs no token: the page, which holds no data, and the health of the server.
pub(crate) fn is_public(path: &str) -> bool {
    path == "/" || path == "/health" || path.starts_with("/app/")
}

/// The page for browsers; other programs look here for the health of the server.
async fn start(headers: HeaderMap) -> Response<Body> {
    let accepted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if accepted.is_none_or(|accepted| !accepted.contains("text/html")) {
        return Redirect::temporary("/health").into_response();
    }
    find("index.html").map_or_else(missing, |file| file.answer(&headers))
}

async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response<Body> {
    find(&name).map_or_else(missing, |file| file.answer(&headers))
}

fn find(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

fn missing() -> Response<Body> {
    Problem::Missing("the page has no such file".to_owned()).into_response()
}
