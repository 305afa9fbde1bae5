//! Results of a query.

use std::sync::Arc;

use cutout_graph::{DeviceValue, Ports};
use cutout_imaging::{ImageError, Mask, Rle, Size, Upsampler};
use cutout_tensor::{Tensor, TensorError};

use super::query::{Find, Phrase};
use super::sightings::{QueryAnswers, Sighting, Sightings, masks_of};
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
    tensors: parts::RawDetections<Tensor>,
    making: Making,
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
    /// Fetches the objects that a query asks for.
    pub(super) fn fetch(
        phrase: Phrase,
        values: &parts::RawDetections<DeviceValue>,
        scene: &Scene,
        find: &Find,
    ) -> Result<Self, ModelError> {
        let found = Sightings::fetch(values, find, scene.size())?;
        let semantic = values.semantic.fetch()?;
        Ok(Making::new(phrase, scene).detections(found, &semantic)?)
    }

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
        Ok(RawDetections { tensors, making: Making::new(phrase, scene) })
    }

    /// The phrase; `None` for exemplars without a phrase.
    pub fn phrase(&self) -> Option<&str> {
        self.making.phrase.as_deref()
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
        let parts::RawDetections { logits, presence, boxes, masks, semantic } = &self.tensors;
        let answers = QueryAnswers { logits, presence, boxes, size: self.making.upsampler.size() };
        let sightings: Result<Sightings<Tensor>, TensorError> = answers.select(find, |queries| {
            let area = masks.shape()[1..].iter().product();
            let all = masks.reshape([masks.shape().elements()])?;
            masks_of(queries, area, |elements| all.slice(0, elements))
        });
        self.making.detections(sightings?, semantic)
    }
}

/// What detections are made with.
#[derive(Clone)]
struct Making {
    phrase: Option<Arc<str>>,
    cut: bool,
    upsampler: Arc<Upsampler>,
    logit_limit: Option<f32>,
}

impl Making {
    fn new(phrase: Phrase, scene: &Scene) -> Self {
        Making {
            phrase: phrase.text.map(Arc::from),
            cut: phrase.tokens.cut,
            upsampler: Arc::clone(scene.upsampler()),
            logit_limit: scene.sam().model().config().processing().logit_limit,
        }
    }

    /// `semantic`: `f32[1, side, side]`.
    fn detections(
        &self,
        found: Sightings<Tensor>,
        semantic: &Tensor,
    ) -> Result<Detections, TensorError> {
        let Sightings { presence, best_score, detections: mut sighted } = found;
        sighted.sort_by(|a, b| b.score.total_cmp(&a.score));
        let [_, side, _] = [0, 1, 2].map(|axis| semantic.shape()[axis]);
        let detection = |Sighting { query, score, rect, mask }: Sighting<Tensor>| {
            // Copied: a view would keep the masks of other queries in memory.
            let logits = Tensor::from_vec::<f32>([side, side], mask.to_vec()?)?;
            let segment = self.segment(logits, score)?;
            Ok(Detection { phrase: self.phrase.clone(), query, score, presence, rect, segment })
        };
        let detections = sighted.into_iter().map(detection).collect::<Result<_, TensorError>>()?;
        let semantic = self.segment(semantic.reshape([side, side])?, presence)?;
        let (phrase, cut) = (self.phrase.clone(), self.cut);
        Ok(Detections { phrase, cut, presence, best_score, detections, semantic })
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
