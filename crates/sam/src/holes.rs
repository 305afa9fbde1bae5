//! Small holes in masks.

use cutout_imaging::{Connectivity, Mask, Size, connected_regions};

/// Gives regions of at most `area` pixels that are not above 0, in logits `[side, side]`, the logit `filled`. Regions hang
/// together over corners.
pub(crate) fn fill_holes(logits: &mut [f32], side: usize, area: usize, filled: f32) {
    if area == 0 {
        return;
    }
    let outside: Vec<bool> = logits.iter().map(|logit| *logit <= 0.0).collect();
    let Ok(outside) = Mask::from_pixels(Size::square(side), outside) else { return };
    let regions = connected_regions(&outside, true, Connectivity::Eight);
    for (logit, label) in logits.iter_mut().zip(&regions.labels) {
        if *label > 0 && regions.areas[*label as usize - 1] <= area {
            *logit = filled;
        }
    }
}
