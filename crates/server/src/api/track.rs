//! Tracking through a clip, frame by frame.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use cutout_sam::Direction;
use tokio::runtime::Handle;

use super::answers::Form;
use super::video_types::{
    CancelAnswer, ObjectAnswer, TrackEnd, TrackFrame, TrackRequest, TrackStarted, Way,
};
use crate::clips::{Clip, Masked, PhraseRun, Running, lock};
use crate::engine::Lane;
use crate::events::{Events, Left};
use crate::problem::{ErrorAnswer, Problem};
use crate::server::{App, parse};

/// Time after which a step is queued again when too many requests waited.
const PAUSE: Duration = Duration::from_millis(300);

/// A frame and the way it is tracked.
type Step = (usize, Direction);

/// `POST /api/v1/videos/{id}/track`.
pub(super) async fn track(
    State(app): State<App>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let request: TrackRequest = parse(&body)?;
    app.check_count("phrases", request.phrases.len())?;
    let form = Form::new(&request.outputs, request.simplify)?;
    let clip = app.clips.get(&id)?;
    let run = Run::new(app, clip, &request).await?;
    let (events, response) = Events::start();
    Handle::current().spawn(stream(run, events, form));
    Ok(response)
}

/// `POST /api/v1/videos/{id}/cancel`.
pub(super) async fn cancel(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<CancelAnswer>, Problem> {
    Ok(Json(CancelAnswer { cancelled: app.clips.get(&id)?.stop_run() }))
}

/// Sends the frames of a run until it ends or the client leaves.
async fn stream(mut run: Run, events: Events, form: Form) {
    let frames = run.frames();
    let Ok(()) = events.send("started", &TrackStarted { frames }).await else { return };
    let mut done = 0;
    let result: Result<(), Left> = loop {
        let next = events.wait(run.next()).await;
        let next = next.and_then(|next| next.map(|found| answer(found, &form)).transpose());
        match next {
            Ok(Some((frame, masks))) => {
                done += 1;
                if let Err(left) =
                    events.send("frame", &TrackFrame { frame, done, frames, masks }).await
                {
                    break Err(left);
                }
            }
            Ok(None) => break events.send("done", &TrackEnd { frames: done }).await,
            Err(Problem::Gone) => break events.send("cancelled", &TrackEnd { frames: done }).await,
            Err(problem) => break events.send("error", &ErrorAnswer::of(&problem)).await,
        }
    };
    // Nobody is there to be told.
    let _ignored = result;
}

fn answer(
    (frame, masks): (usize, Vec<Masked>),
    form: &Form,
) -> Result<(usize, Vec<ObjectAnswer>), Problem> {
    Ok((frame, masks.iter().map(|mask| ObjectAnswer::of(mask, form)).collect::<Result<_, _>>()?))
}

/// A run through a clip.
pub(crate) struct Run {
    app: App,
    clip: Arc<Clip>,
    running: Running,
    /// Frames that are left, the next one last.
    left: Vec<Step>,
    phrases: Option<Arc<Mutex<PhraseRun>>>,
    frames: usize,
}

impl Run {
    /// Prepares a run. An error while another one is under way.
    pub(crate) async fn new(
        app: App,
        clip: Arc<Clip>,
        request: &TrackRequest,
    ) -> Result<Self, Problem> {
        let most = request.max_frames.unwrap_or(usize::MAX);
        let mut left: Vec<Step> = steps(&clip, request)?.into_iter().take(most).collect();
        left.reverse();
        let running = clip.start_run()?;
        let phrases = match request.phrases.is_empty() {
            true => None,
            false => {
                let (phrases, threshold) = (request.phrases.clone(), request.threshold);
                let how = (threshold, request.direction == Way::Both);
                let started = app.with_clip(&clip, (Lane::Long, None), move |clip, means| {
                    PhraseRun::new(clip, means.sam, &phrases, how)
                });
                let started = started.await?;
                clip.forget_masks();
                Some(Arc::new(Mutex::new(started)))
            }
        };
        let frames = left.len();
        Ok(Run { app, clip, running, left, phrases, frames })
    }

    /// Number of frames of the whole run.
    pub(crate) fn frames(&self) -> usize {
        self.frames
    }

    /// The masks of the next frame; `None` at the end. [`Problem::Gone`] if the run is told to stop.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, Vec<Masked>)>, Problem> {
        loop {
            if let Some(phrases) = &self.phrases
                && let Some(settled) = lock(phrases).take(&self.clip, &self.app.limits)?
            {
                return Ok(Some(settled));
            }
            let Some(step) = self.left.last().copied() else { return Ok(None) };
            let (app, clip, is_last) = (&self.app, &self.clip, self.left.len() == 1);
            let phrases = self.phrases.as_ref().map(|phrases| (phrases, is_last));
            let masks = tokio::select! {
                masks = patient(app, clip, phrases, step) => masks?,
                () = self.running.stopped() => return Err(Problem::Gone),
            };
            self.left.pop();
            if let Some(masks) = masks {
                return Ok(Some((step.0, masks)));
            }
        }
    }
}

/// Runs a step, again after a pause if too many requests wait. `None` for phrases, which settle frames later.
async fn patient(
    app: &App,
    clip: &Arc<Clip>,
    phrases: Option<(&Arc<Mutex<PhraseRun>>, bool)>,
    (frame, direction): Step,
) -> Result<Option<Vec<Masked>>, Problem> {
    loop {
        let phrases = phrases.map(|(phrases, is_last)| (Arc::clone(phrases), is_last));
        let masks = app.with_clip(clip, (Lane::Long, None), move |clip, means| match phrases {
            Some((phrases, is_last)) => {
                lock(&phrases).show(clip, (frame, direction), is_last).map(|()| None)
            }
            None => clip.step(frame, direction, means).map(Some),
        });
        match masks.await {
            Err(Problem::Busy(_)) => tokio::time::sleep(PAUSE).await,
            answer => return answer,
        }
    }
}

/// The frames of a run in their order.
fn steps(clip: &Clip, request: &TrackRequest) -> Result<Vec<Step>, Problem> {
    let wrong = |text: &str| Err(Problem::Invalid(text.to_owned()));
    let last = clip.frames.count() - 1;
    let forward = |from: usize| (from..=last).map(|frame| (frame, Direction::Forward));
    let backward = |before: usize| (0..before).rev().map(|frame| (frame, Direction::Backward));
    let first = match clip.prompts().keys().next() {
        _ if !request.phrases.is_empty() && request.direction == Way::Backward => last,
        _ if !request.phrases.is_empty() => 0,
        Some(first) => *first,
        None => return wrong("there is no prompt yet: point at an object first"),
    };
    let start = request.start.unwrap_or(first);
    clip.check_frame(start)?;
    Ok(match request.direction {
        Way::Forward => forward(start).collect(),
        Way::Backward => backward(start + 1).collect(),
        Way::Both => forward(start).chain(backward(start)).collect(),
    })
}
