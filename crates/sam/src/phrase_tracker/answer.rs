//! What is told of a frame.

use std::collections::BTreeSet;

use cutout_imaging::{Mask, Rle, Size};
use cutout_tensor::Tensor;

use super::options::PhraseTrackError;
use crate::tracker::ObjectId;

/// One object on one frame.
#[derive(Clone, Debug)]
pub struct PhraseObject {
    /// Its number, from 1 on; never used again.
    pub id: ObjectId,
    /// Position of its phrase among those that were asked for; `None` for an object that a user pointed at.
    pub phrase: Option<usize>,
    /// Probability of the detection that started it; 1 for an object that a user pointed at.
    pub score: f32,
    /// Probability that it is visible on this frame; for a new object, its score.
    pub probability: f32,
    /// Logit of it being visible; `None` for a new object.
    pub object_score: Option<f32>,
    /// IoU predicted for the mask; `None` for a new object.
    pub iou: Option<f32>,
    /// Probability that the frame has any object of the phrase, if the frame was searched for it.
    pub presence: Option<f32>,
    /// Its pixels. Objects of one phrase share none.
    pub mask: Rle,
    /// Logits of the model, `f32[side, side]`, if [`PhraseOptions::logits`](crate::PhraseOptions::logits) asks for them. They are
    /// not changed where objects share pixels.
    pub logits: Option<Tensor>,
}

/// An object that was shown and turned out to be none: answers were not held back until that was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenBack {
    /// The object.
    pub id: ObjectId,
    /// First frame on which it was shown.
    pub first: usize,
    /// Last frame on which it was shown.
    pub last: usize,
}

/// The objects of a frame, in the order of their numbers.
#[derive(Clone, Debug)]
pub struct PhraseFrame {
    /// Number of the frame, from 0 on.
    pub frame: usize,
    /// The objects that are visible.
    pub objects: Vec<PhraseObject>,
    /// The phrases that were asked for; exemplars alone are `visual`.
    pub phrases: Vec<String>,
    /// Objects of earlier answers that turned out to be none since the last answer.
    pub taken_back: Vec<TakenBack>,
}

impl PhraseFrame {
    /// The phrase of an object.
    pub fn phrase_of(&self, object: &PhraseObject) -> Option<&str> {
        self.phrases.get(object.phrase?).map(String::as_str)
    }
}

/// A frame whose objects may still turn out to be none.
#[derive(Debug)]
pub(super) struct UnfinishedFrame {
    frame: usize,
    size: Size,
    pub(super) objects: Vec<PhraseObject>,
}

impl UnfinishedFrame {
    pub(super) fn new(frame: usize, size: Size) -> Self {
        UnfinishedFrame { frame, size, objects: Vec::new() }
    }

    pub(super) fn frame(&self) -> usize {
        self.frame
    }

    /// Puts an object in the place of what was known about it.
    pub(super) fn replace(&mut self, object: PhraseObject) {
        self.objects.retain(|other| other.id != object.id);
        self.objects.push(object);
    }

    /// Bytes of its masks.
    pub(super) fn bytes(&self) -> usize {
        let logits = |object: &PhraseObject| object.logits.as_ref().map_or(0, |it| it.ty().bytes());
        let runs = |object: &PhraseObject| size_of_val(object.mask.counts());
        self.objects.iter().map(|object| runs(object) + logits(object)).sum()
    }

    /// The frame without hidden objects; each pixel belongs to the most probable object of a phrase.
    pub(super) fn finish(
        self,
        hidden: &BTreeSet<usize>,
        phrases: Vec<String>,
        taken_back: Vec<TakenBack>,
    ) -> Result<PhraseFrame, PhraseTrackError> {
        let visible = |object: &PhraseObject| {
            object.mask.area() > 0 && !hidden.contains(&(object.id as usize))
        };
        let mut objects: Vec<PhraseObject> = self.objects.into_iter().filter(visible).collect();
        objects.sort_by_key(|object| object.id);
        let of: BTreeSet<Option<usize>> = objects.iter().map(|object| object.phrase).collect();
        for phrase in of {
            let own = objects.iter_mut().filter(|object| object.phrase == phrase);
            separate(self.size, own.collect())?;
        }
        Ok(PhraseFrame { frame: self.frame, objects, phrases, taken_back })
    }
}

/// Leaves each pixel to the most probable object, the first of equals.
fn separate(size: Size, mut objects: Vec<&mut PhraseObject>) -> Result<(), PhraseTrackError> {
    if objects.len() < 2 {
        return Ok(());
    }
    objects.sort_by(|a, b| b.probability.total_cmp(&a.probability).then(a.id.cmp(&b.id)));
    let mut taken = Mask::empty(size)?;
    for object in objects {
        let mut mask = object.mask.to_mask()?;
        for (pixel, taken) in mask.pixels_mut().iter_mut().zip(taken.pixels_mut()) {
            *pixel &= !*taken;
            *taken |= *pixel;
        }
        object.mask = mask.to_rle()?;
    }
    Ok(())
}
