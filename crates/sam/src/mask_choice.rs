//! Which of several masks is the answer, by their logits and predicted IoU.

/// A mask is stable if little changes when its threshold is moved this far from 0.
const STABILITY_OFFSET: f32 = 0.05;

/// Intersection over union of the masks at the two moved thresholds, from which on a mask is stable.
const STABILITY_THRESHOLD: f32 = 0.98;

/// How little a mask of low-resolution logits depends on its threshold: pixels above the raised one over pixels above
/// the lowered one, and 1 if there are none.
pub fn stability(logits: &[f32]) -> f32 {
    let above = |threshold: f32| logits.iter().filter(|&&logit| logit > threshold).count() as f32;
    let (inner, outer) = (above(STABILITY_OFFSET), above(-STABILITY_OFFSET));
    if outer > 0.0 { inner / outer } else { 1.0 }
}

/// Index of the largest predicted IoU, the first of equal ones.
pub fn best(iou: &[f32]) -> usize {
    let larger = |best: usize, index: usize| if iou[index] > iou[best] { index } else { best };
    (1..iou.len()).fold(0, larger)
}

/// SAM 2's choice when one mask is wanted: the first, which is meant for that, if it is stable; else the candidate with the
/// largest predicted IoU. `logits` and `iou` are one prompt's, for all mask tokens.
pub fn single_mask(logits: &[f32], iou: &[f32]) -> usize {
    let pixels = logits.len() / iou.len().max(1);
    if iou.len() < 2 || stability(&logits[..pixels]) >= STABILITY_THRESHOLD {
        0
    } else {
        1 + best(&iou[1..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stability_counts_pixels_between_the_thresholds() {
        assert_eq!(stability(&[1.0, 0.06, 0.04, -0.04, -0.06]), 0.5);
        assert_eq!(stability(&[-1.0, -0.05]), 1.0);
        assert_eq!(stability(&[0.05]), 0.0);
    }

    #[test]
    fn the_first_of_equal_ones_is_best() {
        assert_eq!(best(&[0.5, 0.7, 0.7, 0.1]), 1);
        assert_eq!(best(&[0.5]), 0);
    }
}
