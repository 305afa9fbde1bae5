//! X-AnyLabeling's remote server: clicks and phrases in pictures and clips.

pub(super) mod video;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use cutout_imaging::Rle;
use cutout_sam::{Find, Label};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Asked, Found, largest_outline, outlines, rect_between, twice_area};
use crate::models::Entry;
use crate::problem::Problem;
use crate::requests::{Reader, is};
use crate::server::{App, parse};

/// Label of objects that were clicked; the tool asks for a name then.
const CLICKED: &str = "AUTOLABEL_OBJECT";
/// Corner tolerance where the tool sends none, as a share of the outline's length.
const FINENESS: f64 = 0.001;

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    model: Option<String>,
    image: String,
    #[serde(default)]
    params: Parameters,
}

#[derive(Default, Deserialize)]
struct Parameters {
    #[serde(default)]
    marks: Vec<Mark>,
    #[serde(default)]
    text_prompt: Option<String>,
    /// 0 where the tool has no field for it.
    #[serde(default)]
    conf_threshold: f64,
    #[serde(default)]
    iou_threshold: f64,
    #[serde(default)]
    epsilon_factor: f64,
}

#[derive(Deserialize)]
struct Mark {
    #[serde(rename = "type")]
    kind: String,
    data: Vec<f64>,
    #[serde(default = "positive")]
    label: i64,
}

/// The parsers of requests.
pub(super) const READERS: &[Reader] = &[
    ("x-anylabeling", |body| {
        parse::<Request>(body).is_ok_and(|request| {
            prompts(&request.params.marks).is_ok() && query(&request.params).is_ok()
        })
    }),
    ("x-anylabeling-init", is::<video::InitRequest>),
    ("x-anylabeling-prompt", is::<video::PromptRequest>),
    ("x-anylabeling-track", is::<video::TrackingRequest>),
];

fn positive() -> i64 {
    1
}

/// `GET /v1/models`.
pub(super) async fn models(State(app): State<App>) -> Json<Value> {
    let mut models = Map::new();
    for entry in app.models.iter() {
        models.insert(entry.source.id.clone(), described(entry));
        if entry.source.tracks {
            let source = &entry.source;
            let (id, mode) = video::described(&source.id, &source.title, source.finds);
            models.insert(id, mode);
        }
    }
    Json(json!({"success": true, "data": models}))
}

/// A model, and the buttons that the tool shows for it.
fn described(entry: &Entry) -> Value {
    let widget = |name: &str| json!({"name": name, "value": null});
    let with = |name: &str, value: Value| json!({"name": name, "value": value});
    let mut widgets = Vec::new();
    if entry.source.finds {
        widgets.extend(
            ["edit_text", "button_send", "add_pos_rect", "add_neg_rect", "button_run_rect"]
                .map(widget),
        );
        widgets.extend(["input_conf"].map(widget));
        widgets.push(with("edit_conf", json!(0.5)));
        widgets.push(with("toggle_preserve_existing_annotations", json!(false)));
    } else {
        widgets.extend(["button_add_point", "button_remove_point", "button_add_rect"].map(widget));
    }
    widgets.extend(["button_clear", "button_finish_object"].map(widget));
    widgets.push(with("mask_fineness_slider", json!(10)));
    widgets.push(widget("mask_fineness_value_label"));
    let mode = if entry.source.finds { "text_prompt" } else { "default" };
    json!({
        "display_name": entry.source.title,
        "widgets": widgets,
        "params": {},
        "capabilities": {},
        "batch_processing_mode": mode,
    })
}

/// `POST /v1/predict`.
pub(super) async fn predict(State(app): State<App>, body: Bytes) -> Result<Json<Value>, Problem> {
    let Request { model, image, params } = parse(&body)?;
    let model = app.models.named(model.as_deref())?;
    let picture = app.picture_in(&image, Some(&model.source.id)).await?;
    let fineness = if params.epsilon_factor > 0.0 { params.epsilon_factor } else { FINENESS };
    if model.source.finds {
        let found = app.find(picture, query(&params)?).await?;
        let shapes = found_shapes(&found, fineness)?;
        return Ok(answer(shapes, Value::Null));
    }
    let asked = prompts(&params.marks)?;
    if asked.is_empty() {
        return Ok(answer(Vec::new(), json!(false)));
    }
    let mut shapes = Vec::new();
    for cut in app.cut(picture, &asked).await? {
        shapes.extend(shape(&cut.rle, CLICKED, Value::Null, fineness)?);
    }
    Ok(answer(shapes, json!(false)))
}

fn answer(shapes: Vec<Value>, replace: Value) -> Json<Value> {
    Json(
        json!({"success": true, "data": {"shapes": shapes, "description": "", "replace": replace}}),
    )
}

/// Each rectangle is an object; all points belong to one.
fn prompts(marks: &[Mark]) -> Result<Vec<Asked>, Problem> {
    let mut points = Asked::default();
    let mut all = Vec::new();
    for mark in marks {
        match (&*mark.kind, &mark.data[..]) {
            ("point", [x, y]) => points.add([*x, *y], mark.label == 1),
            ("rectangle", [x0, y0, x1, y1]) => {
                let rect = Some(rect_between([*x0, *y0], [*x1, *y1]));
                all.push(Asked { rect, ..Asked::default() });
            }
            (kind, data) => {
                let count = data.len();
                return Err(Problem::Invalid(format!("a mark {kind:?} with {count} numbers")));
            }
        }
    }
    if !points.points.is_empty() {
        all.push(points);
    }
    Ok(all)
}

/// Phrases, which commas or full stops separate.
fn phrases_in(text: &str) -> Vec<String> {
    let phrases = text.split([',', '.']).map(str::trim);
    phrases.filter(|phrase| !phrase.is_empty()).map(str::to_owned).collect()
}

/// Phrases, and rectangles as examples.
fn query(params: &Parameters) -> Result<Find, Problem> {
    let mut find = Find::default();
    for phrase in phrases_in(params.text_prompt.as_deref().unwrap_or_default()) {
        find = find.and(phrase);
    }
    for mark in &params.marks {
        let &[x0, y0, x1, y1] = &mark.data[..] else {
            return Err(Problem::Invalid("an example is a rectangle".to_owned()));
        };
        let label = if mark.label == 1 { Label::Positive } else { Label::Negative };
        find = find.with_rect(rect_between([x0, y0], [x1, y1]), label);
    }
    if params.conf_threshold > 0.0 {
        find = find.threshold(params.conf_threshold as f32);
    }
    if params.iou_threshold > 0.0 {
        find = find.without_overlap(params.iou_threshold as f32);
    }
    Ok(find)
}

fn found_shapes(found: &[Found], fineness: f64) -> Result<Vec<Value>, Problem> {
    let mut shapes = Vec::new();
    for Found { phrase, objects } in found {
        for cut in objects {
            let label = phrase.as_deref().unwrap_or(CLICKED);
            shapes.extend(shape(&cut.rle, label, json!(cut.score), fineness)?);
        }
    }
    Ok(shapes)
}

/// The largest outline, closed; `None` for an empty mask. The tolerance is a share of the outline's length.
fn shape(rle: &Rle, label: &str, score: Value, fineness: f64) -> Result<Option<Value>, Problem> {
    let exact = outlines(rle, 0.0)?;
    let whole = largest_outline(&exact);
    let tolerance = (fineness * length(whole)).min(twice_area(whole).sqrt());
    let simple = outlines(rle, tolerance)?;
    let ring = match largest_outline(&simple) {
        [] => whole,
        ring => ring,
    };
    if ring.is_empty() {
        return Ok(None);
    }
    let points: Vec<&[f64; 2]> = ring.iter().chain(ring.first()).collect();
    Ok(Some(json!({
        "label": label,
        "shape_type": "polygon",
        "points": points,
        "score": score,
        "group_id": null,
    })))
}

fn length(ring: &[[f64; 2]]) -> f64 {
    let next = ring.iter().cycle().skip(1);
    ring.iter().zip(next).map(|([x0, y0], [x1, y1])| (x1 - x0).hypot(y1 - y0)).sum()
}
