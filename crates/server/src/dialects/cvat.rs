//! CVAT's serverless functions: this server in the place of nuclio.

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
}

/// `GET /api/functions`.
pub(super) async fn functions(State(app): State<App>, headers: HeaderMap) -> Json<Value> {
    let mut all = Map::new();
    for entry in app.models.iter() {
        all.insert(name_of(entry), described(entry, port(&headers)));
    }
    Json(Value::Object(all))
}

/// `GET /api/functions/{name}`.
pub(super) async fn function(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    Ok(Json(described(app.models.named(Some(model_of(&name)))?, port(&headers))))
}

fn name_of(entry: &Entry) -> String {
    format!("{PREFIX}{}", entry.source.id)
}

fn model_of(function: &str) -> &str {
    function.strip_prefix(PREFIX).unwrap_or(function)
}

/// The port that the client used.
fn port(headers: &HeaderMap) -> u16 {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let port = host.and_then(|host| host.rsplit_once(':')).and_then(|(_, port)| port.parse().ok());
    port.unwrap_or(USUAL_PORT)
}

/// A model as an interactor. CVAT takes any text of a flag as true, so that flags that are not set are left out.
fn described(entry: &Entry, port: u16) -> Value {
    let help = "Click on the object, or draw a box around it";
    json!({
        "metadata": {
            "name": name_of(entry),
            "annotations": {
                "name": format!("cutout: {}", entry.source.title),
                "type": "interactor",
                "version": "2",
                "min_pos_points": "0",
                "min_neg_points": "0",
                "startswith_box_optional": "true",
                "help_message": help,
            },
        },
        "spec": {"description": format!("{} by cutout", entry.source.title)},
        "status": {"httpPort": port, "state": "ready"},
    })
}

/// `POST /` and `POST /api/function_invocations`.
pub(super) async fn call(
    State(app): State<App>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let request: Request = parse(&body)?;
    let function = headers.get(FUNCTION).and_then(|name| name.to_str().ok());
    let phrases = request.text_prompts.as_deref().unwrap_or_default();
    let cuts = if phrases.is_empty() {
        let picture = app.picture_in(&request.image, function.map(model_of)).await?;
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
