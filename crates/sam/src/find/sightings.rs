//! Which queries of the detector count. Only their masks are fetched.

use std::ops::Range;

use cutout_graph::DeviceValue;
use cutout_imaging::Size;
use cutout_tensor::{Tensor, TensorError};

use super::query::Find;
use crate::bits::{BitMask, Measure};
use crate::model::ModelError;
use crate::parts;
use crate::prompt::Rect;
use crate::scene::finite;

/// The queries of one phrase that count.
pub(crate) struct Sightings {
    /// Probability that the picture has any such object.
    pub(crate) presence: f32,
    /// The highest score of all queries, whether or not it counts.
    pub(super) best_score: f32,
    /// In the order of the queries.
    pub(crate) detections: Vec<Sighting>,
}

/// A query that counts.
pub(crate) struct Sighting {
    pub(super) query: usize,
    pub(crate) score: f32,
    /// In pixels of the picture.
    pub(crate) rect: Rect,
    /// `f32[side * side]`, maybe a view of the masks of all queries.
    pub(crate) logits: Tensor,
}

/// Outputs of the detector that are read for all queries.
pub(super) struct QueryAnswers<'a> {
    pub(super) logits: &'a Tensor,
    pub(super) presence: &'a Tensor,
    pub(super) boxes: &'a Tensor,
    /// Size of the picture.
    pub(super) size: Size,
}

impl Sightings {
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
            let area = values.masks.ty().shape[1..].iter().product();
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
            let mask = BitMask::of(&self.detections[index].logits.to_vec::<f32>()?);
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
    pub(super) fn select<E: From<TensorError>>(
        &self,
        find: &Find,
        masks: impl FnOnce(&[usize]) -> Result<Vec<Tensor>, E>,
    ) -> Result<Sightings, E> {
        let presence = sigmoid(self.presence.to_vec::<f32>()?[0]);
        let logits = self.logits.to_vec::<f32>()?;
        let scores: Vec<f32> = logits.iter().map(|logit| sigmoid(*logit) * presence).collect();
        let best_score = scores.iter().copied().fold(0.0, f32::max);
        let queries: Vec<usize> =
            (0..scores.len()).filter(|&query| scores[query] > find.threshold).collect();
        let corners = self.boxes.to_vec::<f32>()?;
        let sighting = |(query, logits): (usize, Tensor)| {
            let rect = self.rect(&corners[4 * query..][..4]);
            Sighting { query, score: scores[query], rect, logits }
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
pub(super) fn masks_of<E: From<TensorError>>(
    queries: &[usize],
    area: usize,
    fetch: impl Fn(Range<usize>) -> Result<Tensor, E>,
) -> Result<Vec<Tensor>, E> {
    let mut masks = Vec::with_capacity(queries.len());
    for run in queries.chunk_by(|one, next| one + 1 == *next) {
        let fetched = fetch(run[0] * area..(run[0] + run.len()) * area)?;
        for index in 0..run.len() {
            masks.push(fetched.slice(0, index * area..(index + 1) * area)?);
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
    fn sighted(find: &Find) -> (Vec<usize>, Vec<Range<usize>>, Sightings) {
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
        let found: Sightings = found.unwrap();
        let queries = found.detections.iter().map(|one| one.query).collect();
        (queries, fetched.into_inner(), found)
    }

    #[test]
    fn only_masks_that_count_are_fetched() {
        let (queries, fetched, found) = sighted(&Find::default().threshold(0.5));
        assert_eq!((queries, fetched), (vec![0, 1, 4], vec![0..8, 16..20]));
        assert_eq!(found.detections[2].logits.to_vec::<f32>().unwrap(), [0.0, 1.0, 1.0, 1.0]);
        assert_eq!(found.detections[1].rect, Rect { x0: 4.0, y0: 10.0, x1: 6.0, y1: 14.0 });
        assert_eq!(found.best_score, found.detections[2].score);
        let (queries, fetched, _) = sighted(&Find::default().threshold(1.0));
        assert!(queries.is_empty() && fetched.is_empty());
    }

    #[test]
    fn of_two_that_overlap_the_better_stays() {
        let find = Find::default().threshold(0.5);
        let (queries, ..) = sighted(&find.clone().without_overlap(0.6));
        assert_eq!(queries, [0, 4], "an IoU of two thirds");
        let (queries, ..) = sighted(&find.without_overlap(0.7));
        assert_eq!(queries, [0, 1, 4]);
    }
}
