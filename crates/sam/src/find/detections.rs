//! Results of a query.

use std::sync::Arc;

use cutout_graph::{DeviceValue, Ports};
use cutout_imaging::{ImageError, Mask, Rle, Size, Upsampler};
use cutout_tensor::{Tensor, TensorError};

use super::query::{Find, Phrase};
use crate::masks::Segment;
use crate::model::ModelError;
use crate::parts;
use crate::prompt::Rect;
use crate::scene::{Scene, finite};

/// The detections of all phrases of a query.
#[derive(Clone)]
pub struct Found {
    pub(super) phrases: Vec<Detections>,
}

/// The detections of one phrase.
#[derive(Clone)]
pub struct Detections {
    phrase: Option<Arc<str>>,
    cut: bool,
    presence: f32,
    best_score: f32,
    detections: Vec<Detection>,
    semantic: Segment,
}

/// One object.
#[derive(Clone)]
pub struct Detection {
    phrase: Option<Arc<str>>,
    query: usize,
    score: f32,
    presence: f32,
    rect: Rect,
    segment: Segment,
}

/// Raw outputs of the detector for one phrase, on the host.
#[derive(Clone)]
pub struct RawDetections {
    phrase: Option<Arc<str>>,
    cut: bool,
    tensors: parts::RawDetections<Tensor>,
    upsampler: Arc<Upsampler>,
    logit_limit: Option<f32>,
}

impl Found {
    /// Detections per phrase, in order; one entry for exemplars without a phrase.
    pub fn phrases(&self) -> &[Detections] {
        &self.phrases
    }

    /// The objects of all phrases: in the order of the phrases, and of each phrase the best first.
    pub fn iter(&self) -> impl Iterator<Item = &Detection> {
        self.phrases.iter().flatten()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.phrases.iter().map(Detections::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> IntoIterator for &'a Found {
    type Item = &'a Detection;
    type IntoIter = std::iter::Flatten<std::slice::Iter<'a, Detections>>;

    fn into_iter(self) -> Self::IntoIter {
        self.phrases.iter().flatten()
    }
}

impl Detections {
    /// The phrase; `None` for exemplars without a phrase.
    pub fn phrase(&self) -> Option<&str> {
        self.phrase.as_deref()
    }

    /// Whether the phrase exceeded the context of the text encoder and was truncated.
    pub fn phrase_was_cut(&self) -> bool {
        self.cut
    }

    /// Probability that the picture has any such object.
    pub fn presence(&self) -> f32 {
        self.presence
    }

    /// The highest score of all queries, whether or not it was high enough.
    pub fn best_score(&self) -> f32 {
        self.best_score
    }

    /// The objects, the best first.
    pub fn as_slice(&self) -> &[Detection] {
        &self.detections
    }

    /// The objects, the best first.
    pub fn iter(&self) -> std::slice::Iter<'_, Detection> {
        self.detections.iter()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.detections.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.detections.is_empty()
    }

    /// Semantic mask of the phrase. Its score is the presence.
    pub fn semantic(&self) -> &Segment {
        &self.semantic
    }
}

impl<'a> IntoIterator for &'a Detections {
    type Item = &'a Detection;
    type IntoIter = std::slice::Iter<'a, Detection>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Detection {
    /// The phrase; `None` for exemplars without a phrase.
    pub fn phrase(&self) -> Option<&str> {
        self.phrase.as_deref()
    }

    /// Index of the object query: its row in [`RawDetections`].
    pub fn query(&self) -> usize {
        self.query
    }

    /// Score between 0 and 1: probability of this object times [`Detection::presence`].
    pub fn score(&self) -> f32 {
        self.score
    }

    /// Probability that the picture has any such object.
    pub fn presence(&self) -> f32 {
        self.presence
    }

    /// The box, in pixels of the picture. It may reach slightly beyond the border.
    pub fn rect(&self) -> Rect {
        self.rect
    }

    /// The mask with its low-resolution logits, which [`crate::Prompt::logits`] takes to refine it by clicks.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The mask at the size of the picture.
    pub fn mask(&self) -> Result<Mask, ImageError> {
        self.segment.mask()
    }

    /// The mask as run lengths.
    pub fn rle(&self) -> Result<Rle, ImageError> {
        self.segment.rle()
    }

    /// Size of the picture.
    pub fn size(&self) -> Size {
        self.segment.size()
    }
}

impl RawDetections {
    pub(super) fn fetch(
        phrase: Phrase,
        values: parts::RawDetections<DeviceValue>,
        scene: &Scene,
    ) -> Result<Self, ModelError> {
        type Tensors = parts::RawDetections<()>;
        let tensors = Tensors::try_map(values, "", &mut |_, value| value.fetch())?;
        finite(&tensors.logits)?;
        Ok(RawDetections {
            phrase: phrase.text.map(Arc::from),
            cut: phrase.tokens.cut,
            tensors,
            upsampler: Arc::clone(scene.upsampler()),
            logit_limit: scene.sam().model().config().processing().logit_limit,
        })
    }

    /// The phrase; `None` for exemplars without a phrase.
    pub fn phrase(&self) -> Option<&str> {
        self.phrase.as_deref()
    }

    /// Scores of all queries `f32[queries]`, before the sigmoid and without the presence.
    pub fn pred_logits(&self) -> &Tensor {
        &self.tensors.logits
    }

    /// Presence logit, `f32[1]`.
    pub fn presence_logit(&self) -> &Tensor {
        &self.tensors.presence
    }

    /// Boxes of all queries `f32[queries, 4]`: left, top, right, bottom, as shares of width and height.
    pub fn pred_boxes(&self) -> &Tensor {
        &self.tensors.boxes
    }

    /// Masks of all queries `f32[queries, side, side]`, before the sigmoid.
    pub fn pred_masks(&self) -> &Tensor {
        &self.tensors.masks
    }

    /// Semantic mask of all such objects, `f32[1, side, side]`, before the sigmoid.
    pub fn semantic(&self) -> &Tensor {
        &self.tensors.semantic
    }

    /// The objects above the score threshold of a query, after suppression.
    pub fn select(&self, find: &Find) -> Result<Detections, TensorError> {
        let presence = sigmoid(first(&self.tensors.presence)?);
        let logits = self.tensors.logits.to_vec::<f32>()?;
        let scores: Vec<f32> = logits.iter().map(|logit| sigmoid(*logit) * presence).collect();
        let best_score = scores.iter().copied().fold(0.0, f32::max);
        let mut queries: Vec<usize> =
            (0..scores.len()).filter(|&query| scores[query] > find.threshold).collect();
        queries.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let mut detections = Vec::new();
        for query in queries {
            detections.push(self.detection(query, scores[query], presence)?);
        }
        if let Some(overlap) = find.overlap {
            detections = without_overlap(detections, overlap)?;
        }
        let [_, side, _] = [0, 1, 2].map(|axis| self.tensors.semantic.shape()[axis]);
        let semantic = self.segment(self.tensors.semantic.reshape([side, side])?, presence)?;
        let (phrase, cut) = (self.phrase.clone(), self.cut);
        Ok(Detections { phrase, cut, presence, best_score, detections, semantic })
    }

    fn detection(&self, query: usize, score: f32, presence: f32) -> Result<Detection, TensorError> {
        let Size { width, height } = self.upsampler.size();
        let corners = self.tensors.boxes.slice(0, query..query + 1)?.to_vec::<f32>()?;
        let place = |axis: usize, length: usize| f64::from(corners[axis] * length as f32);
        let rect = Rect {
            x0: place(0, width),
            y0: place(1, height),
            x1: place(2, width),
            y1: place(3, height),
        };
        // Copied: a view would keep the masks of all queries in memory.
        let row = self.tensors.masks.slice(0, query..query + 1)?;
        let side = row.shape()[1];
        let logits = Tensor::from_vec::<f32>([side, side], row.to_vec()?)?;
        let segment = self.segment(logits, score)?;
        Ok(Detection { phrase: self.phrase.clone(), query, score, presence, rect, segment })
    }

    fn segment(&self, logits: Tensor, score: f32) -> Result<Segment, TensorError> {
        let feedback = match self.logit_limit {
            None => logits.clone(),
            Some(limit) => {
                let values = logits.to_vec::<f32>()?.into_iter();
                let values = values.map(|logit| logit.clamp(-limit, limit)).collect();
                Tensor::from_vec::<f32>(logits.shape().clone(), values)?
            }
        };
        let upsampler = Arc::clone(&self.upsampler);
        Ok(Segment { logits, feedback, iou: score, object_score: None, upsampler })
    }
}

fn first(tensor: &Tensor) -> Result<f32, TensorError> {
    Ok(tensor.to_vec::<f32>()?[0])
}

fn sigmoid(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

/// Mask non-maximum suppression: keeps detections, best first, whose mask has an IoU of at most `overlap` with every
/// kept one. Masks are compared at low resolution.
fn without_overlap(
    detections: Vec<Detection>,
    overlap: f32,
) -> Result<Vec<Detection>, TensorError> {
    let mut kept: Vec<(Detection, Vec<bool>)> = Vec::new();
    for detection in detections {
        let logits = detection.segment.logits.to_vec::<f32>()?;
        let mask: Vec<bool> = logits.iter().map(|logit| *logit > 0.0).collect();
        if kept.iter().all(|(_, better)| intersection_over_union(better, &mask) <= overlap) {
            kept.push((detection, mask));
        }
    }
    Ok(kept.into_iter().map(|(detection, _)| detection).collect())
}

/// 0 for two empty masks.
fn intersection_over_union(a: &[bool], b: &[bool]) -> f32 {
    let both = a.iter().zip(b).filter(|(a, b)| **a && **b).count();
    let either = a.iter().zip(b).filter(|(a, b)| **a || **b).count();
    both as f32 / either.max(1) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_by_hand() {
        let [a, b] = [[true, true, false, false], [false, true, true, false]];
        assert_eq!(intersection_over_union(&a, &b), 1.0 / 3.0);
        assert_eq!(intersection_over_union(&a, &a), 1.0);
        assert_eq!(intersection_over_union(&[false; 4], &[false; 4]), 0.0);
    }
}
