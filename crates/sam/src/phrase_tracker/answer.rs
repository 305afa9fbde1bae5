//! What is told of a frame.

use std::collections::BTreeSet;

use cutout_imaging::{Mask, Rle, Size};

use super::options::PhraseTrackError;
use crate::tracker::ObjectId;

/// One object on one frame.
#[derive(Clone, Debug)]
pub struct PhraseObject {
    /// Its number, from 1 on; never used again.
    pub id: ObjectId,
    /// Position of its phrase among those that were asked for.
    pub phrase: usize,
    /// Probability of the detection that started it.
    pub score: f32,
    /// Probability that it is visible on this frame; for a new object, its score.
    pub probability: f32,
    /// Logit of it being visible; `None` for a new object.
    pub object_score: Option<f32>,
    /// IoU predicted for the mask; `None` for a new object.
    pub iou: Option<f32>,
    /// Probability that the frame has any object of the phrase.
    pub presence: f32,
    /// Its pixels. Objects of one phrase share none.
    pub mask: Rle,
}

/// The objects of a frame, in the order of their numbers.
#[derive(Clone, Debug)]
pub struct PhraseFrame {
    /// Number of the frame, from 0 on.
    pub frame: usize,
    /// The objects that are visible.
    pub objects: Vec<PhraseObject>,
    /// The phrases that were asked for.
    pub phrases: Vec<String>,
}

/// A frame whose objects may still turn out to be none.
pub(super) struct UnfinishedFrame {
    frame: usize,
    size: Size,
    pub(super) objects: Vec<PhraseObject>,
}

impl UnfinishedFrame {
    pub(super) fn new(frame: usize, size: Size) -> Self {
        UnfinishedFrame { frame, size, objects: Vec::new() }
    }

    /// The frame without hidden objects; each pixel belongs to the most probable object of a phrase.
    pub(super) fn finish(
        self,
        hidden: &BTreeSet<usize>,
        phrases: &[String],
    ) -> Result<PhraseFrame, PhraseTrackError> {
        let visible = |object: &PhraseObject| {
            object.mask.area() > 0 && !hidden.contains(&(object.id as usize))
        };
        let mut objects: Vec<PhraseObject> = self.objects.into_iter().filter(visible).collect();
        objects.sort_by_key(|object| object.id);
        for phrase in 0..phrases.len() {
            let own = objects.iter_mut().filter(|object| object.phrase == phrase);
            separate(self.size, own.collect())?;
        }
        Ok(PhraseFrame { frame: self.frame, objects, phrases: phrases.to_vec() })
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
