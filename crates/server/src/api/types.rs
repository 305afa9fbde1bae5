//! Requests and answers of the API, declared once: parsed, written and described by these types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A form in which a mask is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Output {
    /// COCO's compressed run lengths.
    Rle,
    /// Rings of corners in pixels.
    Polygons,
    /// The `d` attribute of an SVG path, to be filled with the even-odd rule.
    Path,
    /// A PNG, white on black, in base64.
    Png,
}

/// Which forms of the masks are answered.
pub(super) fn run_lengths() -> Vec<Output> {
    vec![Output::Rle]
}

/// A request whose answer matters only as long as the client has sent no newer one.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hover {
    /// A name that the client makes up for itself, at most 64 characters.
    pub(crate) client: String,
    /// Grows with each request.
    pub(crate) sequence: u64,
}

/// Points and a box on one object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SegmentRequest {
    /// x, y and label of each point, in pixels of the picture; label 1 on the object, 0 not on it.
    #[serde(default)]
    pub(crate) points: Vec<[f64; 3]>,
    /// Left, top, right, bottom, in pixels of the picture.
    #[serde(default, rename = "box")]
    pub(crate) rect: Option<[f64; 4]>,
    /// An earlier answer to refine. Only the newest masks of a picture are kept; one that is not is ignored.
    #[serde(default)]
    pub(crate) mask_id: Option<String>,
    /// Whether three candidates are answered. By default for a single point alone.
    #[serde(default)]
    pub(crate) multimask: Option<bool>,
    /// The forms of the masks.
    #[serde(default = "run_lengths")]
    pub(crate) outputs: Vec<Output>,
    /// How far outlines may be from the edges of the pixels, in pixels.
    #[serde(default)]
    pub(crate) simplify: Option<f64>,
    /// Set for previews under the pointer.
    #[serde(default)]
    pub(crate) hover: Option<Hover>,
}

/// Phrases and exemplars.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FindRequest {
    /// What to find; each phrase is a query of its own.
    #[serde(default)]
    pub(crate) phrases: Vec<String>,
    /// Left, top, right, bottom and label of boxes around examples; label 1 like this, 0 unlike this.
    #[serde(default)]
    pub(crate) boxes: Vec<[f64; 5]>,
    /// Least score of an object, 0 to 1; by default 0.5.
    #[serde(default)]
    pub(crate) threshold: Option<f64>,
    /// Overlap from which the lower score of two objects of a phrase is dropped, 0 to 1.
    #[serde(default)]
    pub(crate) overlap: Option<f64>,
    /// The forms of the masks.
    #[serde(default = "run_lengths")]
    pub(crate) outputs: Vec<Output>,
    /// How far outlines may be from the edges of the pixels, in pixels.
    #[serde(default)]
    pub(crate) simplify: Option<f64>,
}

/// Options of automatic masks, with the names of Meta's `amg.py`. What is left out is the model's default.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EverythingRequest {
    /// Points along each side of the picture, at most 64.
    #[serde(default)]
    pub(crate) points_per_side: Option<usize>,
    /// Drops masks with a predicted IoU not above this.
    #[serde(default)]
    pub(crate) pred_iou_thresh: Option<f64>,
    /// Drops masks with a stability below this.
    #[serde(default)]
    pub(crate) stability_score_thresh: Option<f64>,
    /// Box IoU from which the worse of two masks is dropped.
    #[serde(default)]
    pub(crate) box_nms_thresh: Option<f64>,
    /// Holes and islands of fewer pixels are removed.
    #[serde(default)]
    pub(crate) min_mask_region_area: Option<usize>,
    /// The forms of the masks.
    #[serde(default = "run_lengths")]
    pub(crate) outputs: Vec<Output>,
    /// How far outlines may be from the edges of the pixels, in pixels.
    #[serde(default)]
    pub(crate) simplify: Option<f64>,
}

/// COCO's compressed run lengths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunLengths {
    /// Height, width.
    pub(crate) size: [usize; 2],
    /// The runs down the columns, as pycocotools writes them.
    pub(crate) counts: String,
}

/// One mask.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MaskAnswer {
    /// Name for `mask_id` of a later request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mask_id: Option<String>,
    /// Predicted IoU, or the confidence of an object found by phrase.
    pub(crate) score: f32,
    /// Pixels set.
    pub(crate) area: usize,
    /// Left, top, width, height.
    pub(crate) bbox: [f64; 4],
    /// Meta's stability score; missing for an empty mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stability: Option<f32>,
    /// The mask, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rle: Option<RunLengths>,
    /// Outlines with their holes, if asked for: polygons of rings of corners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) polygons: Option<Vec<Vec<Vec<[f64; 2]>>>>,
    /// An SVG path, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// A PNG in base64, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) png: Option<String>,
}

/// The masks of one prompt.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SegmentAnswer {
    /// One or three candidates, in the model's order.
    pub(crate) masks: Vec<MaskAnswer>,
    /// Index of the candidate with the highest score.
    pub(crate) best: usize,
    /// Milliseconds on the model's thread.
    pub(crate) milliseconds: f64,
}

/// The objects of one phrase.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PhraseAnswer {
    /// The phrase; null for exemplars without one.
    pub(crate) phrase: Option<String>,
    /// Probability that the picture has any such object.
    pub(crate) presence: f32,
    /// Highest score of all queries, whether or not it was high enough.
    pub(crate) best_score: f32,
    /// The objects, the best first.
    pub(crate) masks: Vec<MaskAnswer>,
}

/// The objects of all phrases.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FindAnswer {
    /// One entry for each phrase.
    pub(crate) phrases: Vec<PhraseAnswer>,
    /// Milliseconds on the model's thread.
    pub(crate) milliseconds: f64,
}

/// Every mask of a picture.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EverythingAnswer {
    /// The masks.
    pub(crate) masks: Vec<MaskAnswer>,
    /// Milliseconds on the model's thread.
    pub(crate) milliseconds: f64,
}

/// How a picture is added. The body of the request is the file: PNG, JPEG, WebP, BMP, TIFF or GIF.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImageQuery {
    /// The model that will answer; by default the first.
    #[serde(default)]
    pub(crate) model: Option<String>,
}

/// A picture that can be asked about.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ImageAnswer {
    /// SHA-256 of the model's name and the file, in hexadecimal.
    pub(crate) image_id: String,
    /// The model that answers.
    pub(crate) model: String,
    /// Pixels from left to right.
    pub(crate) width: usize,
    /// Pixels from top to bottom.
    pub(crate) height: usize,
    /// Whether the features are in memory.
    pub(crate) embedded: bool,
    /// Milliseconds that the features took now; 0 if they were in memory.
    pub(crate) embed_ms: f64,
    /// What is wrong with the file, if it could be shown only in part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) warning: Option<String>,
}

/// A file of masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// PNG, white where any object is.
    Mask,
    /// PNG whose pixel values are the numbers of the objects, from 1; at most 255 objects.
    Labels,
    /// PNG of the picture, transparent outside the objects.
    Cutout,
    /// PNG of the picture with the masks drawn over it.
    Overlay,
    /// SVG with a path for each object.
    Svg,
    /// COCO data set.
    Coco,
    /// GeoJSON feature collection in pixels, y down.
    Geojson,
}

/// An object of a file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportObject {
    /// Name, which becomes the category.
    #[serde(default)]
    pub(crate) name: String,
    /// The mask.
    pub(crate) rle: RunLengths,
    /// Score, if there is one.
    #[serde(default)]
    pub(crate) score: Option<f32>,
    /// Colour in SVG and overlays, `#rrggbb`.
    #[serde(default)]
    pub(crate) colour: Option<String>,
}

/// A file to make.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportRequest {
    /// The format.
    pub(crate) format: Format,
    /// Name of the picture inside the file.
    #[serde(default)]
    pub(crate) file_name: String,
    /// The objects.
    pub(crate) objects: Vec<ExportObject>,
    /// How far outlines may be from the edges of the pixels; COCO files then hold polygons.
    #[serde(default)]
    pub(crate) simplify: Option<f64>,
}

/// A model of the server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ModelAnswer {
    /// Name in requests.
    pub(crate) id: String,
    /// Name for people.
    pub(crate) title: String,
    /// Whether it finds objects by phrase.
    pub(crate) finds: bool,
    /// Whether it answers points and boxes.
    pub(crate) answers_clicks: bool,
    /// Whether it follows objects through a video.
    pub(crate) tracks: bool,
    /// Whether it is in memory.
    pub(crate) loaded: bool,
    /// The device it runs on, if it is in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    /// Bytes of its weights in memory, without the pages of mapped files.
    pub(crate) weight_bytes: usize,
}

/// The models of the server; the first answers requests that name none.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ModelsAnswer {
    /// The models.
    pub(crate) models: Vec<ModelAnswer>,
}

/// State of the server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct InfoAnswer {
    /// Version of the program.
    pub(crate) version: String,
    /// The models.
    pub(crate) models: Vec<ModelAnswer>,
    /// Pictures in memory.
    pub(crate) pictures: usize,
    /// Bytes of pictures and features.
    pub(crate) library_bytes: usize,
    /// Bytes that are kept at most.
    pub(crate) library_budget: usize,
    /// Clips on disk.
    pub(crate) clips: usize,
    /// Bytes of their frames.
    pub(crate) clip_bytes: u64,
    /// Clips that are kept at most.
    pub(crate) most_clips: usize,
    /// Most frames of a clip.
    pub(crate) clip_frames: usize,
    /// Whether videos are read, for which the server needs `ffmpeg`. Animations and archives always are.
    pub(crate) reads_videos: bool,
    /// Requests that wait for the model.
    pub(crate) waiting: usize,
    /// Requests that wait at most.
    pub(crate) queue: usize,
    /// Most bytes of a request.
    pub(crate) body_bytes: usize,
    /// Most pixels of a picture.
    pub(crate) pixels: u64,
}

/// That the server runs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HealthAnswer {
    /// `UP`.
    pub(crate) status: String,
    /// `cutout`.
    pub(crate) model_class: String,
    /// Models in memory.
    pub(crate) models_loaded: usize,
    /// Seconds since 1970.
    pub(crate) timestamp: f64,
}
