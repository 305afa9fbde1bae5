//! Pictures: add, look at, forget.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;

use super::types::{ImageAnswer, ImageQuery};
use crate::engine::Lane;
use crate::library::Picture;
use crate::problem::Problem;
use crate::server::App;

/// `POST /api/v1/images`: the body is the file.
pub(super) async fn add(
    State(app): State<App>,
    Query(query): Query<ImageQuery>,
    body: Bytes,
) -> Result<Json<ImageAnswer>, Problem> {
    let picture = app.add_picture(body, query.model.as_deref()).await?;
    let was_embedded = picture.scene().is_some();
    let own = Arc::clone(&picture);
    let milliseconds = app
        .with_scene(own, Lane::Short, None, |_, _, embedding| {
            Ok(embedding.map_or(0.0, |time| time.as_secs_f64() * 1e3))
        })
        .await?;
    let embed_ms = if was_embedded { 0.0 } else { milliseconds };
    Ok(Json(ImageAnswer { embed_ms, ..described(&picture) }))
}

/// `GET /api/v1/images/{id}`.
pub(super) async fn get(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<ImageAnswer>, Problem> {
    Ok(Json(described(&*app.picture(&id)?)))
}

/// `DELETE /api/v1/images/{id}`.
pub(super) async fn remove(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    if app.library.remove(&id) { Ok(StatusCode::NO_CONTENT) } else { Err(unknown(&id)) }
}

fn described(picture: &Picture) -> ImageAnswer {
    let size = picture.size();
    ImageAnswer {
        image_id: picture.id.clone(),
        model: picture.model.clone(),
        width: size.width,
        height: size.height,
        embedded: picture.scene().is_some(),
        embed_ms: 0.0,
        warning: picture.image.warning().map(str::to_owned),
    }
}

/// The error for a picture that is not in memory.
pub(crate) fn unknown(id: &str) -> Problem {
    let shown: String = id.chars().take(64).collect();
    Problem::Missing(format!("no picture {shown:?} in memory: send it again"))
}

/// Time since `start` in milliseconds.
pub(super) fn milliseconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
