//! The native API, below `/api/v1`.

mod answers;
mod clip_files;
mod documents;
mod exports;
mod images;
mod openapi;
mod service;
mod track;
mod types;
mod video_types;
mod videos;

pub(crate) use answers::prompt_from;
pub(crate) use images::unknown as unknown_picture;
pub(crate) use track::Run;
pub(crate) use video_types::TrackRequest;

use axum::Router;
use axum::routing::{delete, get, post};

use cutout_imaging::Size;

use crate::requests::{Reader, is};
use crate::server::{App, parse};

/// The parsers of the API.
pub(crate) const READERS: &[Reader] = &[
    ("segment", is::<types::SegmentRequest>),
    ("find", is::<types::FindRequest>),
    ("everything", is::<types::EverythingRequest>),
    ("export", |body| parse(body).is_ok_and(|request| exports::is_valid(request, Size::new(4, 3)))),
    ("prompt", is::<video_types::VideoPromptRequest>),
    ("track", is::<TrackRequest>),
    ("clip-export", is::<video_types::ClipExportRequest>),
];

/// Whether requests of a path send clips, which may be longer than pictures.
pub(crate) fn takes_clips(path: &str) -> bool {
    path == "/api/v1/videos"
}

/// The routes of the API.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/health", get(service::health))
        .route("/metrics", get(service::metrics))
        .route("/api/v1/info", get(service::info))
        .route("/api/v1/models", get(service::models))
        .route("/api/v1/openapi.json", get(openapi::document))
        .route("/api/v1/images", post(images::add))
        .route("/api/v1/images/{id}", get(images::get).delete(images::remove))
        .route("/api/v1/images/{id}/segment", post(answers::segment))
        .route("/api/v1/images/{id}/find", post(answers::find))
        .route("/api/v1/images/{id}/everything", post(answers::everything))
        .route("/api/v1/images/{id}/export", post(exports::export))
        .route("/api/v1/videos", post(videos::add))
        .route("/api/v1/videos/{id}", get(videos::get).delete(videos::remove))
        .route("/api/v1/videos/{id}/frames/{frame}", get(videos::frame))
        .route("/api/v1/videos/{id}/prompt", post(videos::prompt))
        .route("/api/v1/videos/{id}/objects/{object}", delete(videos::remove_object))
        .route("/api/v1/videos/{id}/objects/{object}/frames/{frame}", delete(videos::take_back))
        .route("/api/v1/videos/{id}/track", post(track::track))
        .route("/api/v1/videos/{id}/cancel", post(track::cancel))
        .route("/api/v1/videos/{id}/export", post(clip_files::export))
}
