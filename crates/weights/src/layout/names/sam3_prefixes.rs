//! Prefixes of the names in SAM 3's files.

use super::super::rules::{Rule, whole};

/// SAM 3's detector without its prefix, as in some of Meta's files, and the prefixes that files of SAM 3.1 had at first.
pub(in crate::layout) const META_DETECTOR: &[Rule] = &[
    whole("sam3_model.*", "detector.*"),
    whole("sam2_predictor.*", "tracker.*"),
    whole("backbone.*", "detector.backbone.*"),
    whole("geometry_encoder.*", "detector.geometry_encoder.*"),
    whole("transformer.*", "detector.transformer.*"),
    whole("segmentation_head.*", "detector.segmentation_head.*"),
    whole("dot_prod_scoring.*", "detector.dot_prod_scoring.*"),
];

/// Prefixes of a file with detector and tracker. The names are distinct without them. `transformers` writes the tracker's
/// prefix twice.
pub(in crate::layout) const BOTH: &[Rule] = &[
    whole("detector_model.*", "*"),
    whole("tracker_model.tracker_model.*", "*"),
    whole("tracker_model.*", "*"),
    whole("tracker_neck.*", "clicks.neck.*"),
];
