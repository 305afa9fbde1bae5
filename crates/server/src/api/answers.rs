//! Masks of prompts, phrases and everything.

use std::ops::ControlFlow;
use std::time::Instant;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cutout_imaging::{
    MaskDepth, Polygon, Rle, Threshold, encode_mask, polygons, simplify, to_svg_path,
};
use cutout_sam::{AutoMask, Candidates, Everything, Find, Label, Point, Prompt, Rect, Segment};

use super::images::milliseconds_since;
use super::types::{
    EverythingAnswer, EverythingRequest, FindAnswer, FindRequest, Hover, MaskAnswer, Output,
    PhraseAnswer, RunLengths, SegmentAnswer, SegmentRequest,
};
use crate::engine::{Lane, Preview};
use crate::library::Picture;
use crate::problem::Problem;
use crate::server::{App, parse};

/// Longest name of a client of previews, in bytes.
const CLIENT_NAME: usize = 64;
/// Most points along a side for automatic masks.
const POINTS_PER_SIDE: usize = 64;
/// Farthest that outlines may be from the pixels.
const SIMPLIFY: f64 = 1e4;

/// `POST /api/v1/images/{id}/segment`.
pub(super) async fn segment(
    State(app): State<App>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<SegmentAnswer>, Problem> {
    let request: SegmentRequest = parse(&body)?;
    app.check_count("points", request.points.len())?;
    let form = Form::new(&request.outputs, request.simplify)?;
    let picture = app.picture(&id)?;
    let prompt = prompt_of(&request, &picture)?;
    let preview = preview_of(request.hover.as_ref())?;
    let is_preview = preview.is_some();
    let own = picture.clone();
    let answer = app.with_scene(picture, Lane::Short, preview, move |_, scene, _| {
        let start = Instant::now();
        let masks = scene.segment(&prompt)?;
        let best = masks.best_index();
        // A preview shows one mask and is never refined.
        let shown = |index: &usize| !is_preview || *index == best;
        let segments = masks.iter().enumerate().filter(|(index, _)| shown(index));
        let answers = segments.map(|(_, segment)| {
            let answer = form.answer(segment, segment.iou())?;
            let mask_id = (!is_preview).then(|| own.keep(segment.logits().clone()));
            Ok(MaskAnswer { mask_id, ..answer })
        });
        let masks: Vec<MaskAnswer> = answers.collect::<Result<_, Problem>>()?;
        let best = if is_preview { 0 } else { best };
        Ok(SegmentAnswer { masks, best, milliseconds: milliseconds_since(start) })
    });
    Ok(Json(answer.await?))
}

/// `POST /api/v1/images/{id}/find`.
pub(super) async fn find(
    State(app): State<App>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<FindAnswer>, Problem> {
    let request: FindRequest = parse(&body)?;
    app.check_count("phrases and boxes", request.phrases.len() + request.boxes.len())?;
    let form = Form::new(&request.outputs, request.simplify)?;
    let picture = app.picture(&id)?;
    let own = picture.clone();
    let query = query_of(&request)?;
    let answer = app.with_scene(picture, Lane::Long, None, move |turn, scene, _| {
        let start = Instant::now();
        let mut phrases = Vec::new();
        for raw in scene.raw_detections(&query)? {
            turn.give_way()?;
            let found = raw?.select(&query)?;
            let answers = found.iter().map(|object| {
                let answer = form.answer(object.segment(), object.score())?;
                let mask_id = Some(own.keep(object.segment().logits().clone()));
                Ok(MaskAnswer { mask_id, ..answer })
            });
            phrases.push(PhraseAnswer {
                phrase: found.phrase().map(str::to_owned),
                presence: found.presence(),
                best_score: found.best_score(),
                masks: answers.collect::<Result<_, Problem>>()?,
            });
        }
        Ok(FindAnswer { phrases, milliseconds: milliseconds_since(start) })
    });
    Ok(Json(answer.await?))
}

/// `POST /api/v1/images/{id}/everything`.
pub(super) async fn everything(
    State(app): State<App>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<EverythingAnswer>, Problem> {
    let request: EverythingRequest = parse(&body)?;
    if request.points_per_side.is_some_and(|side| side > POINTS_PER_SIDE) {
        return Err(Problem::Invalid(format!("points_per_side is at most {POINTS_PER_SIDE}")));
    }
    let form = Form::new(&request.outputs, request.simplify)?;
    let picture = app.picture(&id)?;
    let answer = app.with_scene(picture, Lane::Long, None, move |turn, scene, _| {
        let start = Instant::now();
        let options = options_of(&request, scene.sam().everything_options());
        let mut stopped = Ok(());
        let found = scene.everything_with(&options, &mut |_| {
            stopped = turn.give_way();
            if stopped.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        stopped?;
        let masks = found?.iter().map(|mask| form.automatic(mask)).collect::<Result<_, _>>()?;
        Ok(EverythingAnswer { masks, milliseconds: milliseconds_since(start) })
    });
    Ok(Json(answer.await?))
}

/// The forms in which masks are answered.
#[derive(Clone)]
pub(super) struct Form {
    outputs: Vec<Output>,
    simplify: f64,
}

impl Form {
    pub(super) fn new(outputs: &[Output], simplify: Option<f64>) -> Result<Self, Problem> {
        let simplify = tolerance(simplify)?.unwrap_or(0.0);
        Ok(Form { outputs: outputs.to_vec(), simplify })
    }

    fn has(&self, output: Output) -> bool {
        self.outputs.contains(&output)
    }

    fn answer(&self, segment: &Segment, score: f32) -> Result<MaskAnswer, Problem> {
        let summary = segment.summary(Threshold::default())?;
        let stability = Some(summary.stability()).filter(|value| value.is_finite());
        Ok(MaskAnswer { stability, ..self.mask(&summary.rle, score)? })
    }

    fn automatic(&self, mask: &AutoMask) -> Result<MaskAnswer, Problem> {
        let stability = Some(mask.stability_score).filter(|value| value.is_finite());
        Ok(MaskAnswer { stability, ..self.mask(&mask.rle, mask.predicted_iou)? })
    }

    /// A mask in the forms that were asked for.
    pub(super) fn mask(&self, rle: &Rle, score: f32) -> Result<MaskAnswer, Problem> {
        let needs_pixels = self.outputs.iter().any(|output| *output != Output::Rle);
        let pixels = needs_pixels.then(|| rle.to_mask()).transpose()?;
        let outlines = match &pixels {
            Some(mask) if self.has(Output::Polygons) || self.has(Output::Path) => {
                let found = polygons(mask).map_err(|error| Problem::Internal(error.to_string()))?;
                simplify(&found, self.simplify)
            }
            Some(_) | None => Vec::new(),
        };
        let png = pixels.filter(|_| self.has(Output::Png));
        let png = png.map(|mask| encode_mask(&mask, MaskDepth::Byte)).transpose()?;
        let rings = |polygon: &Polygon| polygon.rings().cloned().collect();
        Ok(MaskAnswer {
            mask_id: None,
            score,
            area: rle.area(),
            bbox: rle.coco_box(),
            stability: None,
            rle: self.has(Output::Rle).then(|| RunLengths::of(rle)),
            path: self.has(Output::Path).then(|| to_svg_path(&outlines)),
            polygons: self.has(Output::Polygons).then(|| outlines.iter().map(rings).collect()),
            png: png.map(|bytes| STANDARD.encode(bytes)),
        })
    }
}

impl RunLengths {
    /// The run lengths of a mask.
    pub(crate) fn of(rle: &Rle) -> Self {
        let size = rle.size();
        RunLengths { size: [size.height, size.width], counts: rle.to_coco_string() }
    }
}

/// A tolerance of outlines that was sent.
pub(super) fn tolerance(sent: Option<f64>) -> Result<Option<f64>, Problem> {
    match sent {
        Some(value) if !(0.0..=SIMPLIFY).contains(&value) => {
            Err(Problem::Invalid(format!("simplify is {value}; it goes from 0 to {SIMPLIFY}")))
        }
        Some(_) | None => Ok(sent),
    }
}

/// A prompt of points with labels and a box.
pub(crate) fn prompt_from(points: &[[f64; 3]], rect: Option<[f64; 4]>) -> Result<Prompt, Problem> {
    let mut prompt = Prompt::default();
    for [x, y, label] in points {
        prompt = prompt.with_point(Point { x: *x, y: *y }, label_of(*label)?);
    }
    Ok(rect.map_or(prompt.clone(), |rect| prompt.with_rect(rect_of(rect))))
}

fn prompt_of(request: &SegmentRequest, picture: &Picture) -> Result<Prompt, Problem> {
    let mut prompt = prompt_from(&request.points, request.rect)?;
    let kept = request.mask_id.as_ref().and_then(|name| picture.kept(name));
    let is_single = request.points.len() == 1 && request.rect.is_none() && kept.is_none();
    if let Some(logits) = kept {
        prompt = prompt.with_logits(logits);
    }
    let three = request.multimask.unwrap_or(is_single);
    Ok(prompt.candidates(if three { Candidates::Three } else { Candidates::One }))
}

fn label_of(label: f64) -> Result<Label, Problem> {
    match label {
        1.0 => Ok(Label::Positive),
        0.0 => Ok(Label::Negative),
        other => Err(Problem::Invalid(format!("the label of a point is 1 or 0, not {other}"))),
    }
}

fn rect_of([x0, y0, x1, y1]: [f64; 4]) -> Rect {
    Rect { x0, y0, x1, y1 }
}

/// The series that a preview belongs to.
pub(super) fn preview_of(hover: Option<&Hover>) -> Result<Option<Preview>, Problem> {
    let Some(hover) = hover else { return Ok(None) };
    if hover.client.is_empty() || hover.client.len() > CLIENT_NAME {
        return Err(Problem::Invalid(format!("hover.client has 1 to {CLIENT_NAME} bytes")));
    }
    Ok(Some(Preview { client: hover.client.clone(), sequence: hover.sequence }))
}

fn query_of(request: &FindRequest) -> Result<Find, Problem> {
    let mut find = Find::default();
    for phrase in &request.phrases {
        find = find.and(phrase);
    }
    for [x0, y0, x1, y1, label] in &request.boxes {
        find = find.with_rect(rect_of([*x0, *y0, *x1, *y1]), label_of(*label)?);
    }
    if let Some(threshold) = request.threshold {
        find = find.threshold(threshold as f32);
    }
    if let Some(overlap) = request.overlap {
        find = find.without_overlap(overlap as f32);
    }
    Ok(find)
}

fn options_of(request: &EverythingRequest, defaults: Everything) -> Everything {
    Everything {
        points_per_side: request.points_per_side.unwrap_or(defaults.points_per_side),
        pred_iou_thresh: request.pred_iou_thresh.unwrap_or(defaults.pred_iou_thresh),
        stability_score_thresh: request
            .stability_score_thresh
            .unwrap_or(defaults.stability_score_thresh),
        box_nms_thresh: request.box_nms_thresh.unwrap_or(defaults.box_nms_thresh),
        min_mask_region_area: request.min_mask_region_area.unwrap_or(defaults.min_mask_region_area),
        crop_n_layers: 0,
        ..defaults
    }
}
