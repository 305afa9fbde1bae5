//! Which queries of the detector count. Only their masks are fetched, a few at a time.

use std::ops::Range;

use cutout_graph::DeviceValue;
use cutout_imaging::Size;
use cutout_tensor::{Shape, Tensor, TensorError};

use super::FindError;
use super::query::Find;
use crate::bits::{BitMask, Measure};
use crate::model::ModelError;
use crate::parts;
use crate::prompt::Rect;
use crate::scene::finite;

/// Masks that are fetched together: few enough that their memory is used again for the next ones instead of asked for anew.
const FETCHED_TOGETHER: usize = 8;

/// The queries of one phrase that count, with their masks as `M`.
pub(crate) struct Sightings<M> {
    /// Probability that the picture has any such object.
    pub(crate) presence: f32,
    /// The highest score of all queries, whether or not it counts.
    pub(super) best_score: f32,
    /// In the order of the queries.
    pub(crate) detections: Vec<Sighting<M>>,
}

/// A query that counts.
pub(crate) struct Sighting<M> {
    pub(crate) query: usize,
    pub(crate) score: f32,
    /// In pixels of the picture.
    pub(crate) rect: Rect,
    pub(crate) mask: M,
}

/// The mask of a query: its logits `f32[side * side]`, maybe a view of those of several queries, or which of them are above 0.
pub(crate) trait QueryMask: Sized {
    fn of(logits: Tensor) -> Result<Self, TensorError>;
    fn bits(&self) -> Result<BitMask, TensorError>;
}

impl QueryMask for Tensor {
    fn of(logits: Tensor) -> Result<Self, TensorError> {
        Ok(logits)
    }

    fn bits(&self) -> Result<BitMask, TensorError> {
        match self.as_slice::<f32>() {
            Ok(logits) => Ok(BitMask::of(logits)),
            Err(_) => Ok(BitMask::of(&self.to_vec::<f32>()?)),
        }
    }
}

impl QueryMask for BitMask {
    fn of(logits: Tensor) -> Result<Self, TensorError> {
        logits.bits()
    }

    fn bits(&self) -> Result<BitMask, TensorError> {
        Ok(self.clone())
    }
}

/// The logits of a query's mask, on the device until somebody asks for them.
pub(crate) struct QueryLogits {
    /// `f32[queries, side, side]`.
    pub(crate) masks: DeviceValue,
    pub(crate) query: usize,
}

impl QueryLogits {
    /// `f32[side * side]`.
    pub(crate) fn fetch(&self) -> Result<Vec<f32>, FindError> {
        let area = area_of(&self.masks.ty().shape);
        let elements = self.query * area..(self.query + 1) * area;
        let logits = self.masks.fetch_range(elements).map_err(ModelError::from)?;
        Ok(logits.to_vec::<f32>()?)
    }
}

/// Elements of one mask of `[queries, side, side]`.
fn area_of(shape: &Shape) -> usize {
    shape[1..].iter().product()
}

/// Outputs of the detector that are read for all queries.
pub(super) struct QueryAnswers<'a> {
    pub(super) logits: &'a Tensor,
    pub(super) presence: &'a Tensor,
    pub(super) boxes: &'a Tensor,
    /// Size of the picture.
    pub(super) size: Size,
}

impl<M: QueryMask> Sightings<M> {
    /// Fetches scores and boxes, and the masks of the queries that count.
    pub(super) fn fetch(
        values: &parts::RawDetections<DeviceValue>,
        find: &Find,
        size: Size,
    ) -> Result<Self, ModelError> {
        let (logits, presence, boxes) =
            (values.logits.fetch()?, values.presence.fetch()?, values.boxes.fetch()?);
        finite(&logits)?;
        let answers = QueryAnswers { logits: &logits, presence: &presence, boxes: &boxes, size };
        answers.select(find, |queries| {
            let area = area_of(&values.masks.ty().shape);
            masks_of(queries, area, |elements| Ok(values.masks.fetch_range(elements)?))
        })
    }

    /// Mask non-maximum suppression: keeps detections whose mask has an IoU of at most `overlap` with every better one that is kept.
    /// Masks are compared at low resolution.
    fn suppress(&mut self, overlap: f32) -> Result<(), TensorError> {
        let mut order: Vec<usize> = (0..self.detections.len()).collect();
        order.sort_by(|&a, &b| self.detections[b].score.total_cmp(&self.detections[a].score));
        let mut kept: Vec<(usize, BitMask)> = Vec::new();
        for index in order {
            let mask = self.detections[index].mask.bits()?;
            if kept.iter().all(|(_, better)| better.overlap(&mask, Measure::Union) <= overlap) {
                kept.push((index, mask));
            }
        }
        let mut index = 0..;
        self.detections.retain(|_| {
            let index = index.next();
            kept.iter().any(|(kept, _)| Some(*kept) == index)
        });
        Ok(())
    }
}

impl QueryAnswers<'_> {
    /// The queries above the score threshold, after suppression. `masks` returns the masks of some queries, in their order.
    pub(super) fn select<M: QueryMask, E: From<TensorError>>(
        &self,
        find: &Find,
        masks: impl FnOnce(&[usize]) -> Result<Vec<M>, E>,
    ) -> Result<Sightings<M>, E> {
        let presence = sigmoid(self.presence.to_vec::<f32>()?[0]);
        let logits = self.logits.to_vec::<f32>()?;
        let scores: Vec<f32> = logits.iter().map(|logit| sigmoid(*logit) * presence).collect();
        let best_score = scores.iter().copied().fold(0.0, f32::max);
        let queries: Vec<usize> =
            (0..scores.len()).filter(|&query| scores[query] > find.threshold).collect();
        let corners = self.boxes.to_vec::<f32>()?;
        let sighting = |(query, mask): (usize, M)| {
            let rect = self.rect(&corners[4 * query..][..4]);
            Sighting { query, score: scores[query], rect, mask }
        };
        let masks = masks(&queries)?;
        let detections = queries.into_iter().zip(masks).map(sighting).collect();
        let mut sightings = Sightings { presence, best_score, detections };
        if let Some(overlap) = find.overlap {
            sightings.suppress(overlap)?;
        }
        Ok(sightings)
    }

    fn rect(&self, corners: &[f32]) -> Rect {
        let Size { width, height } = self.size;
        let place = |axis: usize, length: usize| f64::from(corners[axis] * length as f32);
        Rect {
            x0: place(0, width),
            y0: place(1, height),
            x1: place(2, width),
            y1: place(3, height),
        }
    }
}

/// The masks of ascending queries, each of `area` elements. Neighbouring ones are fetched together.
pub(super) fn masks_of<M: QueryMask, E: From<TensorError>>(
    queries: &[usize],
    area: usize,
    fetch: impl Fn(Range<usize>) -> Result<Tensor, E>,
) -> Result<Vec<M>, E> {
    let mut masks = Vec::with_capacity(queries.len());
    let runs = queries.chunk_by(|one, next| one + 1 == *next);
    for run in runs.flat_map(|run| run.chunks(FETCHED_TOGETHER)) {
        let fetched = fetch(run[0] * area..(run[0] + run.len()) * area)?;
        for index in 0..run.len() {
            masks.push(M::of(fetched.slice(0, index * area..(index + 1) * area)?)?);
        }
    }
    Ok(masks)
}

fn sigmoid(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: impl Into<cutout_tensor::Shape>, values: Vec<f32>) -> Tensor {
        Tensor::from_vec(shape, values).unwrap()
    }

    /// Five queries, of which 0, 1 and 4 count; 1 repeats 4, which is better.
    fn sighted<M: QueryMask>(find: &Find) -> (Vec<usize>, Vec<Range<usize>>, Sightings<M>) {
        let logits = tensor([5], vec![1.0, 2.0, -9.0, -9.0, 3.0]);
        let presence = tensor([1], vec![9.0]);
        let boxes = tensor([5, 4], (0..20).map(|i| i as f32 / 20.0).collect());
        let masks = [[1, 0, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]];
        let masks: Vec<f32> = masks.concat().into_iter().map(|bit| bit as f32).collect();
        let masks = tensor([20], masks);
        let fetched = std::cell::RefCell::new(Vec::new());
        let answers = QueryAnswers {
            logits: &logits,
            presence: &presence,
            boxes: &boxes,
            size: Size::new(20, 40),
        };
        let found = answers.select(find, |queries| {
            masks_of(queries, 4, |elements| {
                fetched.borrow_mut().push(elements.clone());
                masks.slice(0, elements)
            })
        });
        let found: Sightings<M> = found.unwrap();
        let queries = found.detections.iter().map(|one| one.query).collect();
        (queries, fetched.into_inner(), found)
    }

    #[test]
    fn only_masks_that_count_are_fetched() {
        let (queries, fetched, found) = sighted::<Tensor>(&Find::default().threshold(0.5));
        assert_eq!((queries, fetched), (vec![0, 1, 4], vec![0..8, 16..20]));
        assert_eq!(found.detections[2].mask.to_vec::<f32>().unwrap(), [0.0, 1.0, 1.0, 1.0]);
        assert_eq!(found.detections[1].rect, Rect { x0: 4.0, y0: 10.0, x1: 6.0, y1: 14.0 });
        assert_eq!(found.best_score, found.detections[2].score);
        let (queries, fetched, _) = sighted::<Tensor>(&Find::default().threshold(1.0));
        assert!(queries.is_empty() && fetched.is_empty());
    }

    #[test]
    fn many_masks_are_fetched_a_few_at_a_time() {
        let (queries, area) = ([2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 20], 3);
        let all = tensor([21 * area], (0..21 * area).map(|i| (i % 5) as f32 - 2.0).collect());
        let fetched = std::cell::RefCell::new(Vec::new());
        let masks: Result<Vec<BitMask>, TensorError> = masks_of(&queries, area, |elements| {
            fetched.borrow_mut().push(elements.clone());
            all.slice(0, elements)
        });
        assert_eq!(fetched.into_inner(), [6..30, 30..36, 60..63]);
        for (query, mask) in queries.into_iter().zip(masks.unwrap()) {
            let own = all.slice(0, query * area..(query + 1) * area).unwrap();
            assert_eq!(mask, own.bits().unwrap(), "query {query}");
        }
    }

    #[test]
    fn of_two_that_overlap_the_better_stays() {
        let find = Find::default().threshold(0.5);
        let (queries, ..) = sighted::<Tensor>(&find.clone().without_overlap(0.6));
        assert_eq!(queries, [0, 4], "an IoU of two thirds");
        let (queries, ..) = sighted::<BitMask>(&find.clone().without_overlap(0.6));
        assert_eq!(queries, [0, 4], "the same of bits");
        let (queries, ..) = sighted::<Tensor>(&find.without_overlap(0.7));
        assert_eq!(queries, [0, 1, 4]);
    }
}
