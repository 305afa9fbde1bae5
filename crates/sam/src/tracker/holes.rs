//! Small holes in masks.

/// The logit of a filled pixel: just inside.
const FILLED: f32 = 0.1;

/// Fills regions of at most `area` pixels that are not above 0, in logits `[side, side]`. Regions hang together over corners.
pub(super) fn fill_holes(mut logits: Vec<f32>, side: usize, area: usize) -> Vec<f32> {
    crate::holes::fill_holes(&mut logits, side, area, FILLED);
    logits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_holes_are_filled() {
        let mut logits = vec![1.0; 25];
        for place in [0, 6, 18] {
            logits[place] = -1.0;
        }
        assert_eq!(fill_holes(logits.clone(), 5, 0), logits);
        let filled = fill_holes(logits.clone(), 5, 1);
        // The first two touch at a corner.
        assert_eq!([filled[0], filled[6], filled[18]], [-1.0, -1.0, FILLED]);
        let filled = fill_holes(logits, 5, 2);
        assert_eq!([filled[0], filled[6], filled[18]], [FILLED; 3]);
    }
}
