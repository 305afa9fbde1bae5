//! What is found in a picture, as JSON. Names and forms are those of SA-1B's files and of COCO.

use std::path::Path;

use cutout_imaging::{Rle, Size, Threshold};
use cutout_sam::Segment;
use serde::Serialize;

/// One picture with its masks.
#[derive(Serialize)]
pub(crate) struct Document {
    pub(crate) image: Picture,
    pub(crate) model: String,
    /// The phrases that were looked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) categories: Vec<Category>,
    pub(crate) annotations: Vec<Annotation>,
}

/// A phrase, as COCO lists categories.
#[derive(Serialize)]
pub(crate) struct Category {
    /// From 1 on.
    pub(crate) id: usize,
    pub(crate) name: String,
}

/// What is known of an object that was found by phrase or exemplar.
#[derive(Serialize)]
pub(crate) struct Finding {
    /// Nothing where exemplars were all there was.
    pub(crate) phrase: Option<String>,
    pub(crate) category_id: usize,
    /// How sure the model is of this object, between 0 and 1.
    pub(crate) score: f32,
    /// How sure the model is that there is anything of the kind.
    pub(crate) presence: f32,
    /// The model's own box: left, top, width, height.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detected_bbox: Option<[f64; 4]>,
}

/// A picture.
#[derive(Serialize)]
pub(crate) struct Picture {
    file_name: String,
    width: usize,
    height: usize,
}

impl Picture {
    pub(crate) fn new(path: &Path, size: Size) -> Self {
        let file_name = path.display().to_string();
        Picture { file_name, width: size.width, height: size.height }
    }
}

/// A mask.
#[derive(Serialize)]
pub(crate) struct Annotation {
    /// From 0 on, in the order of the answer.
    id: usize,
    /// Which prompt it answers, from 0 on.
    prompt: usize,
    /// Whether it is the best answer to its prompt.
    best: bool,
    segmentation: Segmentation,
    area: usize,
    /// Left, top, width, height; zeros for an empty mask.
    bbox: [f64; 4],
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_iou: Option<f32>,
    stability_score: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_score: Option<f32>,
    #[serde(flatten)]
    finding: Option<Finding>,
}

/// COCO's compressed run lengths.
#[derive(Serialize)]
struct Segmentation {
    /// Height, width.
    size: [usize; 2],
    counts: String,
}

/// Where an annotation stands in the answer.
pub(crate) struct Place {
    pub(crate) id: usize,
    pub(crate) prompt: usize,
    pub(crate) best: bool,
}

impl Annotation {
    /// Whether it is the best answer to its prompt.
    pub(crate) fn is_best(&self) -> bool {
        self.best
    }

    /// The record of a mask, and its pixels.
    pub(crate) fn new(place: &Place, segment: &Segment, threshold: Threshold) -> (Self, Rle) {
        let summary = segment.summary(threshold);
        let stability = summary.stability();
        let Size { width, height } = segment.size();
        let annotation = Annotation {
            id: place.id,
            prompt: place.prompt,
            best: place.best,
            area: summary.area,
            bbox: summary.rle.coco_box(),
            predicted_iou: Some(segment.iou()),
            // A mask without a possible pixel has no stability; JSON has no NaN.
            stability_score: stability.is_finite().then_some(stability),
            object_score: segment.object_score(),
            finding: None,
            segmentation: Segmentation {
                size: [height, width],
                counts: summary.rle.to_coco_string(),
            },
        };
        (annotation, summary.rle)
    }

    /// The record of an object that was found, and its pixels.
    pub(crate) fn found(
        place: &Place,
        segment: &Segment,
        threshold: Threshold,
        finding: Finding,
    ) -> (Self, Rle) {
        let (annotation, rle) = Annotation::new(place, segment, threshold);
        (Annotation { predicted_iou: None, finding: Some(finding), ..annotation }, rle)
    }
}
