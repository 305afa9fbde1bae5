//! X-AnyLabeling's video requests: a folder of frames is sent once, marked or described on one frame, and tracked.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use cutout_imaging::encode_image;
use cutout_sam::Find;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;

use super::{CLICKED, FINENESS, found_shapes, phrases_in, shape};
use crate::api::{Run, TrackRequest};
use crate::clips::{Clip, Marks, Masked, Upload};
use crate::dialects::base64_of;
use crate::events::Events;
use crate::problem::Problem;
use crate::server::{App, parse};

/// What stands behind the name of a model in the name of its video mode.
const SUFFIX: &str = "-video";
/// The tool marks one object at a time, always under the same number.
const OBJECT: u32 = 1;

#[derive(Deserialize)]
pub(super) struct InitRequest {
    #[serde(default)]
    model: Option<String>,
    frames: Vec<String>,
    #[serde(default)]
    start_frame_index: usize,
}

#[derive(Deserialize)]
pub(super) struct PromptRequest {
    session_id: String,
    frame_index: usize,
    #[serde(default)]
    text_prompt: Option<String>,
    /// Shares of width and height.
    #[serde(default)]
    points: Option<Vec<[f64; 2]>>,
    #[serde(default)]
    point_labels: Option<Vec<i64>>,
    #[serde(default)]
    params: Parameters,
}

#[derive(Default, Deserialize)]
struct Parameters {
    #[serde(default)]
    conf_threshold: f64,
    #[serde(default)]
    epsilon_factor: f64,
}

impl Parameters {
    fn fineness(&self) -> f64 {
        if self.epsilon_factor > 0.0 { self.epsilon_factor } else { FINENESS }
    }

    /// 0 where the tool has no field for it.
    fn threshold(&self) -> Option<f32> {
        (self.conf_threshold > 0.0).then_some(self.conf_threshold as f32)
    }
}

#[derive(Deserialize)]
pub(super) struct TrackingRequest {
    session_id: String,
    #[serde(default)]
    start_frame: Option<usize>,
    #[serde(default)]
    end_frame: Option<usize>,
}

/// The entry of a model's video mode.
pub(super) fn described(id: &str, title: &str, finds: bool) -> (String, Value) {
    let widget = |name: &str| json!({"name": name, "value": null});
    let mut widgets: Vec<Value> =
        ["button_add_point", "button_remove_point", "button_clear", "button_finish_object"]
            .map(widget)
            .to_vec();
    if finds {
        widgets.extend(["edit_text", "button_send", "input_conf"].map(widget));
        widgets.push(json!({"name": "edit_conf", "value": 0.5}));
    }
    let entry = json!({
        "display_name": format!("{title} (video)"),
        "widgets": widgets,
        "params": {},
        "capabilities": {},
        "batch_processing_mode": "video",
    });
    (format!("{id}{SUFFIX}"), entry)
}

/// `POST /v1/video/init`.
pub(crate) async fn init(State(app): State<App>, body: Bytes) -> Result<Json<Value>, Problem> {
    let InitRequest { model, frames, start_frame_index } = parse(&body)?;
    drop(body);
    if frames.len() > app.limits.clip_frames {
        let (count, most) = (frames.len(), app.limits.clip_frames);
        return Err(Problem::Invalid(format!("{count} frames; a clip has at most {most}")));
    }
    let mut pictures = Vec::new();
    for frame in frames {
        pictures.push(Bytes::from(base64_of(&frame)?));
    }
    let model = model.as_deref().map(|name| name.strip_suffix(SUFFIX).unwrap_or(name));
    let clip = app.add_clip(Upload::Pictures(pictures), model).await?;
    let count = clip.frames.count();
    Ok(success(json!({
        "session_id": clip.id,
        "num_frames": count,
        "start_frame_index": start_frame_index,
    })))
}

fn success(data: Value) -> Json<Value> {
    Json(json!({"success": true, "data": data}))
}

/// `POST /v1/video/prompt`.
pub(crate) async fn prompt(State(app): State<App>, body: Bytes) -> Result<Json<Value>, Problem> {
    let request: PromptRequest = parse(&body)?;
    let clip = app.clips.get(&request.session_id)?;
    clip.check_frame(request.frame_index)?;
    let phrases = phrases_in(request.text_prompt.as_deref().unwrap_or_default());
    let shapes = if phrases.is_empty() {
        mark(&app, &clip, &request).await?
    } else {
        describe(&app, &clip, &request, phrases).await?
    };
    let count = shapes.len();
    Ok(success(json!({"frame_index": request.frame_index, "masks": shapes, "num_objects": count})))
}

/// The mask of points.
async fn mark(app: &App, clip: &Arc<Clip>, request: &PromptRequest) -> Result<Vec<Value>, Problem> {
    let points = request.points.as_deref().unwrap_or_default();
    app.check_count("points", points.len())?;
    let labels = request.point_labels.as_deref().unwrap_or_default();
    if points.len() != labels.len() {
        let (points, labels) = (points.len(), labels.len());
        return Err(Problem::Invalid(format!("{points} points with {labels} labels")));
    }
    let size = clip.frames.size();
    let place = |share: f64, length: usize| share * length as f64;
    let point = |([x, y], label): (&[f64; 2], &i64)| {
        let label = if *label == 1 { 1.0 } else { 0.0 };
        [place(*x, size.width), place(*y, size.height), label]
    };
    let marks = Marks { points: points.iter().zip(labels).map(point).collect(), rect: None };
    // A new set of points is a new object: the tool sends all points of the object that is being marked.
    let at = (request.frame_index, OBJECT);
    let masked = app.prompt_clip(clip, at, marks, true).await?;
    clip.set_phrases(Vec::new(), None);
    shapes(&[masked], request.params.fineness())
}

/// The objects of phrases on the frame; the run that follows finds them on all frames.
async fn describe(
    app: &App,
    clip: &Arc<Clip>,
    request: &PromptRequest,
    phrases: Vec<String>,
) -> Result<Vec<Value>, Problem> {
    app.check_count("phrases", phrases.len())?;
    clip.check_idle()?;
    let threshold = request.params.threshold();
    let mut find = phrases.iter().fold(Find::default(), Find::and);
    if let Some(threshold) = threshold {
        find = find.threshold(threshold);
    }
    let (own, frame) = (Arc::clone(clip), request.frame_index);
    let png = app.off_thread(move || Ok(encode_image(&own.frames.read(frame)?)?)).await?;
    let picture = app.add_picture(Bytes::from(png), Some(&clip.model)).await?;
    let found = app.find(picture, find).await?;
    clip.set_phrases(phrases, threshold);
    found_shapes(&found, request.params.fineness())
}

fn shapes(masks: &[Masked], fineness: f64) -> Result<Vec<Value>, Problem> {
    let mut shapes = Vec::new();
    for masked in masks {
        let phrase = masked.found.as_ref().and_then(|found| found.phrase.as_deref());
        let label = phrase.unwrap_or(CLICKED);
        if let Some(mut shape) = shape(&masked.rle, label, json!(masked.score), fineness)? {
            shape["group_id"] = json!(masked.object);
            shapes.push(shape);
        }
    }
    Ok(shapes)
}

/// `POST /v1/video/propagate/stream`.
pub(crate) async fn stream(State(app): State<App>, body: Bytes) -> Result<Response, Problem> {
    let request: TrackingRequest = parse(&body)?;
    let clip = app.clips.get(&request.session_id)?;
    let start = request.start_frame.unwrap_or(0);
    let last = request.end_frame.unwrap_or(usize::MAX).min(clip.frames.count() - 1);
    let (phrases, threshold) = clip.phrases();
    let has_phrases = !phrases.is_empty();
    let tracked = TrackRequest {
        start: request.start_frame.filter(|_| !has_phrases),
        max_frames: Some((last + 1).saturating_sub(if has_phrases { 0 } else { start })),
        phrases,
        threshold,
        ..TrackRequest::default()
    };
    let run = Run::new(app, Arc::clone(&clip), &tracked).await?;
    let (events, response) = Events::start();
    Handle::current().spawn(send(run, events, start, clip.frames.count()));
    Ok(response)
}

/// Sends the progress of a run, and its results at the end.
async fn send(mut run: Run, events: Events, start: usize, total: usize) {
    let started = json!({"type": "started", "total_frames": total, "start_frame_index": start});
    if events.send("", &started).await.is_err() {
        return;
    }
    let mut results = Map::new();
    let last = loop {
        let next = events.wait(run.next()).await;
        let next = next.and_then(|next| {
            next.map(|(frame, masks)| Ok((frame, shapes(&masks, FINENESS)?))).transpose()
        });
        match next {
            Ok(Some((frame, masks))) => {
                let share = (frame + 1) as f64 / total as f64;
                let progress = json!({"type": "progress", "current_frame": frame, "total_frames": total, "progress": share});
                if frame >= start {
                    results.insert(frame.to_string(), json!({"masks": masks}));
                }
                if events.send("", &progress).await.is_err() {
                    return;
                }
            }
            Ok(None) => break json!({"type": "completed", "results": results}),
            Err(problem) => break json!({"type": "error", "message": problem.to_string()}),
        }
    };
    // Nobody is there to be told if this fails.
    let _ignored = events.send("", &last).await;
}

/// `POST /v1/video/cleanup/{id}`.
pub(crate) async fn cleanup(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    app.clips.remove(&id);
    Ok((StatusCode::OK, success(json!({"session_id": id}))))
}
