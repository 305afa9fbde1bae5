//! Options with Meta's names and defaults.

use cutout_imaging::Size;
use cutout_weights::layout::{Family, Identity};
use cutout_weights::{Checkpoint, Metadata, MetadataValue};

use super::grid::Grid;
use crate::model::load::{ConfigError, OpenError};

/// Most layers of crops. Layer 8 alone has 65 536 crops to embed.
const MAX_CROP_LAYERS: usize = 8;
/// Most points along a side: a million in all, each of which is decoded.
const MAX_POINTS_PER_SIDE: usize = 1024;

/// Options of the mask generator. Names, meanings and defaults are those of Meta's `amg.py`.
#[derive(Clone, Debug, PartialEq)]
pub struct Everything {
    /// Points along each side of the picture, so that there are as many squared.
    pub points_per_side: usize,
    /// Points decoded at once at most. The decoder may use smaller batches; masks do not depend on it.
    pub points_per_batch: usize,
    /// Drops masks with a predicted IoU not above this; 0 or less keeps all.
    pub pred_iou_thresh: f64,
    /// Drops masks with a stability below this; 0 or less keeps all.
    pub stability_score_thresh: f64,
    /// How far the threshold is moved, both ways, to see how stable a mask is.
    pub stability_score_offset: f64,
    /// Box IoU threshold of non-maximum suppression within a crop; the higher predicted IoU wins.
    pub box_nms_thresh: f64,
    /// Layers of crops: the first has 2×2, the second 4×4, each embedded and searched like the picture.
    pub crop_n_layers: usize,
    /// Box IoU threshold of non-maximum suppression across crops; the smaller crop wins.
    pub crop_nms_thresh: f64,
    /// By how much the crops of the first layer overlap, as part of the picture's short side; half as much in each
    /// further layer.
    pub crop_overlap_ratio: f64,
    /// Divisor of the points along a side for each further layer.
    pub crop_n_points_downscale_factor: usize,
    /// Points to use in place of a grid, from 0 to 1 as (x, y), for the picture and for each layer of crops.
    pub point_grids: Option<Vec<Vec<[f64; 2]>>>,
    /// Holes and islands of fewer pixels are removed; 0 leaves masks as they are.
    pub min_mask_region_area: usize,
    /// Every mask is fed back to the decoder with its point, and the single refined mask replaces it before filtering.
    /// Meta has this for SAM 2; it costs three further decodings for each point.
    pub use_m2m: bool,
}

impl Default for Everything {
    /// Meta's defaults for SAM 1.
    fn default() -> Self {
        Everything {
            points_per_side: 32,
            points_per_batch: 64,
            pred_iou_thresh: 0.88,
            stability_score_thresh: 0.95,
            stability_score_offset: 1.0,
            box_nms_thresh: 0.7,
            crop_n_layers: 0,
            crop_nms_thresh: 0.7,
            crop_overlap_ratio: 512.0 / 1500.0,
            crop_n_points_downscale_factor: 1,
            point_grids: None,
            min_mask_region_area: 0,
            use_m2m: false,
        }
    }
}

impl Everything {
    /// Meta's defaults for a family. SAM 3, for which Meta has no generator, uses those of SAM 2: the decoder is the
    /// same.
    pub fn for_family(family: Family) -> Self {
        match family {
            Family::Sam1 => Everything::default(),
            Family::Sam2 | Family::Sam2_1 | Family::Sam2Image | Family::Sam3 | Family::Sam3_1 => {
                Everything { pred_iou_thresh: 0.8, ..Everything::default() }
            }
        }
    }

    /// Checks all that does not depend on the picture.
    pub fn check(&self) -> Result<(), EverythingOptionError> {
        for (option, value) in [
            ("points_per_batch", self.points_per_batch),
            ("crop_n_points_downscale_factor", self.crop_n_points_downscale_factor),
        ] {
            if value == 0 {
                return Err(EverythingOptionError::Zero { option });
            }
        }
        const ANY: f64 = f64::MAX;
        for (option, found, least, most) in [
            ("pred_iou_thresh", self.pred_iou_thresh, -ANY, ANY),
            ("stability_score_thresh", self.stability_score_thresh, -ANY, ANY),
            ("stability_score_offset", self.stability_score_offset, 0.0, ANY),
            ("box_nms_thresh", self.box_nms_thresh, 0.0, 1.0),
            ("crop_nms_thresh", self.crop_nms_thresh, 0.0, 1.0),
            ("crop_overlap_ratio", self.crop_overlap_ratio, 0.0, 1.0),
        ] {
            if !(least..=most).contains(&found) {
                return Err(EverythingOptionError::Outside { option, found, least, most });
            }
        }
        if self.crop_n_layers > MAX_CROP_LAYERS {
            let (found, most) = (self.crop_n_layers, MAX_CROP_LAYERS);
            return Err(EverythingOptionError::TooManyLayers { found, most });
        }
        self.grids().map(drop)
    }

    /// The points of the picture and of each layer of crops.
    pub(super) fn grids(&self) -> Result<Vec<Grid<'_>>, EverythingOptionError> {
        (0..=self.crop_n_layers).map(|layer| self.grid(layer)).collect()
    }

    fn grid(&self, layer: usize) -> Result<Grid<'_>, EverythingOptionError> {
        let Some(grids) = &self.point_grids else {
            let side = self.points_per_side_of(layer);
            return match side {
                0 if layer == 0 => Err(EverythingOptionError::Zero { option: "points_per_side" }),
                0 => Err(EverythingOptionError::NoPoints { layer }),
                1..=MAX_POINTS_PER_SIDE => Ok(Grid::Even { side }),
                _ => Err(EverythingOptionError::TooManyPoints { points_per_side: side }),
            };
        };
        let Some(points) = grids.get(layer) else {
            return Err(EverythingOptionError::MissingGrid { layer, grids: grids.len() });
        };
        if points.is_empty() {
            return Err(EverythingOptionError::NoPoints { layer });
        }
        let outside = |point: &&[f64; 2]| point.iter().any(|place| !(0.0..=1.0).contains(place));
        match points.iter().find(outside) {
            Some(&point) => Err(EverythingOptionError::PointOutside { layer, point }),
            None => Ok(Grid::Given(points)),
        }
    }

    fn points_per_side_of(&self, layer: usize) -> usize {
        let layer = u32::try_from(layer).unwrap_or(u32::MAX);
        // An overflowing divisor leaves no point.
        let divisor = self.crop_n_points_downscale_factor.checked_pow(layer);
        divisor.map_or(0, |divisor| self.points_per_side / divisor)
    }
}

/// What is wrong with the options.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum EverythingOptionError {
    /// A number that counts something is 0.
    #[error("{option} is 0; it must be at least 1")]
    Zero {
        /// Name of the option.
        option: &'static str,
    },
    /// A number is not in its range, or is none.
    #[error("{option} is {found}; it must be {}", range(*least, *most))]
    Outside {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        found: f64,
        /// The least that is allowed.
        least: f64,
        /// The most that is allowed.
        most: f64,
    },
    /// Too many layers of crops.
    #[error(
        "crop_n_layers is {found}, the most is {most}: each layer has four times as many crops"
    )]
    TooManyLayers {
        /// Layers asked for.
        found: usize,
        /// The most there can be.
        most: usize,
    },
    /// More points than a grid may have.
    #[error("points_per_side is {points_per_side}; at most {MAX_POINTS_PER_SIDE} are allowed")]
    TooManyPoints {
        /// Points along a side.
        points_per_side: usize,
    },
    /// A layer without points.
    #[error(
        "no points are left for crop layer {layer}: more points_per_side, a smaller \
         crop_n_points_downscale_factor, or points in its point_grids"
    )]
    NoPoints {
        /// The layer; 0 is the picture.
        layer: usize,
    },
    /// Fewer grids than layers.
    #[error("point_grids has {grids} grids, none for crop layer {layer}")]
    MissingGrid {
        /// The layer; 0 is the picture.
        layer: usize,
        /// Grids there are.
        grids: usize,
    },
    /// A point outside the picture.
    #[error("point ({}, {}) of point_grids {layer} is not between 0 and 1", point[0], point[1])]
    PointOutside {
        /// The layer; 0 is the picture.
        layer: usize,
        /// The point.
        point: [f64; 2],
    },
    /// A picture with too few pixels to be cut up that often.
    #[error("{size} are too few for the crops of layer {layer}: some would have no pixels")]
    CropsTooSmall {
        /// The layer.
        layer: usize,
        /// Size of the picture.
        size: Size,
    },
}

/// A range as text.
fn range(least: f64, most: f64) -> String {
    match (least > -f64::MAX, most < f64::MAX) {
        (false, false) => "a number".to_owned(),
        (true, false) => format!("a number and at least {least}"),
        (false, true) => format!("a number and at most {most}"),
        (true, true) => format!("between {least} and {most}"),
    }
}

/// Keys of the metadata of a checkpoint with the thresholds that suit its model.
const PRED_IOU_THRESH: &str = "everything.pred_iou_thresh";
const STABILITY_SCORE_THRESH: &str = "everything.stability_score_thresh";

impl Everything {
    /// The defaults for the model in a file.
    pub(crate) fn for_checkpoint(
        checkpoint: &Checkpoint,
        identity: Identity,
    ) -> Result<Self, OpenError> {
        let options = Everything::for_model(identity.family, checkpoint.metadata());
        options.map_err(|error| OpenError::Config {
            file: checkpoint.file().to_owned(),
            identity,
            error,
        })
    }

    /// The defaults for a model: those in the metadata of its file, else those of its family.
    fn for_model(family: Family, metadata: &Metadata) -> Result<Self, ConfigError> {
        let mut options = Everything::for_family(family);
        if let Some(found) = threshold(metadata, PRED_IOU_THRESH)? {
            options.pred_iou_thresh = found;
        }
        if let Some(found) = threshold(metadata, STABILITY_SCORE_THRESH)? {
            options.stability_score_thresh = found;
        }
        Ok(options)
    }
}

fn threshold(metadata: &Metadata, key: &'static str) -> Result<Option<f64>, ConfigError> {
    let Some(value) = metadata.get(key) else { return Ok(None) };
    let number = match value {
        MetadataValue::Float(number) => Some(*number),
        MetadataValue::Text(text) => text.parse().ok(),
        MetadataValue::Unsigned(_)
        | MetadataValue::Signed(_)
        | MetadataValue::Bool(_)
        | MetadataValue::List(_) => None,
    };
    match number.filter(|number| (0.0..=1.0).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => {
            let reason = format!("expected a number from 0 to 1, the file has {value}");
            Err(ConfigError::Metadata { key, reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of the defaults with one change.
    fn error(change: impl FnOnce(&mut Everything)) -> EverythingOptionError {
        let mut options = Everything::default();
        change(&mut options);
        options.check().unwrap_err()
    }

    #[test]
    fn defaults_are_those_of_meta() {
        let sam1 = Everything::for_family(Family::Sam1);
        assert_eq!(sam1, Everything::default());
        assert_eq!((sam1.points_per_side, sam1.points_per_batch), (32, 64));
        assert_eq!((sam1.pred_iou_thresh, sam1.stability_score_thresh), (0.88, 0.95));
        let sam2 = Everything::for_family(Family::Sam2_1);
        assert_eq!((sam2.pred_iou_thresh, sam2.stability_score_thresh), (0.8, 0.95));
        sam1.check().unwrap();
        sam2.check().unwrap();
    }

    #[test]
    fn wrong_numbers_are_errors_that_name_the_option() {
        type Change = fn(&mut Everything);
        let cases: [(Change, &str); 13] = [
            (|o| o.points_per_side = 0, "points_per_side is 0; it must be at least 1"),
            (|o| o.points_per_batch = 0, "points_per_batch is 0; it must be at least 1"),
            (|o| o.crop_n_points_downscale_factor = 0, "crop_n_points_downscale_factor is 0"),
            (|o| o.pred_iou_thresh = f64::NAN, "pred_iou_thresh is NaN; it must be a number"),
            (|o| o.stability_score_thresh = f64::INFINITY, "stability_score_thresh is inf"),
            (|o| o.stability_score_offset = -0.1, "stability_score_offset is -0.1; it must be a"),
            (|o| o.box_nms_thresh = 1.1, "box_nms_thresh is 1.1; it must be between 0 and 1"),
            (|o| o.crop_nms_thresh = f64::NAN, "crop_nms_thresh is NaN"),
            (|o| o.crop_overlap_ratio = 1.5, "crop_overlap_ratio is 1.5; it must be between"),
            (|o| o.crop_n_layers = 9, "crop_n_layers is 9, the most is 8"),
            (|o| o.points_per_side = usize::MAX, "points_per_side is 18446744073709551615"),
            (|o| o.points_per_side = 1025, "points_per_side is 1025; at most 1024 are allowed"),
            (
                |o| (o.crop_n_layers, o.crop_n_points_downscale_factor) = (3, 4),
                "no points are left",
            ),
        ];
        for (change, message) in cases {
            let found = error(change).to_string();
            assert!(found.starts_with(message), "{found}");
        }
    }

    #[test]
    fn given_grids_are_checked() {
        let half = vec![[0.5, 0.5]];
        let grids = |grids: Vec<Vec<[f64; 2]>>, layers| {
            error(|o| (o.point_grids, o.crop_n_layers) = (Some(grids), layers))
        };
        assert_eq!(
            grids(vec![half.clone()], 1),
            EverythingOptionError::MissingGrid { layer: 1, grids: 1 }
        );
        assert_eq!(
            grids(vec![half.clone(), vec![]], 1),
            EverythingOptionError::NoPoints { layer: 1 }
        );
        for point in [[0.5, 1.01], [-0.01, 0.5]] {
            let found = grids(vec![half.clone(), vec![[0.0, 1.0], point]], 1);
            assert_eq!(found, EverythingOptionError::PointOutside { layer: 1, point });
        }
        let not_a_number = grids(vec![vec![[f64::NAN, 0.5]]], 0);
        assert!(matches!(not_a_number, EverythingOptionError::PointOutside { .. }));
        let options =
            Everything { points_per_side: 0, point_grids: Some(vec![half]), ..Default::default() };
        assert!(options.check().is_ok(), "given points need no points_per_side");
    }

    #[test]
    fn a_file_brings_its_thresholds() {
        let text = |value: &str| MetadataValue::Text(value.to_owned());
        let of = |key: &str, value| {
            Everything::for_model(Family::Sam2_1, &Metadata::from([(key.to_owned(), value)]))
        };
        assert_eq!(of("other", text("x")).unwrap(), Everything::for_family(Family::Sam2_1));
        assert_eq!(of(PRED_IOU_THRESH, text("0.5")).unwrap().pred_iou_thresh, 0.5);
        let stability = of(STABILITY_SCORE_THRESH, MetadataValue::Float(0.25)).unwrap();
        assert_eq!(stability.stability_score_thresh, 0.25);
        for wrong in ["NaN", "-1", "2", "", "x"] {
            let error = of(PRED_IOU_THRESH, text(wrong)).unwrap_err().to_string();
            assert!(error.starts_with(PRED_IOU_THRESH), "{error}");
        }
    }
}
