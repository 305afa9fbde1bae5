//! The requests of annotation tools, each a thin module over the same core. No path of theirs collides with another's.

mod cvat;
mod label_studio;
mod roboflow;
mod x_anylabeling;

pub(crate) use cvat::LiveTracks;
pub(crate) use label_studio::LabelStudio;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cutout_imaging::{Point as Corner, Polygon, Rle, polygons, simplify};
use cutout_sam::{Candidates, Find, Label, Point, Prompt, Rect};
use serde_json::Value;

use crate::engine::Lane;
use crate::library::Picture;
use crate::problem::Problem;
use crate::requests::Reader;
use crate::server::{App, Shared};

/// The routes of all dialects.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/", post(cvat::call))
        .route("/api/functions", get(cvat::functions))
        .route("/api/functions/{name}", get(cvat::function))
        .route("/api/function_invocations", post(cvat::call))
        .route("/setup", post(label_studio::setup))
        .route("/predict", post(label_studio::predict))
        .route("/webhook", post(label_studio::webhook))
        .route("/v1/models", get(x_anylabeling::models))
        .route("/v1/predict", post(x_anylabeling::predict))
        .route("/v1/video/init", post(x_anylabeling::video::init))
        .route("/v1/video/prompt", post(x_anylabeling::video::prompt))
        .route("/v1/video/propagate/stream", post(x_anylabeling::video::stream))
        .route("/v1/video/cleanup/{id}", post(x_anylabeling::video::cleanup))
        .route("/sam/embed_image", post(roboflow::embed))
        .route("/sam/segment_image", post(roboflow::sam1::segment))
        .route("/sam2/embed_image", post(roboflow::embed))
        .route("/sam3/embed_image", post(roboflow::embed))
        .route("/sam2/segment_image", post(roboflow::segment))
        .route("/sam3/visual_segment", post(roboflow::segment))
        .route("/sam3/concept_segment", post(roboflow::find))
}

/// The parsers of all dialects.
pub(crate) fn readers() -> impl Iterator<Item = &'static Reader> {
    [cvat::READERS, label_studio::READERS, roboflow::READERS, x_anylabeling::READERS]
        .into_iter()
        .flatten()
}

/// Whether requests of a path send clips, which may be longer than pictures.
pub(crate) fn takes_clips(path: &str) -> bool {
    path == "/v1/video/init"
}

/// Whether requests of a path carry their token in the body, as `api_key`.
pub(crate) fn has_key_in_body(path: &str) -> bool {
    ["/sam/", "/sam2/", "/sam3/"].iter().any(|start| path.starts_with(start))
}

/// The token in a body.
pub(crate) fn key_in(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    body.get("api_key")?.as_str().map(str::to_owned)
}

/// A mask with its score.
struct Cut {
    rle: Rle,
    score: f32,
}

/// Points and a box on one object.
#[derive(Clone, Debug, Default)]
struct Asked {
    points: Vec<(Point, Label)>,
    rect: Option<Rect>,
}

impl Asked {
    fn add(&mut self, [x, y]: [f64; 2], is_positive: bool) {
        let label = if is_positive { Label::Positive } else { Label::Negative };
        self.points.push((Point { x, y }, label));
    }

    /// Three candidates for a single click, of which the best is answered.
    fn prompt(&self) -> Prompt {
        let is_ambiguous = self.points.len() == 1 && self.rect.is_none();
        let candidates = if is_ambiguous { Candidates::Three } else { Candidates::One };
        let mut prompt = Prompt::default().candidates(candidates);
        for (point, label) in &self.points {
            prompt = prompt.with_point(*point, *label);
        }
        if let Some(rect) = self.rect {
            prompt = prompt.with_rect(rect);
        }
        prompt
    }
}

/// The bytes of a picture in base64, with or without the front of a data URL.
fn base64_of(text: &str) -> Result<Vec<u8>, Problem> {
    let encoded = match text.strip_prefix("data:") {
        Some(rest) => rest.split_once(";base64,").map_or("", |(_, encoded)| encoded),
        None => text,
    };
    let wrong = |error| Problem::Invalid(format!("the picture is not base64: {error}"));
    STANDARD.decode(encoded.trim()).map_err(wrong)
}

/// A box from any two opposite corners.
fn rect_between(one: [f64; 2], other: [f64; 2]) -> Rect {
    Rect {
        x0: one[0].min(other[0]),
        y0: one[1].min(other[1]),
        x1: one[0].max(other[0]),
        y1: one[1].max(other[1]),
    }
}

impl Shared {
    /// The picture in base64, with or without the front of a data URL.
    async fn picture_in(&self, text: &str, model: Option<&str>) -> Result<Arc<Picture>, Problem> {
        self.add_picture(Bytes::from(base64_of(text)?), model).await
    }

    /// The best mask of each object.
    async fn cut(&self, picture: Arc<Picture>, asked: &[Asked]) -> Result<Vec<Cut>, Problem> {
        self.check_count("prompts", asked.iter().map(|asked| asked.points.len().max(1)).sum())?;
        let prompts: Vec<Prompt> = asked.iter().map(Asked::prompt).collect();
        self.with_scene(picture, Lane::Short, None, move |_, scene, _| {
            let mut cuts = Vec::new();
            for masks in scene.segment_all(&prompts)? {
                cuts.push(Cut { rle: masks.best().rle()?, score: masks.best().iou() });
            }
            Ok(cuts)
        })
        .await
    }

    /// The objects of each phrase.
    async fn find(&self, picture: Arc<Picture>, find: Find) -> Result<Vec<Found>, Problem> {
        self.with_scene(picture, Lane::Long, None, move |turn, scene, _| {
            let mut all = Vec::new();
            for raw in scene.raw_detections(&find)? {
                turn.give_way()?;
                let found = raw?.select(&find)?;
                let cut = |object: &cutout_sam::Detection| {
                    Ok(Cut { rle: object.rle()?, score: object.score() })
                };
                let objects = found.iter().map(cut).collect::<Result<_, Problem>>()?;
                all.push(Found { phrase: found.phrase().map(str::to_owned), objects });
            }
            Ok(all)
        })
        .await
    }

    /// The name of the first model that finds phrases.
    fn finder(&self) -> Result<String, Problem> {
        let found = self.models.iter().find(|entry| entry.source.finds);
        let none = "no model of this server finds phrases: start it with --model and a SAM 3";
        found.map(|entry| entry.source.id.clone()).ok_or_else(|| Problem::Invalid(none.to_owned()))
    }
}

/// The objects of a phrase.
struct Found {
    phrase: Option<String>,
    objects: Vec<Cut>,
}

/// The outlines of a mask.
fn outlines(rle: &Rle, tolerance: f64) -> Result<Vec<Polygon>, Problem> {
    let found = polygons(&rle.to_mask()?).map_err(|error| Problem::Internal(error.to_string()))?;
    Ok(simplify(&found, tolerance))
}

/// Twice the area of a ring.
fn twice_area(ring: &[Corner]) -> f64 {
    let next = ring.iter().cycle().skip(1);
    ring.iter().zip(next).map(|([x0, y0], [x1, y1])| x0 * y1 - x1 * y0).sum::<f64>().abs()
}

/// The largest outline of a mask, without its holes; empty for an empty mask.
fn largest_outline(outlines: &[Polygon]) -> &[Corner] {
    let area = |ring: &&[Corner]| twice_area(ring);
    let rings = outlines.iter().map(|polygon| &*polygon.outer);
    rings.max_by(|one, other| area(one).total_cmp(&area(other))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_outline_is_found() {
        let square = |side: f64| Polygon {
            outer: vec![[0.0, 0.0], [side, 0.0], [side, side], [0.0, side]],
            holes: Vec::new(),
        };
        let all = [square(1.0), square(3.0), square(2.0)];
        assert_eq!(largest_outline(&all), &*all[1].outer);
        assert!(largest_outline(&[]).is_empty());
    }
}
