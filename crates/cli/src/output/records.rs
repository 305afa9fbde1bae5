//! Masks of a picture as JSON, with the field names of SA-1B and COCO.

use std::path::Path;

use cutout_imaging::{Rle, Size, Threshold};
use cutout_sam::Segment;
use serde::Serialize;

/// One picture with its masks.
#[derive(Serialize)]
pub(crate) struct Document {
    pub(crate) image: Picture,
    pub(crate) model: String,
    /// The phrases of the query.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) categories: Vec<Category>,
    pub(crate) annotations: Vec<Annotation>,
}

/// A phrase, as COCO lists categories.
#[derive(Serialize)]
pub(crate) struct Category {
    /// Counted from 1.
    pub(crate) id: usize,
    pub(crate) name: String,
}

/// Extra fields of an object found by phrase or exemplar.
#[derive(Serialize)]
pub(crate) struct Finding {
    /// `None` for exemplars without a phrase.
    pub(crate) phrase: Option<String>,
    pub(crate) category_id: usize,
    /// The model's confidence in this object, 0 to 1.
    pub(crate) score: f32,
    /// The model's confidence that the picture contains any such object, 0 to 1.
    pub(crate) presence: f32,
    /// The box predicted by the model: left, top, width, height.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detected_bbox: Option<[f64; 4]>,
}

/// Name and size of a picture.
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

/// The record of one mask.
#[derive(Serialize)]
pub(crate) struct Annotation {
    /// Counted from 0 over all masks.
    id: usize,
    /// Index of the prompt or phrase, counted from 0.
    prompt: usize,
    /// Whether it is the best candidate of its prompt.
    best: bool,
    segmentation: Segmentation,
    area: usize,
    /// Left, top, width, height; all 0 for an empty mask.
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

/// Identifier, prompt and rank of an annotation.
pub(crate) struct MaskIndex {
    pub(crate) id: usize,
    pub(crate) prompt: usize,
    pub(crate) best: bool,
}

impl Annotation {
    /// Whether it is the best candidate of its prompt.
    pub(crate) fn is_best(&self) -> bool {
        self.best
    }

    /// The record of a mask, and its pixels.
    pub(crate) fn new(index: &MaskIndex, segment: &Segment, threshold: Threshold) -> (Self, Rle) {
        let summary = segment.summary(threshold);
        let stability = summary.stability();
        let Size { width, height } = segment.size();
        let annotation = Annotation {
            id: index.id,
            prompt: index.prompt,
            best: index.best,
            area: summary.area,
            bbox: summary.rle.coco_box(),
            predicted_iou: Some(segment.iou()),
            // The stability of an empty mask is NaN, which JSON cannot hold.
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
        index: &MaskIndex,
        segment: &Segment,
        threshold: Threshold,
        finding: Finding,
    ) -> (Self, Rle) {
        let (annotation, rle) = Annotation::new(index, segment, threshold);
        (Annotation { predicted_iou: None, finding: Some(finding), ..annotation }, rle)
    }
}
