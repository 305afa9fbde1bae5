//! What the server has and does.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::types::{HealthAnswer, InfoAnswer, ModelAnswer, ModelsAnswer};
use crate::models::Entry;
use crate::server::App;

/// `GET /health`: never waits for a model.
pub(super) async fn health(State(app): State<App>) -> Json<HealthAnswer> {
    let models_loaded = app.models.iter().filter(|entry| entry.peek(|_| ()).is_some()).count();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Json(HealthAnswer {
        status: "UP".to_owned(),
        model_class: "cutout".to_owned(),
        models_loaded,
        timestamp: now.as_secs_f64(),
    })
}

/// `GET /api/v1/models`.
pub(super) async fn models(State(app): State<App>) -> Json<ModelsAnswer> {
    Json(ModelsAnswer { models: app.models.iter().map(model).collect() })
}

/// `GET /api/v1/info`.
pub(super) async fn info(State(app): State<App>) -> Json<InfoAnswer> {
    let usage = app.library.usage();
    let (clips, clip_bytes) = app.clips.usage();
    Json(InfoAnswer {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        models: app.models.iter().map(model).collect(),
        pictures: usage.pictures,
        library_bytes: usage.bytes,
        library_budget: usage.budget,
        clips,
        clip_bytes,
        most_clips: app.limits.clips,
        clip_frames: app.limits.clip_frames,
        reads_videos: app.tools.ffmpeg.is_some(),
        waiting: app.engine.waiting(),
        queue: app.limits.queue,
        body_bytes: app.limits.body_bytes,
        pixels: app.limits.pixels,
    })
}

/// `GET /metrics`, for Prometheus.
pub(super) async fn metrics(State(app): State<App>) -> impl IntoResponse {
    const FORMAT: &str = "text/plain; version=0.0.4";
    ([(header::CONTENT_TYPE, FORMAT)], app.metrics.text(&app))
}

fn model(entry: &Entry) -> ModelAnswer {
    let source = &entry.source;
    let facts = entry.peek(|sam| (sam.device(), sam.weight_bytes()));
    let weight_bytes = facts.as_ref().map_or(0, |(_, bytes)| *bytes);
    ModelAnswer {
        id: source.id.clone(),
        title: source.title.clone(),
        finds: source.finds,
        answers_clicks: source.answers_clicks,
        tracks: source.tracks,
        loaded: facts.is_some(),
        device: facts.map(|(device, _)| device),
        weight_bytes,
    }
}
