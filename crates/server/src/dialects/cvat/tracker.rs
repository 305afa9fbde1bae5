//! CVAT's trackers: frames come one at a time, and what is remembered is named by states that pass through the browser.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cutout_imaging::{Mask, Polygon, Rle, Size, fill_polygons};
use cutout_sam::{Prompt, Rect, Sam, TrackOptions, Tracker};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{PREFIX, Request, function_of, runs};
use crate::clips::lock;
use crate::dialects::{largest_outline, outlines};
use crate::engine::{Lane, Ticket};
use crate::library::Picture;
use crate::models::Entry;
use crate::options::Limits;
use crate::problem::Problem;
use crate::server::App;

/// What stands behind the name of a model in the name of its tracker.
pub(super) const SUFFIX: &str = "-tracker";
/// What separates the name of a track from the number of an object in a state.
const SEPARATOR: char = ':';

/// A shape that CVAT sends or gets.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Shape {
    #[serde(rename = "type")]
    kind: Kind,
    points: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Mask,
    Polygon,
    Rectangle,
}

/// Objects that are followed through frames as they come.
struct Live {
    /// Used on the inference thread only.
    tracker: Mutex<Tracker>,
    /// The kinds of the objects, which have the numbers from 1.
    kinds: Vec<Kind>,
    last_used: Mutex<Instant>,
}

/// The tracks of a server, by last use.
pub(crate) struct LiveTracks {
    tracks: Mutex<HashMap<String, Arc<Live>>>,
    most: usize,
    idle: Duration,
}

impl LiveTracks {
    pub(crate) fn new(limits: &Limits) -> Self {
        LiveTracks { tracks: Mutex::default(), most: limits.clips, idle: limits.clip_idle }
    }

    fn get(&self, id: &str) -> Result<Arc<Live>, Problem> {
        let found = lock(&self.tracks).get(id).cloned();
        let found = found.ok_or_else(|| {
            Problem::Missing("what was remembered of this track is gone: track again".to_owned())
        })?;
        *lock(&found.last_used) = Instant::now();
        Ok(found)
    }

    /// Adds a track under a random name. Those that were not used for the longest time make room.
    fn add(&self, live: Live) -> Result<String, Problem> {
        let mut random = [0; 16];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| Problem::Internal("the system gives no random numbers".to_owned()))?;
        let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut tracks = lock(&self.tracks);
        let last_used = |live: &Live| *lock(&live.last_used);
        tracks.retain(|_, live| last_used(live).elapsed() < self.idle);
        while tracks.len() >= self.most {
            let oldest = tracks.iter().min_by_key(|(_, live)| last_used(live));
            let Some(oldest) = oldest.map(|(id, _)| id.clone()) else { break };
            tracks.remove(&oldest);
        }
        tracks.insert(id.clone(), Arc::new(live));
        Ok(id)
    }

    /// Drops all tracks: they keep models in memory.
    pub(crate) fn clear(&self) {
        lock(&self.tracks).clear();
    }
}

/// Name of the tracker of a model.
pub(super) fn name_of(entry: &Entry) -> String {
    format!("{PREFIX}{}{SUFFIX}", entry.source.id)
}

/// A model as a tracker.
pub(super) fn described(entry: &Entry, port: u16) -> Value {
    let annotations = json!({
        "name": format!("cutout: {} tracks", entry.source.title),
        "type": "tracker",
        "supported_shape_types": "mask,polygon,rectangle",
    });
    function_of(name_of(entry), annotations, &entry.source.title, port)
}

/// Shapes of the first frame start a track; later frames come with the states that were answered.
pub(super) async fn track(app: &App, model: &str, request: Request) -> Result<Value, Problem> {
    let states = request.states.unwrap_or_default();
    let shapes: Vec<Shape> = request.shapes.unwrap_or_default().into_iter().flatten().collect();
    let count = states.len().max(shapes.len());
    let most = app.limits.clip_objects;
    if count == 0 || count > most {
        return Err(Problem::Invalid(format!("{count} shapes; a request tracks 1 to {most}")));
    }
    let picture = app.picture_in(&request.image, Some(model)).await?;
    if states.is_empty() {
        start(app, picture, shapes).await
    } else {
        go_on(app, picture, &states).await
    }
}

/// Runs work with a picture's model on the inference thread.
async fn run<T: Send + 'static>(
    app: &App,
    picture: Arc<Picture>,
    work: impl FnOnce(&Sam, &Picture) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let ticket = Ticket { lane: Lane::Short, preview: None, time: app.limits.answer_time };
    let models = Arc::clone(&app.models);
    app.engine
        .run(ticket, move |_| work(&models.named(Some(&picture.model))?.open()?, &picture))
        .await
}

async fn start(app: &App, picture: Arc<Picture>, shapes: Vec<Shape>) -> Result<Value, Problem> {
    let kinds: Vec<Kind> = shapes.iter().map(|shape| shape.kind).collect();
    let own = kinds.clone();
    let (tracker, answered) = run(app, picture, move |sam, picture| {
        let mut tracker = sam.track(TrackOptions::default())?;
        tracker.visit(0, &picture.image)?;
        let mut answered = Vec::new();
        for (index, shape) in shapes.iter().enumerate() {
            let object = index as u32 + 1;
            let found = match shape.given(picture.size())? {
                Given::Rect(prompt) => tracker.prompt(0, object, &prompt)?,
                Given::Mask(mask) => tracker.prompt(0, object, &mask)?,
            };
            answered.push(shape_of(&found.segment.rle()?, own[index])?);
        }
        Ok((tracker, answered))
    })
    .await?;
    let count = kinds.len();
    let (tracker, last_used) = (Mutex::new(tracker), Mutex::new(Instant::now()));
    let id = app.live_tracks.add(Live { tracker, kinds, last_used })?;
    let states: Vec<String> =
        (1..=count).map(|object| format!("{id}{SEPARATOR}{object}")).collect();
    Ok(json!({"shapes": answered, "states": states}))
}

async fn go_on(app: &App, picture: Arc<Picture>, states: &[String]) -> Result<Value, Problem> {
    let wrong = || Problem::Invalid("a state that this server did not make".to_owned());
    let mut asked: Vec<(String, usize)> = Vec::new();
    for state in states {
        let (id, object) = state.split_once(SEPARATOR).ok_or_else(wrong)?;
        asked.push((id.to_owned(), object.parse().map_err(|_| wrong())?));
    }
    // Objects that were started together are followed together.
    let mut found: HashMap<(String, usize), Option<Value>> = HashMap::new();
    let mut ids: Vec<String> = asked.iter().map(|(id, _)| id.clone()).collect();
    ids.sort();
    ids.dedup();
    for id in ids {
        let live = app.live_tracks.get(&id)?;
        let tracked = run(app, Arc::clone(&picture), move |_, picture| {
            let frame = lock(&live.tracker).push(&picture.image)?;
            let shapes = frame.objects.iter().map(|object| {
                let number = object.id as usize;
                let kind = live.kinds.get(number - 1).copied().unwrap_or(Kind::Mask);
                Ok((number, shape_of(&object.segment.rle()?, kind)?))
            });
            shapes.collect::<Result<Vec<_>, Problem>>()
        });
        found.extend(
            tracked.await?.into_iter().map(|(number, shape)| ((id.clone(), number), shape)),
        );
    }
    let shapes: Vec<Option<Value>> = asked
        .iter()
        .map(|key| found.get(key).cloned().ok_or_else(wrong))
        .collect::<Result<_, _>>()?;
    Ok(json!({"shapes": shapes, "states": states}))
}

/// What an object is started with.
enum Given {
    Rect(Prompt),
    Mask(Mask),
}

impl Shape {
    /// Whether it fits a small picture.
    pub(super) fn is_valid(&self) -> bool {
        self.given(Size::new(12, 9)).is_ok()
    }

    fn given(&self, size: Size) -> Result<Given, Problem> {
        match self.kind {
            Kind::Rectangle => match self.points[..] {
                [x0, y0, x1, y1] => {
                    Ok(Given::Rect(Prompt::default().with_rect(Rect { x0, y0, x1, y1 })))
                }
                _ => Err(Problem::Invalid("a rectangle has four numbers".to_owned())),
            },
            Kind::Polygon => {
                let outer: Vec<[f64; 2]> =
                    self.points.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
                let polygon = Polygon { outer, holes: Vec::new() };
                let wrong = |error: cutout_imaging::ImageError| Problem::Invalid(error.to_string());
                Ok(Given::Mask(fill_polygons(size, &[polygon]).map_err(wrong)?))
            }
            Kind::Mask => Ok(Given::Mask(mask_of(&self.points, size)?)),
        }
    }
}

/// The mask of CVAT's runs, which the box follows.
fn mask_of(points: &[f64], size: Size) -> Result<Mask, Problem> {
    let wrong = || Problem::Invalid("a mask is runs and a box inside the picture".to_owned());
    let whole = |value: &f64| (*value >= 0.0 && value.fract() == 0.0).then_some(*value as usize);
    let numbers: Vec<usize> = points.iter().map(whole).collect::<Option<_>>().ok_or_else(wrong)?;
    let (runs, bounds) = numbers.split_last_chunk::<4>().ok_or_else(wrong)?;
    let [left, top, right, bottom] = *bounds;
    if left > right || top > bottom || right >= size.width || bottom >= size.height {
        return Err(wrong());
    }
    let (width, total) = (right - left + 1, (right - left + 1) * (bottom - top + 1));
    let sum = runs.iter().try_fold(0_usize, |sum, run| sum.checked_add(*run));
    if sum != Some(total) {
        return Err(wrong());
    }
    let mut mask = Mask::empty(size)?;
    let mut at = 0;
    for (index, run) in runs.iter().enumerate() {
        if index % 2 == 1 {
            for pixel in at..at + run {
                let (x, y) = (left + pixel % width, top + pixel / width);
                mask.pixels_mut()[y * size.width + x] = true;
            }
        }
        at += run;
    }
    Ok(mask)
}

/// A mask as a shape of some kind; `None` where the object is hidden.
fn shape_of(rle: &Rle, kind: Kind) -> Result<Option<Value>, Problem> {
    let Some(bounds) = rle.bounds() else { return Ok(None) };
    let points = match kind {
        Kind::Rectangle => {
            json!([bounds.left, bounds.top, bounds.right + 1, bounds.bottom + 1])
        }
        Kind::Polygon => {
            let outlines = outlines(rle, 1.0)?;
            json!(largest_outline(&outlines).iter().flatten().collect::<Vec<_>>())
        }
        Kind::Mask => json!(runs(rle)?),
    };
    Ok(Some(json!({"type": kind, "points": points})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_as_they_are_written() {
        let size = Size::new(6, 5);
        let pixels = (0..30).map(|pixel| [8, 9, 14, 21].contains(&pixel)).collect();
        let mask = Mask::from_pixels(size, pixels).unwrap();
        let written = runs(&mask.to_rle().unwrap()).unwrap().unwrap();
        let points: Vec<f64> = written.iter().map(|value| *value as f64).collect();
        assert_eq!(mask_of(&points, size).unwrap(), mask);
        for wrong in [
            vec![1.0, 2.0],
            vec![5.0, 0.0, 0.0, 9.0, 0.0],
            vec![3.0, 0.0, 0.0, 1.0, 0.0],
            vec![1.5, 0.5, 0.0, 0.0, 1.0, 0.0],
            vec![2.0, 3.0, 1.0, 1.0, 0.0],
            vec![f64::MAX, f64::MAX, 0.0, 0.0, 1.0, 0.0],
        ] {
            assert!(mask_of(&wrong, size).is_err(), "{wrong:?}");
        }
    }
}
