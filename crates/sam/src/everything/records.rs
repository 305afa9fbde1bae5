//! Automatic masks in the form that Meta's `amg.py` writes.

use serde::Serialize;

use super::AutoMask;
use crate::prompt::Point;

/// How runs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RleForm {
    /// As pycocotools' compressed string, which `amg.py` writes.
    #[default]
    Compressed,
    /// As a list of run lengths.
    Counts,
}

/// A mask for a JSON file; `amg.py` writes a list of these.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MaskRecord {
    /// The mask.
    pub segmentation: RleRecord,
    /// Pixels set.
    pub area: usize,
    /// Left, top, width, height.
    pub bbox: [usize; 4],
    /// IoU predicted by the model.
    pub predicted_iou: f64,
    /// The point prompt, (x, y).
    pub point_coords: [[f64; 2]; 1],
    /// Stability of the mask; null in JSON if it is NaN.
    pub stability_score: f64,
    /// The crop that the mask was found in: left, top, width, height.
    pub crop_box: [usize; 4],
}

/// Run lengths as COCO has them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RleRecord {
    /// Height, width.
    pub size: [usize; 2],
    /// The runs, down the columns.
    pub counts: RleCounts,
}

/// Runs in one of the two forms.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RleCounts {
    /// pycocotools' compressed string.
    Compressed(String),
    /// Unset, set, unset, …
    Counts(Vec<u32>),
}

impl AutoMask {
    /// The mask for a JSON file.
    pub fn record(&self, form: RleForm) -> MaskRecord {
        let counts = match form {
            RleForm::Compressed => RleCounts::Compressed(self.rle.to_coco_string()),
            RleForm::Counts => RleCounts::Counts(self.rle.counts().to_vec()),
        };
        let size = self.rle.size();
        MaskRecord {
            segmentation: RleRecord { size: [size.height, size.width], counts },
            area: self.area,
            bbox: self.bbox.xywh(),
            predicted_iou: self.predicted_iou.into(),
            point_coords: [[self.point_coords.x, self.point_coords.y]],
            stability_score: self.stability_score.into(),
            crop_box: self.crop_box.xywh(),
        }
    }
}

const HEADER: &str = "id,area,bbox_x0,bbox_y0,bbox_w,bbox_h,point_input_x,point_input_y,predicted_iou,\
                      stability_score,crop_box_x0,crop_box_y0,crop_box_w,crop_box_h";

/// The `metadata.csv` of `0.png`, `1.png`, …: one line per mask, in order.
pub fn metadata_csv(masks: &[AutoMask]) -> String {
    let mut table = HEADER.to_owned();
    for (id, mask) in masks.iter().enumerate() {
        let whole = |values: [usize; 4]| values.map(|value| value.to_string()).join(",");
        let (bbox, crop) = (whole(mask.bbox.xywh()), whole(mask.crop_box.xywh()));
        let Point { x, y } = mask.point_coords;
        let (iou, stability) = (f64::from(mask.predicted_iou), f64::from(mask.stability_score));
        // `:?` writes 5.0 where `Display` writes 5; so does Python.
        let line = format!("\n{id},{},{bbox},{x:?},{y:?},{iou:?},{stability:?},{crop}", mask.area);
        table.push_str(&line);
    }
    table
}
