//! The native API, below `/api/v1`.

mod answers;
mod documents;
mod exports;
mod images;
mod openapi;
mod service;
mod types;

pub(crate) use images::unknown as unknown_picture;

use axum::Router;
use axum::routing::{get, post};

use crate::server::App;

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
}
