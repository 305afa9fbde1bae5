//! From points to masks.

use std::ops::ControlFlow;

use cutout_imaging::{Candidate, Size, Threshold, non_maximum_suppression, summarize};
use cutout_parallel::Pool;
use cutout_tensor::{Tensor, TensorError};

use super::crops::{Crop, crops};
use super::grid::Grid;
use super::small_regions::remove_small_regions;
use super::{AutoMask, Everything, EverythingError, Phase, PixelBox, Progress};
use crate::network::Decoded;
use crate::prompt::{Candidates, Point, Prompt};
use crate::scene::{MOST_PROMPTS, Scene, SegmentError};

/// Tells the caller how far the work has come.
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

    /// Tells; an error if the caller wants no more.
    pub(super) fn tell(&mut self, phase: Phase, masks: usize) -> Result<(), EverythingError> {
        (self.progress.phase, self.progress.masks) = (phase, masks);
        match (self.receive)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(EverythingError::Stopped),
        }
    }
}

/// Everything in a picture; `scene_of` embeds a part of it.
pub(super) fn generate(
    (picture, pool): (Size, &Pool),
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
        reporter.tell(Phase::Embedding, masks.len())?;
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

/// The masks that no better one covers, best first; equals in their order.
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

/// The masks with these numbers, in the order of the numbers, each of which is there once.
pub(super) fn pick(masks: Vec<AutoMask>, kept: &[usize]) -> Vec<AutoMask> {
    let mut masks: Vec<Option<AutoMask>> = masks.into_iter().map(Some).collect();
    kept.iter().map(|&index| masks[index].take().expect("no number comes twice")).collect()
}

/// One crop, searched.
struct Search<'a> {
    scene: Scene,
    picture: Size,
    crop: Crop,
    options: &'a Everything,
}

/// One mask of one point, before it is looked at.
struct Unseen {
    point: Point,
    /// Where it is in what was decoded.
    prompt: usize,
    token: usize,
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
            for part in ranges(batch, MOST_PROMPTS) {
                let points: Vec<Point> = part.map(|index| self.place(grid.point(index))).collect();
                masks.extend(self.ask(&points)?);
                reporter.progress.points_done += points.len();
                reporter.tell(Phase::Decoding, before + masks.len())?;
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
        let decoded = self.scene.decode(&prompts.iter().collect::<Vec<_>>())?;
        let unseen = self.masks_of(&decoded, points, Candidates::Three)?;
        if self.options.use_m2m {
            self.refine(&decoded, &unseen)
        } else {
            self.look_at(&decoded, unseen)
        }
    }

    /// The masks that the decoder answers with if it is shown these masks again, each with its point.
    fn refine(&self, decoded: &Decoded, first: &[Unseen]) -> Result<Vec<AutoMask>, SegmentError> {
        let network = self.scene.sam().network();
        let side = network.mask_side();
        let mut masks = Vec::new();
        for part in first.chunks(self.options.points_per_batch.min(MOST_PROMPTS)) {
            let mut prompts = Vec::with_capacity(part.len());
            for one in part {
                let logits = logits_of(decoded, one)?.reshape([side, side])?;
                let prompt = Prompt::point(one.point.x, one.point.y);
                prompts.push(prompt.with_logits(network.limited(&logits)?));
            }
            let refined = self.scene.decode(&prompts.iter().collect::<Vec<_>>())?;
            let points: Vec<Point> = part.iter().map(|one| one.point).collect();
            let unseen = self.masks_of(&refined, &points, Candidates::One)?;
            masks.extend(self.look_at(&refined, unseen)?);
        }
        Ok(masks)
    }

    /// So many masks of each point, in what was decoded for them.
    fn masks_of(
        &self,
        decoded: &Decoded,
        points: &[Point],
        wanted: Candidates,
    ) -> Result<Vec<Unseen>, SegmentError> {
        let ious = decoded.iou.to_vec::<f32>()?;
        let tokens = decoded.iou.shape()[1];
        let mut masks = Vec::new();
        for (prompt, point) in points.iter().enumerate() {
            let chosen = self.scene.sam().network().choose(decoded, prompt, wanted)?;
            let tokens_chosen = chosen.first..chosen.first + chosen.count;
            masks.extend(tokens_chosen.map(|token| {
                let iou = ious[prompt * tokens + token];
                Unseen { point: *point, prompt, token, iou }
            }));
        }
        Ok(masks)
    }

    /// The masks that pass the filters. Those whose predicted IoU is too low need not be upsampled.
    fn look_at(
        &self,
        decoded: &Decoded,
        mut unseen: Vec<Unseen>,
    ) -> Result<Vec<AutoMask>, SegmentError> {
        // PyTorch compares as f32.
        let threshold = self.options.pred_iou_thresh as f32;
        let all = self.options.pred_iou_thresh <= 0.0;
        unseen.retain(|one| all || one.iou > threshold);
        let seen = self.scene.sam().pool().map(&unseen, |one| self.look(decoded, one));
        seen.into_iter().filter_map(Result::transpose).collect()
    }

    /// One mask at full size, if it is stable and not cut off.
    fn look(&self, decoded: &Decoded, unseen: &Unseen) -> Result<Option<AutoMask>, SegmentError> {
        let &Unseen { point, iou, .. } = unseen;
        let logits = logits_of(decoded, unseen)?;
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

/// The low-resolution logits of one mask, `f32[1, 1, side, side]`.
fn logits_of(decoded: &Decoded, one: &Unseen) -> Result<Tensor, TensorError> {
    let &Unseen { prompt, token, .. } = one;
    decoded.logits.slice(0, prompt..prompt + 1)?.slice(1, token..token + 1)
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
