//! What is looked for.

use cutout_imaging::Size;

use super::FindError;
use crate::model::Model;
use crate::model::config::{Exemplars, FinderConfig};
use crate::model::tokenizer::{PhraseError, Tokens};
use crate::prompt::{Label, Point, PromptError, Rect, check_point, check_rect};

/// What SAM 3 reads where exemplars come without a phrase.
pub const VISUAL: &str = "visual";

/// Objects with a higher score than this are found, unless another threshold is asked for.
const THRESHOLD: f32 = 0.5;

/// Characters of a phrase that an error quotes.
const QUOTED: usize = 60;

/// A question for [`crate::Scene::find`]: phrases, examples of what is looked for and of what is not, and how sure the
/// model must be.
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

/// Exemplars as the geometry encoder takes them, coordinates in 0..1.
#[derive(Clone, Debug, Default)]
pub(super) struct ExemplarBatch {
    /// Centre x, centre y, width, height.
    pub(super) boxes: Vec<[f32; 4]>,
    /// 1 looked for, 0 not.
    pub(super) box_labels: Vec<i64>,
    /// x, y.
    pub(super) points: Vec<[f32; 2]>,
    /// 1 looked for, 0 not.
    pub(super) point_labels: Vec<i64>,
}

/// A phrase with its tokens.
pub(super) struct Phrase {
    /// Nothing where exemplars are all there is.
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
    /// Everything that a phrase describes.
    pub fn phrase(phrase: impl Into<String>) -> Self {
        Find::default().and(phrase)
    }

    /// Everything like what is in a box.
    pub fn like(rect: Rect) -> Self {
        Find::default().with_rect(rect, Label::Positive)
    }

    /// Everything that this phrase describes too. Each phrase is answered for itself; exemplars go with all of them.
    pub fn and(mut self, phrase: impl Into<String>) -> Self {
        self.phrases.push(phrase.into());
        self
    }

    /// With a box around an example of what is looked for, or of what is not.
    pub fn with_rect(mut self, rect: Rect, label: Label) -> Self {
        self.boxes.push((rect, label));
        self
    }

    /// With a point on an example of what is looked for, or of what is not.
    pub fn with_point(mut self, point: Point, label: Label) -> Self {
        self.points.push((point, label));
        self
    }

    /// With objects whose score is higher than this, between 0 and 1: 0.5 if nothing is said.
    pub fn threshold(mut self, threshold: f32) -> Self {
        self.threshold = threshold;
        self
    }

    /// Without objects whose mask overlaps that of a better one of the same phrase by more than this, as intersection over
    /// union between 0 and 1. If nothing is said, all stay.
    pub fn without_overlap(mut self, overlap: f32) -> Self {
        self.overlap = Some(overlap);
        self
    }

    /// The phrases, in their order.
    pub fn phrases(&self) -> &[String] {
        &self.phrases
    }

    /// Checks everything but the phrases; the exemplars as the model takes them on a picture of that size.
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

    /// The phrases as tokens; exemplars alone have one that stands for them.
    pub(super) fn read(&self, model: &Model) -> Result<Vec<Phrase>, FindError> {
        let context = model.config().finder()?.text.context;
        let encode = |text: &str| {
            let tokens = model.tokenizer().encode(text, context)?;
            // Blanks, control characters and entities of blanks leave a start and an end.
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
