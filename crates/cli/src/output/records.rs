//! Masks of a picture as a COCO data set, with additional fields of SA-1B.

use std::path::Path;

use cutout_imaging::{ImageError, Polygon, Rle, Size, Threshold};
use cutout_sam::Segment;
use serde::Serialize;

use super::outlines::outlines;

/// A data set of one picture.
#[derive(Serialize)]
pub(crate) struct Document {
    pub(crate) info: Info,
    pub(crate) images: [Picture; 1],
    /// The phrases of the query; one category if there are none.
    pub(crate) categories: Vec<Category>,
    pub(crate) annotations: Vec<Annotation>,
}

/// Where the data comes from.
#[derive(Serialize)]
pub(crate) struct Info {
    /// The model.
    pub(crate) description: String,
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
    id: usize,
    file_name: String,
    width: usize,
    height: usize,
}

impl Picture {
    /// The picture with this number, counted from 1.
    pub(crate) fn new(id: usize, path: &Path, size: Size) -> Self {
        let file_name = path.display().to_string();
        Picture { id, file_name, width: size.width, height: size.height }
    }
}

impl Category {
    /// The category of masks that have no phrase.
    pub(crate) fn of_any_object() -> Self {
        Category { id: 1, name: "object".to_owned() }
    }
}

/// The record of one mask.
#[derive(Serialize)]
pub(crate) struct Annotation {
    /// Counted from 1 over all masks: pycocotools takes 0 for no mask.
    id: usize,
    image_id: usize,
    category_id: usize,
    /// Always 0: one object.
    iscrowd: u8,
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

/// A mask in COCO's formats.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Segmentation {
    /// Compressed run lengths.
    Runs {
        /// Height, width.
        size: [usize; 2],
        counts: String,
    },
    /// A ring for each part of the mask: x, y, x, y, …
    Polygons(Vec<Vec<f64>>),
}

impl Segmentation {
    /// Run lengths, or outlines with this tolerance. An empty mask has no outline.
    pub(crate) fn of(rle: &Rle, simplify: Option<f64>) -> Result<Self, ImageError> {
        let outlines = simplify.map(|tolerance| outlines(rle, Some(tolerance))).transpose()?;
        Ok(match outlines.filter(|outlines| !outlines.is_empty()) {
            Some(outlines) => {
                Segmentation::Polygons(outlines.iter().map(Polygon::to_coco).collect())
            }
            None => {
                let Size { width, height } = rle.size();
                Segmentation::Runs { size: [height, width], counts: rle.to_coco_string() }
            }
        })
    }
}

/// Number, prompt, rank and form of an annotation.
pub(crate) struct MaskIndex {
    /// Counted from 0.
    pub(crate) index: usize,
    pub(crate) prompt: usize,
    pub(crate) best: bool,
    pub(crate) category_id: usize,
    /// Tolerance of simplified outlines in pixels; `None` writes the mask as run lengths.
    pub(crate) simplify: Option<f64>,
}

impl Annotation {
    /// Whether it is the best candidate of its prompt.
    pub(crate) fn is_best(&self) -> bool {
        self.best
    }

    /// The category, counted from 1.
    pub(crate) fn category_id(&self) -> usize {
        self.category_id
    }

    /// The record of a mask, and its pixels.
    pub(crate) fn new(
        index: &MaskIndex,
        segment: &Segment,
        threshold: Threshold,
    ) -> Result<(Self, Rle), ImageError> {
        let summary = segment.summary(threshold)?;
        let stability = summary.stability();
        let annotation = Annotation {
            id: index.index + 1,
            image_id: 1,
            category_id: index.category_id,
            iscrowd: 0,
            prompt: index.prompt,
            best: index.best,
            area: summary.area,
            bbox: summary.rle.coco_box(),
            predicted_iou: Some(segment.iou()),
            // The stability of an empty mask is NaN, which JSON cannot hold.
            stability_score: stability.is_finite().then_some(stability),
            object_score: segment.object_score(),
            finding: None,
            segmentation: Segmentation::of(&summary.rle, index.simplify)?,
        };
        Ok((annotation, summary.rle))
    }

    /// The record of an object that was found, and its pixels.
    pub(crate) fn found(
        index: &MaskIndex,
        segment: &Segment,
        threshold: Threshold,
        finding: Finding,
    ) -> Result<(Self, Rle), ImageError> {
        let (annotation, rle) = Annotation::new(index, segment, threshold)?;
        Ok((Annotation { predicted_iou: None, finding: Some(finding), ..annotation }, rle))
    }
}
