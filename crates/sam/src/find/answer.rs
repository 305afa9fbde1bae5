//! What was found.

use std::sync::Arc;

use cutout_imaging::{Mask, Rle, Size, Upsampler};
use cutout_tensor::{Tensor, TensorError};

use super::question::{Find, Phrase};
use crate::masks::Segment;
use crate::network::Detected;
use crate::prompt::Rect;
use crate::sam::Sam;
use crate::scene::Scene;

/// The answers to all phrases of a question, in their order.
#[derive(Clone)]
pub struct Found {
    pub(super) answers: Vec<Answer>,
}

/// What was found for one phrase.
#[derive(Clone)]
pub struct Answer {
    phrase: Option<Arc<str>>,
    cut: bool,
    presence: f32,
    best_score: f32,
    instances: Vec<Instance>,
    semantic: Segment,
}

/// One object.
#[derive(Clone)]
pub struct Instance {
    phrase: Option<Arc<str>>,
    query: usize,
    score: f32,
    presence: f32,
    rect: Rect,
    segment: Segment,
}

/// The model's own numbers for one phrase.
#[derive(Clone)]
pub struct Detection {
    phrase: Option<Arc<str>>,
    cut: bool,
    detected: Detected,
    upsampler: Arc<Upsampler>,
    sam: Sam,
}

impl Found {
    /// The answer to each phrase, in their order; one for exemplars without a phrase.
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// The same, to keep.
    pub fn into_answers(self) -> Vec<Answer> {
        self.answers
    }

    /// The objects of all phrases: in the order of the phrases, and of each phrase the best first.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.answers.iter().flat_map(|answer| &answer.instances)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.instances().count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Answer {
    /// The phrase; nothing where exemplars were all there was.
    pub fn phrase(&self) -> Option<&str> {
        self.phrase.as_deref()
    }

    /// Whether the phrase was longer than the model reads, and its end was not looked for.
    pub fn phrase_was_cut(&self) -> bool {
        self.cut
    }

    /// How sure the model is that there is anything of the kind, between 0 and 1.
    pub fn presence(&self) -> f32 {
        self.presence
    }

    /// The highest score of all that was considered, whether or not it was high enough.
    pub fn best_score(&self) -> f32 {
        self.best_score
    }

    /// The objects, the best first.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// Everything that the phrase describes, as one mask. Its score is the presence.
    pub fn semantic(&self) -> &Segment {
        &self.semantic
    }
}

impl Instance {
    /// The phrase that describes it; nothing where exemplars were all there was.
    pub fn phrase(&self) -> Option<&str> {
        self.phrase.as_deref()
    }

    /// Which of the model's queries found it: its row in [`Detection`].
    pub fn query(&self) -> usize {
        self.query
    }

    /// How sure the model is, between 0 and 1: of this object, times [`Instance::presence`].
    pub fn score(&self) -> f32 {
        self.score
    }

    /// How sure the model is that there is anything of the kind, between 0 and 1.
    pub fn presence(&self) -> f32 {
        self.presence
    }

    /// The box, in pixels of the picture, over whose border it may reach a little.
    pub fn rect(&self) -> Rect {
        self.rect
    }

    /// The mask with its low-resolution logits, which [`crate::Prompt::logits`] takes to refine it by clicks.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The mask at the size of the picture.
    pub fn mask(&self) -> Mask {
        self.segment.mask()
    }

    /// The same as runs.
    pub fn rle(&self) -> Rle {
        self.segment.rle()
    }

    /// Size of the picture.
    pub fn size(&self) -> Size {
        self.segment.size()
    }
}

impl Detection {
    pub(super) fn new(phrase: Phrase, detected: Detected, scene: &Scene) -> Self {
        Detection {
            phrase: phrase.text.map(Arc::from),
            cut: phrase.tokens.cut,
            detected,
            upsampler: scene.shared_upsampler(),
            sam: scene.sam().clone(),
        }
    }

    /// The phrase; nothing where exemplars were all there was.
    pub fn phrase(&self) -> Option<&str> {
        self.phrase.as_deref()
    }

    /// Scores of all queries `f32[queries]`, before the sigmoid and without the presence.
    pub fn pred_logits(&self) -> &Tensor {
        &self.detected.logits
    }

    /// Whether there is anything of the kind, `f32[1]`, before the sigmoid.
    pub fn presence_logit(&self) -> &Tensor {
        &self.detected.presence
    }

    /// Boxes of all queries `f32[queries, 4]`: left, top, right, bottom, as shares of width and height.
    pub fn pred_boxes(&self) -> &Tensor {
        &self.detected.boxes
    }

    /// Masks of all queries `f32[queries, side, side]`, before the sigmoid.
    pub fn pred_masks(&self) -> &Tensor {
        &self.detected.masks
    }

    /// Everything of the kind as one mask `f32[1, side, side]`, before the sigmoid.
    pub fn semantic(&self) -> &Tensor {
        &self.detected.semantic
    }

    /// The objects that the question's options let through.
    pub fn answer(&self, find: &Find) -> Result<Answer, TensorError> {
        let presence = sigmoid(first(&self.detected.presence)?);
        let logits = self.detected.logits.to_vec::<f32>()?;
        let scores: Vec<f32> = logits.iter().map(|logit| sigmoid(*logit) * presence).collect();
        let best_score = scores.iter().copied().fold(0.0, f32::max);
        let mut queries: Vec<usize> =
            (0..scores.len()).filter(|&query| scores[query] > find.threshold).collect();
        queries.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let mut instances = Vec::new();
        for query in queries {
            instances.push(self.instance(query, scores[query], presence)?);
        }
        if let Some(overlap) = find.overlap {
            instances = without_overlap(instances, overlap)?;
        }
        let [_, side, _] = [0, 1, 2].map(|axis| self.detected.semantic.shape()[axis]);
        let semantic = self.segment(self.detected.semantic.reshape([side, side])?, presence)?;
        let (phrase, cut) = (self.phrase.clone(), self.cut);
        Ok(Answer { phrase, cut, presence, best_score, instances, semantic })
    }

    fn instance(&self, query: usize, score: f32, presence: f32) -> Result<Instance, TensorError> {
        let Size { width, height } = self.upsampler.size();
        let corners = self.detected.boxes.slice(0, query..query + 1)?.to_vec::<f32>()?;
        let place = |axis: usize, length: usize| f64::from(corners[axis] * length as f32);
        let rect = Rect {
            x0: place(0, width),
            y0: place(1, height),
            x1: place(2, width),
            y1: place(3, height),
        };
        // Copied: a view would keep the masks of all queries in memory.
        let row = self.detected.masks.slice(0, query..query + 1)?;
        let side = row.shape()[1];
        let logits = Tensor::from_vec::<f32>([side, side], row.to_vec()?)?;
        let segment = self.segment(logits, score)?;
        Ok(Instance { phrase: self.phrase.clone(), query, score, presence, rect, segment })
    }

    fn segment(&self, logits: Tensor, score: f32) -> Result<Segment, TensorError> {
        let feedback = self.sam.network().limited(&logits)?;
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

/// Those of the instances, best first, whose mask overlaps none of the better ones by more than `overlap`. Masks are
/// compared in the model's resolution.
fn without_overlap(instances: Vec<Instance>, overlap: f32) -> Result<Vec<Instance>, TensorError> {
    let mut kept: Vec<(Instance, Vec<bool>)> = Vec::new();
    for instance in instances {
        let logits = instance.segment.logits.to_vec::<f32>()?;
        let mask: Vec<bool> = logits.iter().map(|logit| *logit > 0.0).collect();
        if kept.iter().all(|(_, better)| intersection_over_union(better, &mask) <= overlap) {
            kept.push((instance, mask));
        }
    }
    Ok(kept.into_iter().map(|(instance, _)| instance).collect())
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
