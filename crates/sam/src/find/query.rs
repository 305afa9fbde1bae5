//! Queries: phrases and exemplars.

use cutout_imaging::Size;

use super::FindError;
use crate::model::Model;
use crate::model::config::{Exemplars, FinderConfig};
use crate::model::tokenizer::{PhraseError, Tokens};
use crate::prompt::{Label, MAX_POINTS, Point, PromptError, Rect, check_point, check_rect};

/// Phrase that SAM 3 reads when exemplars come without one.
pub const VISUAL: &str = "visual";

/// Default score threshold.
const THRESHOLD: f32 = 0.5;

/// Characters of a phrase that an error quotes.
const QUOTED: usize = 60;

/// A query for [`crate::Scene::find`]: phrases, positive and negative exemplars, and thresholds.
///
/// ```
/// use cutout_sam::{Find, Rect};
///
/// let find = Find::phrase("yellow bus").and("tram").threshold(0.4);
/// let rect = Rect { x0: 10.0, y0: 20.0, x1: 200.0, y1: 180.0 };
/// let like_this = Find::like(rect);
/// # let _ = (find, like_this);
/// ```
#[derive(Clone, Debug)]
pub struct Find {
    phrases: Vec<String>,
    boxes: Vec<(Rect, Label)>,
    points: Vec<(Point, Label)>,
    pub(super) threshold: f32,
    pub(super) overlap: Option<f32>,
}

/// Exemplars in the geometry encoder's format, coordinates in 0..1.
#[derive(Clone, Debug, Default)]
pub(super) struct ExemplarBatch {
    /// Centre x, centre y, width, height.
    pub(super) boxes: Vec<[f32; 4]>,
    /// 1 positive, 0 negative.
    pub(super) box_labels: Vec<i64>,
    /// x, y.
    pub(super) points: Vec<[f32; 2]>,
    /// 1 positive, 0 negative.
    pub(super) point_labels: Vec<i64>,
}

/// A phrase with its tokens.
pub(super) struct Phrase {
    /// `None` for exemplars without a phrase.
    pub(super) text: Option<String>,
    pub(super) tokens: Tokens,
}

impl Default for Find {
    fn default() -> Self {
        Find {
            phrases: Vec::new(),
            boxes: Vec::new(),
            points: Vec::new(),
            threshold: THRESHOLD,
            overlap: None,
        }
    }
}

impl From<&str> for Find {
    fn from(phrase: &str) -> Self {
        Find::phrase(phrase)
    }
}

impl From<&Find> for Find {
    fn from(find: &Find) -> Self {
        find.clone()
    }
}

impl<const N: usize> From<[&str; N]> for Find {
    fn from(phrases: [&str; N]) -> Self {
        Find { phrases: phrases.map(str::to_owned).to_vec(), ..Find::default() }
    }
}

impl Find {
    /// All objects that a phrase describes.
    pub fn phrase(phrase: impl Into<String>) -> Self {
        Find::default().and(phrase)
    }

    /// All objects similar to the one in a box.
    pub fn like(rect: Rect) -> Self {
        Find::default().with_rect(rect, Label::Positive)
    }

    /// Adds a phrase. Each phrase is a separate query; exemplars apply to all of them.
    pub fn and(mut self, phrase: impl Into<String>) -> Self {
        self.phrases.push(phrase.into());
        self
    }

    /// Adds a box exemplar, positive or negative.
    pub fn with_rect(mut self, rect: Rect, label: Label) -> Self {
        self.boxes.push((rect, label));
        self
    }

    /// Adds a point exemplar, positive or negative.
    pub fn with_point(mut self, point: Point, label: Label) -> Self {
        self.points.push((point, label));
        self
    }

    /// Keeps objects with a score above this, between 0 and 1. Default: 0.5.
    pub fn threshold(mut self, threshold: f32) -> Self {
        self.threshold = threshold;
        self
    }

    /// Suppresses objects whose mask has an IoU above this with a higher-scoring object of the same phrase, between 0
    /// and 1. Default: no suppression.
    pub fn without_overlap(mut self, overlap: f32) -> Self {
        self.overlap = Some(overlap);
        self
    }

    /// Adds the exemplars of another query.
    pub(crate) fn with_exemplars_of(mut self, other: &Find) -> Self {
        self.boxes.extend_from_slice(&other.boxes);
        self.points.extend_from_slice(&other.points);
        self
    }

    /// The box exemplars, in their order.
    pub fn rects(&self) -> &[(Rect, Label)] {
        &self.boxes
    }

    /// Whether there are exemplars.
    pub fn has_exemplars(&self) -> bool {
        !self.boxes.is_empty() || !self.points.is_empty()
    }

    /// The phrases, in their order.
    pub fn phrases(&self) -> &[String] {
        &self.phrases
    }

    /// Checks everything but the phrases and returns the exemplars in relative coordinates.
    pub(super) fn check(
        &self,
        finder: &FinderConfig,
        size: Size,
    ) -> Result<ExemplarBatch, FindError> {
        if self.phrases.is_empty() && self.boxes.is_empty() && self.points.is_empty() {
            return Err(FindError::Nothing);
        }
        let numbers = [("the threshold", Some(self.threshold)), ("the overlap", self.overlap)];
        for (what, value) in numbers {
            if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
                return Err(FindError::OutOfRange { what, value });
            }
        }
        match finder.detector.exemplars {
            Exemplars::Boxes if !self.points.is_empty() => return Err(FindError::NoPoints),
            Exemplars::Boxes | Exemplars::BoxesAndPoints => {}
        }
        Ok(self.exemplars(size)?)
    }

    fn exemplars(&self, size: Size) -> Result<ExemplarBatch, PromptError> {
        let (width, height) = (size.width as f64, size.height as f64);
        let number = |label: &Label| match label {
            Label::Positive => 1,
            Label::Negative => 0,
        };
        let points = self.boxes.len() + self.points.len();
        if points > MAX_POINTS {
            return Err(PromptError::TooManyPoints { points });
        }
        let mut batch = ExemplarBatch::default();
        for (rect, label) in &self.boxes {
            check_rect(*rect, size)?;
            let (x0, x1) = (rect.x0 / width, rect.x1 / width);
            let (y0, y1) = (rect.y0 / height, rect.y1 / height);
            let place = [(x0 + x1) / 2.0, (y0 + y1) / 2.0, x1 - x0, y1 - y0];
            batch.boxes.push(place.map(|number| number as f32));
            batch.box_labels.push(number(label));
        }
        for (point, label) in &self.points {
            check_point(*point, size)?;
            batch.points.push([(point.x / width) as f32, (point.y / height) as f32]);
            batch.point_labels.push(number(label));
        }
        Ok(batch)
    }

    /// Tokenizes the phrases. Exemplars without a phrase get [`VISUAL`].
    pub(super) fn read(&self, model: &Model) -> Result<Vec<Phrase>, FindError> {
        let context = model.config().finder()?.text.context;
        let encode = |text: &str| {
            let tokens = model.tokenizer().encode(text, context)?;
            // A phrase of whitespace or control characters has only the start and end tokens.
            if tokens.numbers.len() <= 2 { Err(PhraseError::Empty) } else { Ok(tokens) }
        };
        let quoted = |text: &str| text.chars().take(QUOTED).collect();
        let phrase = |text: &str| {
            encode(text).map_err(|source| FindError::Phrase { phrase: quoted(text), source })
        };
        if self.phrases.is_empty() {
            return Ok(vec![Phrase { text: None, tokens: phrase(VISUAL)? }]);
        }
        let read = |text: &String| Ok(Phrase { text: Some(text.clone()), tokens: phrase(text)? });
        self.phrases.iter().map(read).collect()
    }
}
