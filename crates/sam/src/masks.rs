//! The masks of one prompt, from logits to pixels.

use std::sync::Arc;

use cutout_imaging::{
    Connectivity, ImageError, Mask, RegionRuns, Rle, Size, Summary, Threshold, Upsampler,
    runs_above_zero, summarize,
};
use cutout_tensor::{OutOfMemory, Tensor, TensorError, memory};

/// The masks of one prompt, in the model's order. Never empty.
#[derive(Clone)]
pub struct Masks {
    pub(crate) candidates: Vec<Segment>,
}

impl Masks {
    /// The mask with the highest predicted IoU; the first of equals.
    pub fn best(&self) -> &Segment {
        &self.candidates[self.best_index()]
    }

    /// Index of [`Masks::best`].
    pub fn best_index(&self) -> usize {
        let mut best = 0;
        for (index, candidate) in self.candidates.iter().enumerate() {
            if candidate.iou > self.candidates[best].iou {
                best = index;
            }
        }
        best
    }

    /// Number of masks.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.candidates.len()
    }

    /// The masks in the model's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Segment> {
        self.candidates.iter()
    }
}

/// One mask: low-resolution logits with the upsampler to the size of the picture.
#[derive(Clone)]
pub struct Segment {
    /// Logits that the mask is computed from.
    pub(crate) logits: Tensor,
    /// The logits in the form of a mask prompt: SAM 2 and 3 clamp them.
    pub(crate) feedback: Tensor,
    pub(crate) iou: f32,
    pub(crate) object_score: Option<f32>,
    pub(crate) upsampler: Arc<Upsampler>,
}

impl Segment {
    /// Low-resolution logits `f32[side, side]`: what [`crate::Prompt::with_logits`] takes to refine this mask.
    #[expect(
        clippy::misnamed_getters,
        reason = "the logits given out are those accepted as a prompt"
    )]
    pub fn logits(&self) -> &Tensor {
        &self.feedback
    }

    /// IoU predicted by the model.
    pub fn iou(&self) -> f32 {
        self.iou
    }

    /// Logit of the object being visible; `None` for SAM 1.
    pub fn object_score(&self) -> Option<f32> {
        self.object_score
    }

    /// Size of the picture.
    pub fn size(&self) -> Size {
        self.upsampler.size()
    }

    /// The mask at the size of the picture, where its logits are above 0.
    pub fn mask(&self) -> Result<Mask, ImageError> {
        let (size, threshold) = (self.size(), Threshold::default().value);
        let mut pixels = memory::with_capacity(size.width * size.height)?;
        self.for_each_row(|_, row| pixels.extend(row.iter().map(|value| *value > threshold)))?;
        Mask::from_pixels(size, pixels)
    }

    /// The mask as run lengths.
    pub fn rle(&self) -> Result<Rle, ImageError> {
        let values = self.values().expect("logits of a decoder are f32");
        runs_above_zero(&self.upsampler, &values)
    }

    /// The mask at any threshold, with its area, box and stability.
    pub fn summary(&self, threshold: Threshold) -> Result<Summary, ImageError> {
        let values = self.values().expect("logits of a decoder are f32");
        summarize(&self.upsampler, &values, threshold, None)
    }

    /// Calls `receive(y, row)` with each row of logits at the size of the picture, from top to bottom.
    pub fn for_each_row(&self, receive: impl FnMut(usize, &[f32])) -> Result<(), ImageError> {
        let values = self.values().expect("logits of a decoder are f32");
        self.upsampler.for_each_row(&values, receive)
    }

    fn values(&self) -> Result<Vec<f32>, TensorError> {
        self.logits.to_vec::<f32>()
    }
}

/// Sets regions of at most `area` pixels that are not above 0, in logits `[side, side]`, to `filled`. Regions are 8-connected.
pub(crate) fn fill_holes(
    logits: &mut [f32],
    side: usize,
    area: usize,
    filled: f32,
) -> Result<(), OutOfMemory> {
    if area == 0 {
        return Ok(());
    }
    let regions =
        RegionRuns::find(Size::square(side), Connectivity::Eight, |pixel| logits[pixel] <= 0.0)?;
    change_small(logits, &regions, area, filled);
    Ok(())
}

/// Sets the regions of at most `area` pixels to `value`.
fn change_small(logits: &mut [f32], regions: &RegionRuns, area: usize, value: f32) {
    for (run, region) in regions.runs() {
        if regions.areas()[region] <= area {
            logits[run].fill(value);
        }
    }
}

/// Sets regions above 0 of at most `area` pixels, and of at most half of the mask, to `cleared`. Regions are 8-connected.
pub(crate) fn clear_islands(
    logits: &mut [f32],
    side: usize,
    area: usize,
    cleared: f32,
) -> Result<(), OutOfMemory> {
    let regions =
        RegionRuns::find(Size::square(side), Connectivity::Eight, |pixel| logits[pixel] > 0.0)?;
    let half = regions.areas().iter().sum::<usize>() / 2;
    change_small(logits, &regions, area.min(half), cleared);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_holes_are_filled() {
        const FILLED: f32 = 0.1;
        let mut logits = vec![1.0; 25];
        for pixel in [0, 6, 18] {
            logits[pixel] = -1.0;
        }
        let filled = |area: usize| {
            let mut logits = logits.clone();
            fill_holes(&mut logits, 5, area, FILLED).unwrap();
            [logits[0], logits[6], logits[18]]
        };
        assert_eq!(filled(0), [-1.0; 3]);
        // Pixels 0 and 6 are one 8-connected region.
        assert_eq!(filled(1), [-1.0, -1.0, FILLED]);
        assert_eq!(filled(2), [FILLED; 3]);
    }
}
