//! Requests and answers about clips.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::types::{Hover, MaskAnswer, Output, run_lengths};

/// How a clip is added. The body is a file (GIF, APNG, WebP, a zip archive of pictures, or a video where the server has
/// `ffmpeg`), or a form with such a file or with pictures in their order.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VideoQuery {
    /// The model that will answer; by default the first that tracks.
    #[serde(default)]
    pub(crate) model: Option<String>,
}

/// Points and a box that were sent for an object on a frame.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MarksAnswer {
    /// The frame, from 0.
    pub(crate) frame: usize,
    /// The object.
    pub(crate) object: u32,
    /// x, y and label of each point.
    pub(crate) points: Vec<[f64; 3]>,
    /// Left, top, right, bottom.
    #[serde(default, rename = "box", skip_serializing_if = "Option::is_none")]
    pub(crate) rect: Option<[f64; 4]>,
}

/// A clip that can be asked about.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VideoAnswer {
    /// Name in requests.
    pub(crate) video_id: String,
    /// The model that answers.
    pub(crate) model: String,
    /// Pixels from left to right.
    pub(crate) width: usize,
    /// Pixels from top to bottom.
    pub(crate) height: usize,
    /// Number of frames.
    pub(crate) frames: usize,
    /// Frames per second, if it is known.
    pub(crate) frame_rate: Option<f64>,
    /// The prompts so far.
    pub(crate) prompts: Vec<MarksAnswer>,
    /// The frames with masks.
    pub(crate) masked_frames: Vec<usize>,
    /// Whether objects are being tracked.
    pub(crate) tracking: bool,
    /// Seconds without a request after which the clip is forgotten.
    pub(crate) idle_seconds: u64,
}

/// Points and a box on one object of one frame. They replace those that were sent for it before.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VideoPromptRequest {
    /// The frame, from 0.
    pub(crate) frame: usize,
    /// Number of the object, 1 to 255; a new number is a new object.
    pub(crate) object: u32,
    /// x, y and label of each point, in pixels of the clip; label 1 on the object, 0 not on it.
    #[serde(default)]
    pub(crate) points: Vec<[f64; 3]>,
    /// Left, top, right, bottom, in pixels of the clip.
    #[serde(default, rename = "box")]
    pub(crate) rect: Option<[f64; 4]>,
    /// Whether answers to earlier prompts are forgotten. By default the mask is refined.
    #[serde(default)]
    pub(crate) anew: bool,
    /// The forms of the mask.
    #[serde(default = "run_lengths")]
    pub(crate) outputs: Vec<Output>,
    /// How far outlines may be from the edges of the pixels, in pixels.
    #[serde(default)]
    pub(crate) simplify: Option<f64>,
    /// Set for previews under the pointer: the mask that these marks would have, of which nothing is kept.
    #[serde(default)]
    pub(crate) hover: Option<Hover>,
}

/// One object on one frame.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ObjectAnswer {
    /// Number of the object.
    pub(crate) object: u32,
    /// Logit of the object being visible: it is hidden where this is not above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) object_score: Option<f32>,
    /// The phrase, for an object that was found by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) phrase: Option<String>,
    /// Its mask.
    #[serde(flatten)]
    pub(crate) mask: MaskAnswer,
}

/// The mask of a prompt.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VideoPromptAnswer {
    /// The frame.
    pub(crate) frame: usize,
    /// The object.
    pub(crate) mask: ObjectAnswer,
    /// Milliseconds on the model's thread.
    pub(crate) milliseconds: f64,
}

/// Which way objects are tracked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// To the end.
    #[default]
    Forward,
    /// To the beginning.
    Backward,
    /// To the end, then to the beginning.
    Both,
}

/// What is tracked. The answer is a stream of server-sent events: `started`, a `frame` for each frame as soon as it is
/// tracked, and `done`, `cancelled` or `error`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrackRequest {
    /// Which way.
    #[serde(default)]
    pub(crate) direction: Way,
    /// First frame; by default the first with a prompt, or where phrases are looked for the first, backward the last.
    #[serde(default)]
    pub(crate) start: Option<usize>,
    /// Stop after this many frames.
    #[serde(default)]
    pub(crate) max_frames: Option<usize>,
    /// Find and track every object of these phrases instead.
    #[serde(default)]
    pub(crate) phrases: Vec<String>,
    /// Least probability of an object of a phrase, 0 to 1.
    #[serde(default)]
    pub(crate) threshold: Option<f32>,
    /// The forms of the masks.
    #[serde(default = "run_lengths")]
    pub(crate) outputs: Vec<Output>,
    /// How far outlines may be from the edges of the pixels, in pixels.
    #[serde(default)]
    pub(crate) simplify: Option<f64>,
}

/// Event `started`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct TrackStarted {
    /// Number of frames that will be tracked.
    pub(crate) frames: usize,
}

/// Event `frame`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct TrackFrame {
    /// The frame.
    pub(crate) frame: usize,
    /// Number of frames that are done, with this one.
    pub(crate) done: usize,
    /// Number of frames that will be tracked.
    pub(crate) frames: usize,
    /// The objects on it.
    pub(crate) masks: Vec<ObjectAnswer>,
}

/// Events `done` and `cancelled`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct TrackEnd {
    /// Number of frames that were tracked.
    pub(crate) frames: usize,
}

/// Whether a run was told to stop.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CancelAnswer {
    /// False if there was none.
    pub(crate) cancelled: bool,
}

/// A file of the masks of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClipFormat {
    /// Zip archive of PNGs `00000.png`, … whose pixel values are the numbers of the objects, as in the DAVIS data set.
    Labels,
    /// A line of JSON for each frame, with COCO's run lengths.
    Jsonl,
    /// One JSON file in the layout of YouTube-VIS.
    Vis,
    /// Boxes as text in the layout of the MOT Challenge.
    Mot,
    /// The frames with the masks drawn over them, as GIF.
    Gif,
    /// The same as MP4, where the server has `ffmpeg`.
    Mp4,
    /// The same as WebM, where the server has `ffmpeg`.
    Webm,
    /// The same as zip archive of PNGs.
    Overlay,
}

/// A file to make.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClipExportRequest {
    /// The format.
    pub(crate) format: ClipFormat,
}
