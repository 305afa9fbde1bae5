//! Removal of small holes and islands.

use cutout_imaging::{
    Candidate, ImageError, Rle, SmallRegions, non_maximum_suppression,
    remove_small_regions as remove,
};
use cutout_parallel::Pool;

use super::generate::{Reporter, pick};
use super::{AutoMask, Everything, EverythingError, Phase, PixelBox};
use crate::SegmentError;

/// Masks cleaned between two progress reports.
const AT_ONCE: usize = 64;

/// Fills small holes, clears small islands, and suppresses what has become a double; masks that needed no change are
/// preferred, and come first.
pub(super) fn remove_small_regions(
    mut masks: Vec<AutoMask>,
    options: &Everything,
    pool: &Pool,
    reporter: &mut Reporter<'_>,
) -> Result<Vec<AutoMask>, EverythingError> {
    let mut candidates: Vec<Candidate> = Vec::with_capacity(masks.len());
    let count = masks.len();
    for part in masks.chunks_mut(AT_ONCE) {
        reporter.report(Phase::Cleaning, count)?;
        let clean = |mask: &AutoMask| cleaned(&mask.rle, options.min_mask_region_area);
        let results = pool.map(part, clean);
        for (mask, result) in part.iter_mut().zip(results) {
            let result = result.map_err(SegmentError::from)?;
            let score = if result.is_some() { 0.0 } else { 1.0 };
            if let Some(rle) = result {
                mask.bbox = PixelBox::around(rle.bounds());
                mask.area = rle.area();
                mask.rle = rle;
            }
            candidates.push(Candidate { rect: mask.bbox.rect(), score, category: 0 });
        }
    }
    let threshold = options.box_nms_thresh.max(options.crop_nms_thresh);
    Ok(pick(masks, &non_maximum_suppression(&candidates, threshold)))
}

/// The mask without holes and islands of fewer than `area` pixels; `None` if it has none.
fn cleaned(rle: &Rle, area: usize) -> Result<Option<Rle>, ImageError> {
    let mut mask = rle.to_mask()?;
    let filled = remove(&mut mask, area, SmallRegions::Holes)?;
    let cleared = remove(&mut mask, area, SmallRegions::Islands)?;
    (filled || cleared).then(|| mask.to_rle()).transpose()
}
