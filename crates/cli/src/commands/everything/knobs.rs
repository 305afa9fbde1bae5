//! The options of Meta's amg.py, under the same names.

use anyhow::Result;
use clap::Args;
use cutout_sam::{Everything as Options, Sam};

use crate::failure::Usage;

/// Options of the mask generator. The defaults are those of Meta's code for the model's family, and for other models the
/// thresholds in their files.
#[derive(Args)]
#[command(next_help_heading = "Mask generator")]
pub(in crate::commands) struct Knobs {
    /// Points per side of the square grid of prompts (default 32)
    #[arg(long, value_name = "N")]
    points_per_side: Option<usize>,
    /// Points decoded in one batch (default 64)
    #[arg(long, value_name = "N")]
    points_per_batch: Option<usize>,
    /// Keep masks with a predicted IoU above this (default 0.88; SAM 2 and 3: 0.8; built-in model: 0.5)
    #[arg(long, value_name = "IOU", allow_negative_numbers = true)]
    pred_iou_thresh: Option<f64>,
    /// Keep masks with at least this stability score: the IoU of the masks at a raised and a lowered threshold (default
    /// 0.95; built-in model: 0.7)
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    stability_score_thresh: Option<f64>,
    /// Shift of the threshold for the stability score (default 1.0)
    #[arg(long, value_name = "LOGIT", allow_negative_numbers = true)]
    stability_score_offset: Option<f64>,
    /// IoU of two boxes above which the lower-scoring mask is dropped (default 0.7)
    #[arg(long, value_name = "IOU", allow_negative_numbers = true)]
    box_nms_thresh: Option<f64>,
    /// Also run on crops of the picture: layer i has 2^i by 2^i crops (default 0)
    #[arg(long, value_name = "N")]
    crop_n_layers: Option<usize>,
    /// Same as --box-nms-thresh, between crops (default 0.7)
    #[arg(long, value_name = "IOU", allow_negative_numbers = true)]
    crop_nms_thresh: Option<f64>,
    /// Overlap of crops, as a fraction of the picture's shorter side (default 0.34)
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    crop_overlap_ratio: Option<f64>,
    /// Crops of layer i use the points per side divided by this number to the power of i (default 1)
    #[arg(long, value_name = "N")]
    crop_n_points_downscale_factor: Option<usize>,
    /// Remove islands and fill holes of fewer pixels than this (default 0: keep all)
    #[arg(long, value_name = "PIXELS")]
    min_mask_region_area: Option<usize>,
    /// Refine every mask once by feeding it back to the decoder
    #[arg(long)]
    use_m2m: bool,
}

impl Knobs {
    /// The options for a model, checked.
    pub(in crate::commands) fn options(&self, sam: &Sam) -> Result<Options> {
        let usual = sam.everything_options();
        let options = Options {
            points_per_side: self.points_per_side.unwrap_or(usual.points_per_side),
            points_per_batch: self.points_per_batch.unwrap_or(usual.points_per_batch),
            pred_iou_thresh: self.pred_iou_thresh.unwrap_or(usual.pred_iou_thresh),
            stability_score_thresh: self
                .stability_score_thresh
                .unwrap_or(usual.stability_score_thresh),
            stability_score_offset: self
                .stability_score_offset
                .unwrap_or(usual.stability_score_offset),
            box_nms_thresh: self.box_nms_thresh.unwrap_or(usual.box_nms_thresh),
            crop_n_layers: self.crop_n_layers.unwrap_or(usual.crop_n_layers),
            crop_nms_thresh: self.crop_nms_thresh.unwrap_or(usual.crop_nms_thresh),
            crop_overlap_ratio: self.crop_overlap_ratio.unwrap_or(usual.crop_overlap_ratio),
            crop_n_points_downscale_factor: self
                .crop_n_points_downscale_factor
                .unwrap_or(usual.crop_n_points_downscale_factor),
            min_mask_region_area: self.min_mask_region_area.unwrap_or(usual.min_mask_region_area),
            use_m2m: self.use_m2m,
            ..usual
        };
        options.check().map_err(|error| Usage::error(error.to_string()))?;
        Ok(options)
    }
}
