//! The mask generator.

use std::ops::ControlFlow;

use cutout_imaging::{Candidate, Size, Threshold, non_maximum_suppression, summarize};
use cutout_parallel::Pool;

use super::crops::{Crop, crops};
use super::grid::Grid;
use super::small_regions::remove_small_regions;
use super::{AutoMask, Everything, EverythingError, Phase, PixelBox, Progress};
use crate::model::ModelError;
use crate::prompt::{Candidates, Point, Prompt};
use crate::scene::{AnsweredBatch, Scene, SegmentError};

/// Reports progress to the caller.
pub(super) struct Reporter<'a> {
    progress: Progress,
    receive: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
}

impl<'a> Reporter<'a> {
    pub(super) fn new(receive: &'a mut dyn FnMut(Progress) -> ControlFlow<()>) -> Self {
        let progress = Progress {
            phase: Phase::Embedding,
            points_done: 0,
            points: 0,
            crops_done: 0,
            crops: 0,
            masks: 0,
        };
        Reporter { progress, receive }
    }

    /// Reports; an error if the caller stops the work.
    pub(super) fn report(&mut self, phase: Phase, masks: usize) -> Result<(), EverythingError> {
        (self.progress.phase, self.progress.masks) = (phase, masks);
        match (self.receive)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(EverythingError::Stopped),
        }
    }
}

/// Everything in a picture; `scene_of` embeds a part of it.
pub(super) fn generate(
    picture: Size,
    pool: &Pool,
    options: &Everything,
    mut reporter: Reporter<'_>,
    mut scene_of: impl FnMut(&Crop) -> Result<Scene, SegmentError>,
) -> Result<Vec<AutoMask>, EverythingError> {
    options.check()?;
    let grids = options.grids()?;
    let crops = crops(picture, options)?;
    reporter.progress.crops = crops.len();
    reporter.progress.points =
        crops.iter().fold(0, |points, crop| points.saturating_add(grids[crop.layer].len()));
    let mut masks: Vec<AutoMask> = Vec::new();
    for crop in crops.iter() {
        reporter.report(Phase::Embedding, masks.len())?;
        let scene = scene_of(crop)?;
        let search = Search { scene, picture, crop: *crop, options };
        let found = search.run(grids[crop.layer], masks.len(), &mut reporter)?;
        let by_iou = |mask: &AutoMask| mask.predicted_iou;
        masks.extend(suppress(found, options.box_nms_thresh, by_iou));
        reporter.progress.crops_done += 1;
    }
    if crops.len() > 1 {
        // The smaller the crop, the finer the mask.
        let by_crop = |mask: &AutoMask| {
            let PixelBox { width, height, .. } = mask.crop_box;
            1.0 / (width * height) as f32
        };
        masks = suppress(masks, options.crop_nms_thresh, by_crop);
    }
    if options.min_mask_region_area > 0 {
        masks = remove_small_regions(masks, options, pool, &mut reporter)?;
    }
    Ok(masks)
}

/// Box non-maximum suppression; masks by descending score, equal scores in order.
fn suppress(
    masks: Vec<AutoMask>,
    threshold: f64,
    score: impl Fn(&AutoMask) -> f32,
) -> Vec<AutoMask> {
    let candidate =
        |mask: &AutoMask| Candidate { rect: mask.bbox.rect(), score: score(mask), category: 0 };
    let candidates: Vec<Candidate> = masks.iter().map(candidate).collect();
    pick(masks, &non_maximum_suppression(&candidates, threshold))
}

/// The masks at the indices `kept`, which are distinct.
pub(super) fn pick(masks: Vec<AutoMask>, kept: &[usize]) -> Vec<AutoMask> {
    let mut masks: Vec<Option<AutoMask>> = masks.into_iter().map(Some).collect();
    kept.iter().map(|&index| masks[index].take().expect("no number comes twice")).collect()
}

/// Generation of the masks of one crop.
struct Search<'a> {
    scene: Scene,
    picture: Size,
    crop: Crop,
    options: &'a Everything,
}

/// One mask of one point, at low resolution.
struct LowResolutionMask {
    point: Point,
    /// Which prompt of its batch, and which of that prompt's masks.
    prompt: usize,
    candidate: usize,
    iou: f32,
}

impl Search<'_> {
    /// The masks of all points that pass the filters, point by point. `before` of them were found in other crops.
    fn run(
        &self,
        grid: Grid<'_>,
        before: usize,
        reporter: &mut Reporter<'_>,
    ) -> Result<Vec<AutoMask>, EverythingError> {
        let mut masks: Vec<AutoMask> = Vec::new();
        for batch in ranges(0..grid.len(), self.options.points_per_batch) {
            for part in ranges(batch, self.scene.sam().prompt_limit()) {
                let points: Vec<Point> = part.map(|index| self.place(grid.point(index))).collect();
                masks.extend(self.ask(&points)?);
                reporter.progress.points_done += points.len();
                reporter.report(Phase::Decoding, before + masks.len())?;
            }
        }
        Ok(masks)
    }

    /// A point of the grid in pixels of the crop.
    fn place(&self, [x, y]: [f64; 2]) -> Point {
        let Size { width, height } = self.crop.size();
        Point { x: x * width as f64, y: y * height as f64 }
    }

    /// The masks of some points, decoded at once.
    fn ask(&self, points: &[Point]) -> Result<Vec<AutoMask>, SegmentError> {
        let prompts: Vec<Prompt> = points.iter().map(|p| Prompt::point(p.x, p.y)).collect();
        let answered = self.scene.answer(&prompts.iter().collect::<Vec<_>>())?;
        let masks = masks_of(&answered, points);
        if self.options.use_m2m {
            self.refine(&answered, &masks)
        } else {
            self.filter(&answered, masks)
        }
    }

    /// Decodes each mask again with its point and its logits as the prompt.
    fn refine(
        &self,
        answered: &AnsweredBatch,
        first: &[LowResolutionMask],
    ) -> Result<Vec<AutoMask>, SegmentError> {
        let side = self.scene.sam().model().config().mask_side();
        let feedback = answered.feedback.fetch().map_err(ModelError::from)?;
        let mut masks = Vec::new();
        let at_once = self.options.points_per_batch.min(self.scene.sam().prompt_limit());
        for part in first.chunks(at_once) {
            let mut prompts = Vec::with_capacity(part.len());
            for &LowResolutionMask { point, prompt, candidate, .. } in part {
                let logits = feedback.slice(0, prompt..prompt + 1)?;
                let logits = logits.slice(1, candidate..candidate + 1)?.reshape([side, side])?;
                let prompt = Prompt::point(point.x, point.y).with_logits(logits);
                prompts.push(prompt.candidates(Candidates::One));
            }
            let refined = self.scene.answer(&prompts.iter().collect::<Vec<_>>())?;
            let points: Vec<Point> = part.iter().map(|one| one.point).collect();
            masks.extend(self.filter(&refined, masks_of(&refined, &points))?);
        }
        Ok(masks)
    }

    /// The masks that pass the filters. Those whose predicted IoU is too low need not be upsampled.
    fn filter(
        &self,
        answered: &AnsweredBatch,
        mut masks: Vec<LowResolutionMask>,
    ) -> Result<Vec<AutoMask>, SegmentError> {
        // PyTorch compares as f32.
        let threshold = self.options.pred_iou_thresh as f32;
        let all = self.options.pred_iou_thresh <= 0.0;
        masks.retain(|one| all || one.iou > threshold);
        let upsampled = self.scene.sam().pool().map(&masks, |one| self.upsample(answered, one));
        upsampled.into_iter().filter_map(Result::transpose).collect()
    }

    /// One mask at full size, if it is stable and not cut off by its crop.
    fn upsample(
        &self,
        answered: &AnsweredBatch,
        mask: &LowResolutionMask,
    ) -> Result<Option<AutoMask>, SegmentError> {
        let &LowResolutionMask { point, prompt, candidate, iou } = mask;
        let logits = answered.logits_of(prompt, candidate)?;
        let threshold =
            Threshold { value: 0.0, offset: self.options.stability_score_offset as f32 };
        let placement = self.crop.placement(self.picture);
        let summary =
            summarize(self.scene.upsampler(), &logits.to_vec::<f32>()?, threshold, placement)?;
        let stability = summary.stability();
        let wanted = self.options.stability_score_thresh;
        let stable = wanted <= 0.0 || stability >= wanted as f32;
        let Crop { left, top, .. } = self.crop;
        let bbox = PixelBox::around(summary.bounds).shifted(left, top);
        if !stable || self.crop.cuts_off(bbox, self.picture) {
            return Ok(None);
        }
        Ok(Some(AutoMask {
            rle: summary.rle,
            area: summary.area,
            bbox,
            predicted_iou: iou,
            point_coords: Point { x: point.x + left as f64, y: point.y + top as f64 },
            stability_score: stability,
            crop_box: self.crop.pixel_box(),
        }))
    }
}

/// All masks of a batch, point by point.
fn masks_of(answered: &AnsweredBatch, points: &[Point]) -> Vec<LowResolutionMask> {
    let count = answered.candidates;
    let masks = points
        .iter()
        .enumerate()
        .flat_map(|(prompt, &point)| (0..count).map(move |candidate| (point, prompt, candidate)));
    masks
        .map(|(point, prompt, candidate)| {
            let iou = answered.iou[prompt * count + candidate];
            LowResolutionMask { point, prompt, candidate, iou }
        })
        .collect()
}

/// A range in parts of at most `length`.
fn ranges(
    whole: std::ops::Range<usize>,
    length: usize,
) -> impl Iterator<Item = std::ops::Range<usize>> {
    let end = whole.end;
    whole.step_by(length).map(move |start| start..start.saturating_add(length).min(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_in_parts() {
        let parts = |whole, length| ranges(whole, length).collect::<Vec<_>>();
        assert_eq!(parts(3..10, 3), [3..6, 6..9, 9..10]);
        assert_eq!(parts(0..4, usize::MAX), vec![0..4; 1]);
        assert!(parts(2..2, 5).is_empty());
    }
}
