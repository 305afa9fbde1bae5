//! Clips: add, look at, point at, forget.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cutout_imaging::encode_jpeg;
use cutout_sam::ObjectId;

use super::answers::{Form, preview_of};
use super::images::milliseconds_since;
use super::video_types::{
    MarksAnswer, ObjectAnswer, VideoAnswer, VideoPromptAnswer, VideoPromptRequest, VideoQuery,
};
use crate::clips::{Clip, Marks, Masked, Upload, pictures_in};
use crate::engine::{Lane, Preview};
use crate::problem::Problem;
use crate::server::{App, parse};

/// Quality of frames as JPEG, for people to look at.
const QUALITY: u8 = 88;
/// Largest number of an object: label pictures have one byte for it.
const LARGEST_OBJECT: ObjectId = 255;

/// `POST /api/v1/videos`.
pub(super) async fn add(
    State(app): State<App>,
    Query(query): Query<VideoQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<VideoAnswer>, Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let upload = match pictures_in(kind.unwrap_or_default(), &body, app.limits.clip_frames) {
        Some(pictures) => Upload::Pictures(pictures?),
        None => Upload::File(body),
    };
    let clip = app.add_clip(upload, query.model.as_deref()).await?;
    Ok(Json(described(&app, &clip)))
}

/// `GET /api/v1/videos/{id}`.
pub(super) async fn get(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<VideoAnswer>, Problem> {
    Ok(Json(described(&app, &*app.clips.get(&id)?)))
}

/// `DELETE /api/v1/videos/{id}`.
pub(super) async fn remove(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    app.clips.get(&id)?;
    app.clips.remove(&id);
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /api/v1/videos/{id}/frames/{frame}`: a JPEG.
pub(super) async fn frame(
    State(app): State<App>,
    Path((id, frame)): Path<(String, usize)>,
) -> Result<Response, Problem> {
    let clip = app.clips.get(&id)?;
    clip.check_frame(frame)?;
    let bytes =
        app.off_thread(move || Ok(encode_jpeg(&clip.frames.read(frame)?, QUALITY)?)).await?;
    // A name stands for the same frames for ever.
    let kept = (header::CACHE_CONTROL, "private, max-age=3600, immutable");
    Ok(([(header::CONTENT_TYPE, "image/jpeg"), kept], bytes).into_response())
}

/// `POST /api/v1/videos/{id}/prompt`.
pub(super) async fn prompt(
    State(app): State<App>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<VideoPromptAnswer>, Problem> {
    let request: VideoPromptRequest = parse(&body)?;
    app.check_count("points", request.points.len())?;
    let form = Form::new(&request.outputs, request.simplify)?;
    let clip = app.clips.get(&id)?;
    let preview = preview_of(request.hover.as_ref())?;
    let VideoPromptRequest { frame, object, points, rect, anew, .. } = request;
    let (at, marks) = ((frame, object), Marks { points, rect });
    let start = Instant::now();
    let masked = match preview {
        Some(_) if anew => {
            let text = "a preview forgets nothing: send `anew` without `hover`";
            return Err(Problem::Invalid(text.to_owned()));
        }
        Some(preview) => app.preview_clip(&clip, at, marks, preview).await?,
        None => app.prompt_clip(&clip, at, marks, anew).await?,
    };
    let milliseconds = milliseconds_since(start);
    let mask = ObjectAnswer::of(&masked, &form)?;
    Ok(Json(VideoPromptAnswer { frame, mask, milliseconds }))
}

/// `DELETE /api/v1/videos/{id}/objects/{object}`.
pub(super) async fn remove_object(
    State(app): State<App>,
    Path((id, object)): Path<(String, ObjectId)>,
) -> Result<StatusCode, Problem> {
    let clip = app.clips.get(&id)?;
    clip.check_idle()?;
    app.with_clip(&clip, (Lane::Short, None), move |clip, _| clip.remove_object(object)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /api/v1/videos/{id}/objects/{object}/frames/{frame}`: takes the prompts on one frame back.
pub(super) async fn take_back(
    State(app): State<App>,
    Path((id, object, frame)): Path<(String, ObjectId, usize)>,
) -> Result<StatusCode, Problem> {
    let clip = app.clips.get(&id)?;
    clip.check_idle()?;
    app.with_clip(&clip, (Lane::Short, None), move |clip, _| clip.take_back(frame, object)).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl App {
    /// Reads a clip for a model that tracks.
    pub(crate) async fn add_clip(
        &self,
        upload: Upload,
        model: Option<&str>,
    ) -> Result<Arc<Clip>, Problem> {
        let tracks = |name: &str| {
            Problem::Invalid(format!(
                "the model {name:?} does not track: start the server with --model and a SAM 2 or SAM 3"
            ))
        };
        let entry = match model {
            Some(_) => self.models.named(model)?,
            None => match self.models.iter().find(|entry| entry.source.tracks) {
                Some(entry) => entry,
                None => self.models.named(None)?,
            },
        };
        if !entry.source.tracks {
            return Err(tracks(&entry.source.id));
        }
        let frames = self.record(upload).await?;
        self.clips.add(Clip::new(entry.source.id.clone(), frames)?)
    }

    /// Gives a prompt on a frame of a clip.
    pub(crate) async fn prompt_clip(
        &self,
        clip: &Arc<Clip>,
        (frame, object): (usize, ObjectId),
        marks: Marks,
        anew: bool,
    ) -> Result<Masked, Problem> {
        check_place(clip, (frame, object))?;
        let known = clip.objects();
        let most = self.limits.clip_objects;
        if !known.contains(&object) && known.len() >= most {
            return Err(Problem::Invalid(format!("a clip has at most {most} objects")));
        }
        self.with_clip(clip, (Lane::Short, None), move |clip, means| {
            clip.prompt((frame, object), marks, anew, means)
        })
        .await
    }

    /// The mask that a prompt on a frame of a clip would have.
    async fn preview_clip(
        &self,
        clip: &Arc<Clip>,
        at: (usize, ObjectId),
        marks: Marks,
        preview: Preview,
    ) -> Result<Masked, Problem> {
        check_place(clip, at)?;
        let how = (Lane::Short, Some(preview));
        self.with_clip(clip, how, move |clip, means| clip.preview(at, &marks, means)).await
    }
}

/// An error where a clip takes no prompt now, or not there.
fn check_place(clip: &Clip, (frame, object): (usize, ObjectId)) -> Result<(), Problem> {
    clip.check_idle()?;
    clip.check_frame(frame)?;
    if !(1..=LARGEST_OBJECT).contains(&object) {
        let text = format!("objects have numbers from 1 to {LARGEST_OBJECT}");
        return Err(Problem::Invalid(text));
    }
    Ok(())
}

impl ObjectAnswer {
    pub(super) fn of(masked: &Masked, form: &Form) -> Result<Self, Problem> {
        Ok(ObjectAnswer {
            object: masked.object,
            object_score: masked.object_score,
            phrase: masked.found.as_ref().and_then(|found| found.phrase.clone()),
            mask: form.mask(&masked.rle, masked.score)?,
        })
    }
}

fn described(app: &App, clip: &Clip) -> VideoAnswer {
    let size = clip.frames.size();
    let marks = |(frame, object, marks): (usize, ObjectId, Marks)| MarksAnswer {
        frame,
        object,
        points: marks.points,
        rect: marks.rect,
    };
    let prompts = clip.prompts().into_iter().flat_map(|(frame, objects)| {
        objects.into_iter().map(move |(object, marks)| (frame, object, marks))
    });
    VideoAnswer {
        video_id: clip.id.clone(),
        model: clip.model.clone(),
        width: size.width,
        height: size.height,
        frames: clip.frames.count(),
        frame_rate: clip.frames.rate(),
        prompts: prompts.map(marks).collect(),
        masked_frames: clip.masked_frames(),
        tracking: clip.is_running(),
        idle_seconds: app.limits.clip_idle.as_secs(),
    }
}
