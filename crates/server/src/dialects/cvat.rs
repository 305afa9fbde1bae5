//! CVAT's serverless functions: this server in the place of nuclio.

mod detector;
mod tracker;

pub(crate) use tracker::LiveTracks;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::http::header;
use cutout_imaging::Rle;
use cutout_sam::Find;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Asked, Cut, rect_between};
use crate::models::Entry;
use crate::problem::Problem;
use crate::requests::Reader;
use crate::server::{App, parse};

/// Header with the name of the function that is called.
const FUNCTION: &str = "x-nuclio-function-name";
/// What stands before the name of a model in the name of its function.
const PREFIX: &str = "cutout-";
/// Port where the request does not say which one it came to.
const USUAL_PORT: u16 = 9090;

#[derive(Deserialize)]
struct Request {
    image: String,
    #[serde(default)]
    pos_points: Option<Vec<[f64; 2]>>,
    #[serde(default)]
    neg_points: Option<Vec<[f64; 2]>>,
    #[serde(default)]
    obj_bbox: Option<Vec<[f64; 2]>>,
    #[serde(default)]
    text_prompts: Option<Vec<String>>,
    #[serde(default)]
    threshold: Option<f64>,
    /// Of a tracker's request: the shapes of the first frame, or nulls.
    #[serde(default)]
    shapes: Option<Vec<Option<tracker::Shape>>>,
    /// Of a tracker's request: what was answered to the last one.
    #[serde(default)]
    states: Option<Vec<String>>,
}

/// What is called.
enum Function {
    Interactor,
    Detector,
    Tracker,
}

/// The parser of requests: shapes of a tracker are also drawn, clicks also sorted.
pub(super) const READERS: &[Reader] = &[("cvat", |body| {
    let Ok(request) = parse::<Request>(body) else { return false };
    let shapes = request.shapes.iter().flatten().flatten();
    shapes.into_iter().all(tracker::Shape::is_valid) && request.asked().is_ok()
})];

/// `GET /api/functions`.
pub(super) async fn functions(State(app): State<App>, headers: HeaderMap) -> Json<Value> {
    Json(Value::Object(all(&app, port(&headers))))
}

/// `GET /api/functions/{name}`.
pub(super) async fn function(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    let found = all(&app, port(&headers)).remove(&name);
    found.map(Json).ok_or_else(|| {
        let shown: String = name.chars().take(64).collect();
        Problem::Missing(format!("no function {shown:?}"))
    })
}

/// All functions by name: an interactor for each model that answers clicks, a tracker for each that tracks, a detector for each
/// that finds the labels of the server.
fn all(app: &App, port: u16) -> Map<String, Value> {
    let mut all = Map::new();
    for entry in app.models.iter() {
        if entry.source.answers_clicks {
            all.insert(name_of(entry), described(entry, port));
        }
        if entry.source.tracks {
            all.insert(tracker::name_of(entry), tracker::described(entry, port));
        }
        if entry.source.finds && !app.labels.is_empty() {
            let detector = detector::described(entry, &app.labels, port);
            all.insert(detector::name_of(entry), detector);
        }
    }
    all
}

fn name_of(entry: &Entry) -> String {
    format!("{PREFIX}{}", entry.source.id)
}

/// The kind and the model of a function.
fn parts_of(function: &str) -> (Function, &str) {
    let name = function.strip_prefix(PREFIX).unwrap_or(function);
    if let Some(model) = name.strip_suffix(detector::SUFFIX) {
        return (Function::Detector, model);
    }
    match name.strip_suffix(tracker::SUFFIX) {
        Some(model) => (Function::Tracker, model),
        None => (Function::Interactor, name),
    }
}

/// A function as nuclio describes it.
fn function_of(name: String, annotations: Value, title: &str, port: u16) -> Value {
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"description": format!("{title} by cutout")},
        "status": {"httpPort": port, "state": "ready"},
    })
}

/// The port that the client used.
fn port(headers: &HeaderMap) -> u16 {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let port = host.and_then(|host| host.rsplit_once(':')).and_then(|(_, port)| port.parse().ok());
    port.unwrap_or(USUAL_PORT)
}

/// A model as an interactor. CVAT takes any text of a flag as true, so that flags that are not set are left out.
fn described(entry: &Entry, port: u16) -> Value {
    let annotations = json!({
        "name": format!("cutout: {}", entry.source.title),
        "type": "interactor",
        "version": "2",
        "min_pos_points": "0",
        "min_neg_points": "0",
        "startswith_box_optional": "true",
        "help_message": "Click on the object, or draw a box around it",
    });
    function_of(name_of(entry), annotations, &entry.source.title, port)
}

/// `POST /` and `POST /api/function_invocations`.
pub(super) async fn call(
    State(app): State<App>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let request: Request = parse(&body)?;
    let function = headers.get(FUNCTION).and_then(|name| name.to_str().ok());
    let (function, model) = match function.map(parts_of) {
        Some((function, model)) => (function, Some(model)),
        None => (request.function(), None),
    };
    match function {
        Function::Interactor => interact(&app, model, &request).await,
        Function::Detector => {
            let finder = model.map_or_else(|| app.finder(), |model| Ok(model.to_owned()))?;
            Ok(Json(detector::detect(&app, &finder, &request).await?))
        }
        Function::Tracker => {
            let model = model.map(str::to_owned);
            let tracks = |entry: &&Entry| entry.source.tracks;
            let first = || app.models.iter().find(tracks).map(|entry| entry.source.id.clone());
            let none = || Problem::Invalid("no model of this server tracks".to_owned());
            let model = model.or_else(first).ok_or_else(none)?;
            Ok(Json(tracker::track(&app, &model, request).await?))
        }
    }
}

/// The masks of clicks, a box or phrases.
async fn interact(
    app: &App,
    model: Option<&str>,
    request: &Request,
) -> Result<Json<Value>, Problem> {
    let phrases = request.text_prompts.as_deref().unwrap_or_default();
    let cuts = if phrases.is_empty() {
        let picture = app.picture_in(&request.image, model).await?;
        app.cut(picture, &[request.asked()?]).await?
    } else {
        app.check_count("phrases", phrases.len())?;
        let finder = app.finder()?;
        let picture = app.picture_in(&request.image, Some(&finder)).await?;
        let mut find = phrases.iter().fold(Find::default(), Find::and);
        if let Some(threshold) = request.threshold {
            find = find.threshold(threshold as f32);
        }
        app.find(picture, find).await?.into_iter().flat_map(|found| found.objects).collect()
    };
    let shapes = cuts.iter().filter_map(|cut| shape(cut).transpose());
    Ok(Json(json!({"shapes": shapes.collect::<Result<Vec<Value>, Problem>>()?})))
}

impl Request {
    /// What a request without a name calls, by what it holds.
    fn function(&self) -> Function {
        let has_marks = self.pos_points.is_some() || self.neg_points.is_some();
        if self.states.is_some() || self.shapes.is_some() {
            Function::Tracker
        } else if has_marks || self.obj_bbox.is_some() || self.text_prompts.is_some() {
            Function::Interactor
        } else {
            Function::Detector
        }
    }

    fn asked(&self) -> Result<Asked, Problem> {
        let mut asked = Asked::default();
        self.pos_points.iter().flatten().for_each(|point| asked.add(*point, true));
        self.neg_points.iter().flatten().for_each(|point| asked.add(*point, false));
        asked.rect = match self.obj_bbox.as_deref().unwrap_or_default() {
            [] => None,
            [one, other] => Some(rect_between(*one, *other)),
            other => {
                let count = other.len();
                return Err(Problem::Invalid(format!("obj_bbox has {count} corners, not two")));
            }
        };
        Ok(asked)
    }
}

/// A mask in CVAT's runs; `None` for an empty one.
fn shape(cut: &Cut) -> Result<Option<Value>, Problem> {
    let Some(points) = runs(&cut.rle)? else { return Ok(None) };
    Ok(Some(json!({
        "type": "mask",
        "points": points,
        "attributes": [{"spec_id": 0, "value": format!("{:.2}", cut.score)}],
        "group": 0,
        "source": "semi-auto",
        "occluded": false,
        "rotation": 0,
    })))
}

/// Runs along the rows of the box, unset first, then the box: left, top, right, bottom, all of them inside.
fn runs(rle: &Rle) -> Result<Option<Vec<usize>>, Problem> {
    let Some(bounds) = rle.bounds() else { return Ok(None) };
    let mask = rle.to_mask()?;
    let (mut runs, mut is_set, mut length) = (Vec::new(), false, 0);
    for y in bounds.top..=bounds.bottom {
        for x in bounds.left..=bounds.right {
            if mask.get(x, y) == is_set {
                length += 1;
            } else {
                runs.push(length);
                (is_set, length) = (!is_set, 1);
            }
        }
    }
    runs.push(length);
    runs.extend([bounds.left, bounds.top, bounds.right, bounds.bottom]);
    Ok(Some(runs))
}

#[cfg(test)]
mod tests {
    use cutout_imaging::{Mask, Size};

    use super::*;

    #[test]
    fn runs_start_with_unset_pixels_and_end_with_the_box() {
        let mask = |rows: [&str; 3]| {
            let pixels = rows.concat().chars().map(|c| c == '#').collect();
            Mask::from_pixels(Size::new(4, 3), pixels).unwrap().to_rle().unwrap()
        };
        let found = runs(&mask(["....", ".##.", "..#."])).unwrap().unwrap();
        assert_eq!(found, [0, 2, 1, 1, 1, 1, 2, 2]);
        let found = runs(&mask(["..#.", ".##.", "...."])).unwrap().unwrap();
        assert_eq!(found, [1, 3, 1, 0, 2, 1]);
        assert_eq!(runs(&mask(["....", "....", "...."])).unwrap(), None);
    }
}
