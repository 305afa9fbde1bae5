//! The knobs of Meta's amg.py, under their names.

use anyhow::Result;
use clap::Args;
use cutout_sam::{Everything as Options, Family};

use crate::failure::Usage;

/// How masks are looked for and chosen. What is not given is what Meta uses with the model's family.
#[derive(Args)]
#[command(next_help_heading = "How masks are found")]
pub(super) struct Knobs {
    /// Points along one side of the picture: a grid of this many by this many (default 32)
    #[arg(long, value_name = "N")]
    points_per_side: Option<usize>,
    /// Points that are decoded together (default 64)
    #[arg(long, value_name = "N")]
    points_per_batch: Option<usize>,
    /// Leave out masks with a predicted IoU not above this (default 0.88; SAM 2 and 3: 0.8)
    #[arg(long, value_name = "IOU", allow_negative_numbers = true)]
    pred_iou_thresh: Option<f64>,
    /// Leave out masks that change more than this with the threshold (default 0.95)
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    stability_score_thresh: Option<f64>,
    /// How far the threshold is moved for that (default 1.0)
    #[arg(long, value_name = "LOGIT", allow_negative_numbers = true)]
    stability_score_offset: Option<f64>,
    /// Of two masks whose boxes overlap more than this, the better one stays (default 0.7)
    #[arg(long, value_name = "IOU", allow_negative_numbers = true)]
    box_nms_thresh: Option<f64>,
    /// Look at crops of the picture too: layer i has 2^i by 2^i of them (default 0)
    #[arg(long, value_name = "N")]
    crop_n_layers: Option<usize>,
    /// The same as --box-nms-thresh, between crops (default 0.7)
    #[arg(long, value_name = "IOU", allow_negative_numbers = true)]
    crop_nms_thresh: Option<f64>,
    /// How far crops overlap, as a share of the picture's shorter side (default 0.34)
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    crop_overlap_ratio: Option<f64>,
    /// Layer i of the crops has the grid divided by this to the power of i (default 1)
    #[arg(long, value_name = "N")]
    crop_n_points_downscale_factor: Option<usize>,
    /// Remove islands and holes of fewer pixels (default 0: leave them)
    #[arg(long, value_name = "PIXELS")]
    min_mask_region_area: Option<usize>,
    /// Feed every mask back to the decoder once before choosing
    #[arg(long)]
    use_m2m: bool,
}

impl Knobs {
    /// The options for a family, checked.
    pub(super) fn options(&self, family: Family) -> Result<Options> {
        let usual = Options::for_family(family);
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
