//! Roboflow's `inference-sdk`: SAM 1, 2 and 3 routes.

pub(super) mod sam1;

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use cutout_imaging::Rle;
use cutout_sam::{Find, Label, Rect};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Asked, Cut, outlines};
use crate::problem::Problem;
use crate::requests::{Reader, is};
use crate::server::{App, parse};

/// The parsers of requests.
pub(super) const READERS: &[Reader] = &[
    ("roboflow-embed", is::<EmbedRequest>),
    ("roboflow-segment", is::<SegmentRequest>),
    ("roboflow-find", is::<FindRequest>),
    ("roboflow-sam1", sam1::is_request),
];

#[derive(Deserialize)]
struct Picture {
    #[serde(rename = "type")]
    kind: String,
    value: String,
}

impl Picture {
    /// The picture in base64. Addresses are not fetched.
    fn base64(&self) -> Result<&str, Problem> {
        match &*self.kind {
            "base64" => Ok(&self.value),
            kind => {
                Err(Problem::Invalid(format!("an image of type {kind:?}; only base64 is read")))
            }
        }
    }
}

#[derive(Deserialize)]
struct EmbedRequest {
    image: Picture,
    #[serde(default)]
    image_id: Option<String>,
}

#[derive(Deserialize)]
struct SegmentRequest {
    #[serde(default)]
    image: Option<Picture>,
    #[serde(default)]
    image_id: Option<String>,
    #[serde(default)]
    prompts: Prompts,
    #[serde(default)]
    format: Option<String>,
}

/// The SDK sends a list inside an object; a list alone is accepted too.
#[derive(Deserialize)]
#[serde(untagged)]
enum Prompts {
    Wrapped { prompts: Vec<VisualPrompt> },
    List(Vec<VisualPrompt>),
}

impl Default for Prompts {
    fn default() -> Self {
        Prompts::List(Vec::new())
    }
}

#[derive(Deserialize)]
struct VisualPrompt {
    #[serde(default)]
    points: Option<Vec<ClickedPoint>>,
    #[serde(default, rename = "box")]
    rect: Option<CentredBox>,
}

#[derive(Deserialize)]
struct ClickedPoint {
    x: f64,
    y: f64,
    positive: bool,
}

/// A box by its centre.
#[derive(Deserialize)]
struct CentredBox {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

#[derive(Deserialize)]
struct FindRequest {
    image: Picture,
    prompts: Vec<ConceptPrompt>,
    #[serde(default)]
    output_prob_thresh: Option<f64>,
    #[serde(default)]
    nms_iou_threshold: Option<f64>,
    #[serde(default)]
    format: Option<String>,
}

#[derive(Deserialize)]
struct ConceptPrompt {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    boxes: Option<Vec<ExampleBox>>,
    #[serde(default)]
    box_labels: Option<Vec<Value>>,
    #[serde(default)]
    output_prob_thresh: Option<f64>,
}

/// A box by its corners, or by its upper left corner and size.
#[derive(Deserialize)]
#[serde(untagged)]
enum ExampleBox {
    Corners { x0: f64, y0: f64, x1: f64, y1: f64 },
    Sized { x: f64, y: f64, width: f64, height: f64 },
}

/// The picture of a request: sent with it, or embedded before under a name of the client.
async fn picture_of(
    app: &App,
    image: Option<&Picture>,
    image_id: Option<&str>,
) -> Result<Arc<crate::library::Picture>, Problem> {
    if let Some(image) = image {
        return app.picture_in(image.base64()?, None).await;
    }
    let Some(id) = image_id else {
        return Err(Problem::Invalid("there is neither image nor image_id".to_owned()));
    };
    app.picture(&app.library.alias(id).unwrap_or_else(|| id.to_owned()))
}

/// `POST /sam/embed_image`, `/sam2/embed_image`, `/sam3/embed_image`.
pub(super) async fn embed(State(app): State<App>, body: Bytes) -> Result<Json<Value>, Problem> {
    let start = Instant::now();
    let request: EmbedRequest = parse(&body)?;
    let picture = app.picture_in(request.image.base64()?, None).await?;
    if let Some(name) = &request.image_id {
        app.library.name(name, &picture.id);
    }
    let id = request.image_id.unwrap_or_else(|| picture.id.clone());
    app.with_scene(picture, crate::engine::Lane::Short, None, |_, _, _| Ok(())).await?;
    Ok(Json(json!({"image_id": id, "time": start.elapsed().as_secs_f64()})))
}

/// `POST /sam2/segment_image`, `/sam3/visual_segment`: one prediction for each prompt.
pub(super) async fn segment(State(app): State<App>, body: Bytes) -> Result<Json<Value>, Problem> {
    let start = Instant::now();
    let SegmentRequest { image, image_id, prompts, format } = parse(&body)?;
    let form = Form::named(format.as_deref())?;
    let picture = picture_of(&app, image.as_ref(), image_id.as_deref()).await?;
    let prompts = match prompts {
        Prompts::Wrapped { prompts } | Prompts::List(prompts) => prompts,
    };
    let size = picture.size();
    let asked: Vec<Asked> =
        prompts.iter().map(|prompt| prompt.asked(size.width as f64, size.height as f64)).collect();
    let mut predictions = Vec::new();
    for cut in app.cut(picture, &asked).await? {
        predictions.push(form.prediction(&cut)?);
    }
    Ok(Json(json!({"predictions": predictions, "time": start.elapsed().as_secs_f64()})))
}

/// `POST /sam3/concept_segment`: the objects of each prompt.
pub(super) async fn find(State(app): State<App>, body: Bytes) -> Result<Json<Value>, Problem> {
    let start = Instant::now();
    let request: FindRequest = parse(&body)?;
    app.check_count("prompts", request.prompts.len())?;
    let form = Form::named(request.format.as_deref())?;
    let finder = app.finder()?;
    let picture = app.picture_in(request.image.base64()?, Some(&finder)).await?;
    let mut results = Vec::new();
    for (index, prompt) in request.prompts.iter().enumerate() {
        let query = prompt.query(&request)?;
        let found = app.find(Arc::clone(&picture), query).await?;
        let cuts = found.iter().flat_map(|found| &found.objects);
        let predictions = cuts.map(|cut| form.prediction(cut)).collect::<Result<Vec<_>, _>>()?;
        let boxes = prompt.boxes.as_ref().map_or(0, Vec::len);
        let kind = prompt.kind.as_deref().unwrap_or("text");
        results.push(json!({
            "prompt_index": index,
            "echo": {"prompt_index": index, "type": kind, "text": prompt.text, "num_boxes": boxes},
            "predictions": predictions,
        }));
    }
    Ok(Json(json!({"prompt_results": results, "time": start.elapsed().as_secs_f64()})))
}

impl VisualPrompt {
    fn asked(&self, width: f64, height: f64) -> Asked {
        let mut asked = Asked::default();
        for ClickedPoint { x, y, positive } in self.points.iter().flatten() {
            asked.add([*x, *y], *positive);
        }
        asked.rect = self.rect.as_ref().map(|rect| Rect {
            x0: (rect.x - rect.width / 2.0).clamp(0.0, width),
            y0: (rect.y - rect.height / 2.0).clamp(0.0, height),
            x1: (rect.x + rect.width / 2.0).clamp(0.0, width),
            y1: (rect.y + rect.height / 2.0).clamp(0.0, height),
        });
        asked
    }
}

impl ConceptPrompt {
    fn query(&self, request: &FindRequest) -> Result<Find, Problem> {
        let mut find = Find::default();
        if let Some(text) = self.text.as_ref().filter(|text| !text.is_empty()) {
            find = find.and(text);
        }
        let labels = self.box_labels.as_deref().unwrap_or_default();
        for (index, example) in self.boxes.iter().flatten().enumerate() {
            let is_negative = labels.get(index).is_some_and(|label| label == 0 || label == false);
            let label = if is_negative { Label::Negative } else { Label::Positive };
            let rect = match *example {
                ExampleBox::Corners { x0, y0, x1, y1 } => Rect { x0, y0, x1, y1 },
                ExampleBox::Sized { x, y, width, height } => {
                    Rect { x0: x, y0: y, x1: x + width, y1: y + height }
                }
            };
            find = find.with_rect(rect, label);
        }
        if let Some(threshold) = self.output_prob_thresh.or(request.output_prob_thresh) {
            find = find.threshold(threshold as f32);
        }
        if let Some(overlap) = request.nms_iou_threshold {
            find = find.without_overlap(overlap as f32);
        }
        Ok(find)
    }
}

/// How masks are answered.
enum Form {
    Polygons,
    RunLengths,
}

impl Form {
    fn named(name: Option<&str>) -> Result<Self, Problem> {
        match name.unwrap_or("polygon") {
            "json" | "polygon" => Ok(Form::Polygons),
            "rle" => Ok(Form::RunLengths),
            other => Err(Problem::Invalid(format!("format {other:?}; it is json, polygon or rle"))),
        }
    }

    fn prediction(&self, cut: &Cut) -> Result<Value, Problem> {
        let (format, masks) = match self {
            Form::Polygons => ("polygon", json!(rings(&cut.rle)?)),
            Form::RunLengths => {
                let size = cut.rle.size();
                let counts = cut.rle.to_coco_string();
                ("rle", json!({"size": [size.height, size.width], "counts": counts}))
            }
        };
        Ok(json!({"masks": masks, "confidence": cut.score, "format": format}))
    }
}

/// The outlines in whole pixels.
fn rings(rle: &Rle) -> Result<Vec<Vec<[i64; 2]>>, Problem> {
    let whole = |ring: &Vec<[f64; 2]>| {
        ring.iter().map(|corner| corner.map(|place| place.round() as i64)).collect()
    };
    Ok(outlines(rle, 0.0)?.iter().map(|polygon| whole(&polygon.outer)).collect())
}
