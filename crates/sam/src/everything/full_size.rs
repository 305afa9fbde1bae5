//! Masks at the size of their crop: on the host from logits, or on the device, which then sends bits.

use cutout_imaging::{Placement, Summary, Threshold, summarize, summarize_bits};
use cutout_tensor::Tensor;

use crate::model::ModelError;
use crate::parts::{ChosenMasks, ThresholdMasks};
use crate::scene::{AnsweredBatch, Scene, SegmentError};

/// Most bytes of the bits of one run.
const MAX_BYTES: usize = 256 << 20;

/// Most masks of one run. Runs have a power of two of masks, so that few programs are compiled.
const MAX_MASKS: usize = 64;

/// Upsampling and thresholding of the masks of a scene.
pub(super) struct FullSize<'a> {
    pub(super) scene: &'a Scene,
    pub(super) threshold: Threshold,
    /// The place of the scene in the picture; `None` if it is all of it.
    pub(super) placement: Option<Placement>,
}

impl FullSize<'_> {
    /// The masks of a batch at these indices (prompt * candidates + candidate), in their order.
    pub(super) fn summaries(
        &self,
        answered: &AnsweredBatch,
        masks: &[usize],
    ) -> Result<Vec<Summary>, SegmentError> {
        if masks.is_empty() {
            return Ok(Vec::new());
        }
        let size = self.scene.size();
        let at_once = masks_at_once(size.height, size.width);
        if self.scene.sam().model().backend().values_are_on_host() || at_once == 0 {
            return self.on_host(answered, masks);
        }
        let mut summaries = Vec::with_capacity(masks.len());
        for part in masks.chunks(at_once) {
            summaries.extend(self.on_device(answered, part)?);
        }
        Ok(summaries)
    }

    fn on_host(
        &self,
        answered: &AnsweredBatch,
        masks: &[usize],
    ) -> Result<Vec<Summary>, SegmentError> {
        let logits = answered.logits.fetch().map_err(ModelError::from)?;
        let values = logits.as_slice::<f32>()?;
        let side = self.scene.sam().model().config().mask_side();
        let summary = |&mask: &usize| {
            let own = &values[mask * side * side..][..side * side];
            Ok(summarize(self.scene.upsampler(), own, self.threshold, self.placement)?)
        };
        self.scene.sam().pool().map(masks, summary).into_iter().collect()
    }

    /// As many masks as [`masks_at_once`] allows.
    fn on_device(
        &self,
        answered: &AnsweredBatch,
        masks: &[usize],
    ) -> Result<Vec<Summary>, SegmentError> {
        let model = self.scene.sam().model();
        let mut rows: Vec<i64> = masks.iter().map(|&mask| mask as i64).collect();
        rows.resize(masks.len().next_power_of_two(), 0);
        let part = ThresholdMasks {
            prompts: answered.iou.len() / answered.candidates,
            candidates: answered.candidates,
            rows: rows.len(),
            bits: self.scene.mask_bits(self.threshold),
        };
        let rows = model.upload(&Tensor::from_vec([rows.len()], rows)?)?;
        let made = model.run(&part, ChosenMasks { logits: answered.logits.clone(), rows })?;
        let words = made.words.fetch().map_err(ModelError::from)?;
        let length = words.shape()[1];
        let words = words.as_slice::<i32>()?;
        let rows: Vec<&[i32]> = words.chunks_exact(length).take(masks.len()).collect();
        let summary = |row: &&[i32]| Ok(summarize_bits(self.scene.size(), row, self.placement)?);
        self.scene.sam().pool().map(&rows, summary).into_iter().collect()
    }
}

/// How many masks of a picture one run makes: a power of two, or 0 if one has too many bits.
fn masks_at_once(height: usize, width: usize) -> usize {
    // A GPU has threads for whole warps of columns.
    let columns = width.checked_next_multiple_of(32);
    let words = columns.and_then(|columns| columns.checked_mul(height.div_ceil(32)));
    let bytes = words.and_then(|words| words.checked_add(2)?.checked_mul(size_of::<i32>()));
    let most = bytes.map_or(0, |bytes| MAX_BYTES / bytes).min(MAX_MASKS);
    if most == 0 { 0 } else { 1 << most.ilog2() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_pictures_have_fewer_masks_in_a_run() {
        assert_eq!(masks_at_once(1, 1), 64);
        assert_eq!(masks_at_once(1200, 1800), 64);
        assert_eq!(masks_at_once(8000, 8000), 32);
        assert_eq!(masks_at_once(20_000, 20_000), 4);
        assert_eq!(masks_at_once(1 << 16, 1 << 15), 0);
        assert_eq!(masks_at_once(usize::MAX, usize::MAX), 0);
    }
}
