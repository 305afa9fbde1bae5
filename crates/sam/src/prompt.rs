//! What a user points at, in pixels of the original image.

use std::fmt;

use cutout_tensor::Tensor;

use crate::model::PromptBatch;
use crate::prompt_encoder::PointKind;

/// A position in the original image: x to the right, y down, in pixels, from the upper left corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// To the right.
    pub x: f64,
    /// Down.
    pub y: f64,
}

/// A box in the original image, from its upper left to its lower right corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rect {
    /// Left.
    pub x0: f64,
    /// Top.
    pub y0: f64,
    /// Right.
    pub x1: f64,
    /// Bottom.
    pub y1: f64,
}

/// Whether a point is part of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// It is.
    Positive,
    /// It is not.
    Negative,
}

/// How many masks an answer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Candidates {
    /// One, for prompts that leave no doubt.
    One,
    /// Three (part, whole, and in between), for a single click.
    #[default]
    Three,
}

/// A question: points, perhaps a box, perhaps the mask of an earlier answer.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    points: Vec<(Point, Label)>,
    rect: Option<Rect>,
    logits: Option<Tensor>,
    candidates: Candidates,
}

impl Prompt {
    /// The object at a point.
    pub fn point(x: impl Into<f64>, y: impl Into<f64>) -> Self {
        Prompt::default().and(x, y)
    }

    /// The object in a box, given by its left, top, right and bottom. A box leaves little doubt: one mask.
    pub fn rect(x0: f64, y0: f64, x1: f64, y1: f64) -> Self {
        Prompt {
            rect: Some(Rect { x0, y0, x1, y1 }),
            candidates: Candidates::One,
            ..Prompt::default()
        }
    }

    /// The object of an earlier answer's low-resolution logits, `f32[side, side]`.
    pub fn logits(logits: Tensor) -> Self {
        Prompt { logits: Some(logits), candidates: Candidates::One, ..Prompt::default() }
    }

    /// This point is part of it too.
    pub fn and(self, x: impl Into<f64>, y: impl Into<f64>) -> Self {
        self.with_point(Point { x: x.into(), y: y.into() }, Label::Positive)
    }

    /// This point is not part of it.
    pub fn not(self, x: impl Into<f64>, y: impl Into<f64>) -> Self {
        self.with_point(Point { x: x.into(), y: y.into() }, Label::Negative)
    }

    /// One more point.
    pub fn with_point(mut self, point: Point, label: Label) -> Self {
        self.points.push((point, label));
        self
    }

    /// Inside this box.
    pub fn with_rect(mut self, rect: Rect) -> Self {
        self.rect = Some(rect);
        self
    }

    /// Starting from an earlier answer's low-resolution logits.
    pub fn with_logits(mut self, logits: Tensor) -> Self {
        self.logits = Some(logits);
        self
    }

    /// With this many masks in the answer.
    pub fn candidates(mut self, candidates: Candidates) -> Self {
        self.candidates = candidates;
        self
    }

    /// How many masks the answer has.
    pub fn wanted(&self) -> Candidates {
        self.candidates
    }

    /// Checks every coordinate against an image of `width` by `height` pixels.
    fn check(&self, width: usize, height: usize) -> Result<(), PromptError> {
        if self.points.is_empty() && self.rect.is_none() && self.logits.is_none() {
            return Err(PromptError::Empty);
        }
        let inside = |x: f64, y: f64| {
            (0.0..=width as f64).contains(&x) && (0.0..=height as f64).contains(&y)
        };
        for (point, _) in &self.points {
            if !inside(point.x, point.y) {
                return Err(PromptError::PointOutside { point: *point, width, height });
            }
        }
        match self.rect {
            Some(rect) if !(inside(rect.x0, rect.y0) && inside(rect.x1, rect.y1)) => {
                Err(PromptError::RectOutside { rect, width, height })
            }
            Some(rect) if rect.x0 >= rect.x1 || rect.y0 >= rect.y1 => {
                Err(PromptError::RectEmpty(rect))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The points as the model takes them: points, then padding if there is no box, then the box's corners.
    fn tokens(&self) -> Vec<(Point, PointKind)> {
        let kind = |label| match label {
            Label::Positive => PointKind::Positive,
            Label::Negative => PointKind::Negative,
        };
        let mut tokens: Vec<(Point, PointKind)> =
            self.points.iter().map(|(point, label)| (*point, kind(*label))).collect();
        match self.rect {
            Some(Rect { x0, y0, x1, y1 }) => tokens.extend([
                (Point { x: x0, y: y0 }, PointKind::TopLeft),
                (Point { x: x1, y: y1 }, PointKind::BottomRight),
            ]),
            None => tokens.push((Point { x: 0.0, y: 0.0 }, PointKind::Padding)),
        }
        tokens
    }
}

/// The sizes that prompts are mapped between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Width and height of the original image.
    pub original: [usize; 2],
    /// Width and height of the part of the model's input that shows the image.
    pub input: [usize; 2],
}

impl Mapping {
    /// SAM 1's: the long side becomes `side` pixels, the other follows, rounded.
    pub fn long_side(original: [usize; 2], side: usize) -> Self {
        let scale = side as f64 / original[0].max(original[1]).max(1) as f64;
        let input = original.map(|length| (length as f64 * scale + 0.5) as usize);
        Mapping { original, input }
    }

    /// A position of the original image in pixels of the model's input.
    pub fn to_input(&self, point: Point) -> Point {
        let ratio = |axis: usize| self.input[axis] as f64 / self.original[axis] as f64;
        Point { x: point.x * ratio(0), y: point.y * ratio(1) }
    }
}

impl PromptBatch {
    /// Several prompts as tensors. All have the same number of points and boxes, and all or none bring logits, which are
    /// `f32[mask_side, mask_side]`.
    pub fn of(
        prompts: &[Prompt],
        mapping: &Mapping,
        mask_side: usize,
    ) -> Result<PromptBatch, PromptError> {
        let [width, height] = mapping.original;
        prompts.iter().try_for_each(|prompt| prompt.check(width, height))?;
        let tokens: Vec<Vec<(Point, PointKind)>> = prompts.iter().map(Prompt::tokens).collect();
        let points = tokens.first().map_or(0, Vec::len);
        let masked = prompts.first().is_some_and(|prompt| prompt.logits.is_some());
        let same = tokens.iter().all(|tokens| tokens.len() == points)
            && prompts.iter().all(|prompt| prompt.logits.is_some() == masked);
        if !same {
            return Err(PromptError::Mixed);
        }
        let place = |point: Point| mapping.to_input(point);
        let all = || tokens.iter().flatten();
        let places: Vec<f32> =
            all().flat_map(|(point, _)| [place(*point).x as f32, place(*point).y as f32]).collect();
        let kinds: Vec<i64> = all().map(|(_, kind)| *kind as i64).collect();
        let wrong = |_| PromptError::MaskShape { side: mask_side };
        let mut logits = Vec::new();
        for mask in prompts.iter().filter_map(|prompt| prompt.logits.as_ref()) {
            if mask.shape()[..] != [mask_side, mask_side] {
                return Err(PromptError::MaskShape { side: mask_side });
            }
            logits.extend(mask.to_vec::<f32>().map_err(wrong)?);
        }
        let count = prompts.len();
        let masks = masked.then(|| Tensor::from_vec([count, mask_side, mask_side, 1], logits));
        Ok(PromptBatch {
            points: Tensor::from_vec([count, points, 2], places).map_err(wrong)?,
            kinds: Tensor::from_vec([count, points], kinds).map_err(wrong)?,
            masks: masks.transpose().map_err(wrong)?,
        })
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.x, self.y)
    }
}

impl fmt::Display for Rect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {}) to ({}, {})", self.x0, self.y0, self.x1, self.y1)
    }
}

/// What is wrong with a prompt.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PromptError {
    /// Nothing was asked.
    #[error("the prompt has no point, no box and no mask")]
    Empty,
    /// A point beside the image.
    #[error("the point {point} lies outside the image, which is {width} by {height} pixels")]
    PointOutside {
        /// The point.
        point: Point,
        /// Width of the image.
        width: usize,
        /// Height of the image.
        height: usize,
    },
    /// A box beside the image.
    #[error("the box {rect} reaches outside the image, which is {width} by {height} pixels")]
    RectOutside {
        /// The box.
        rect: Rect,
        /// Width of the image.
        width: usize,
        /// Height of the image.
        height: usize,
    },
    /// A box without area, or with its corners exchanged.
    #[error("the box {0} has no area: it goes from upper left to lower right")]
    RectEmpty(Rect),
    /// Prompts of different shapes in one batch.
    #[error(
        "prompts of one batch must have the same number of points and boxes, and all or none a mask"
    )]
    Mixed,
    /// A mask of another size.
    #[error("mask logits must be f32[{side}, {side}]")]
    MaskShape {
        /// Side of the model's low-resolution masks.
        side: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_stands_for_a_missing_box() {
        let kinds =
            |prompt: &Prompt| prompt.tokens().iter().map(|(_, kind)| *kind).collect::<Vec<_>>();
        let clicked = Prompt::point(1, 2).not(3, 4);
        assert_eq!(kinds(&clicked), [PointKind::Positive, PointKind::Negative, PointKind::Padding]);
        let boxed = clicked.with_rect(Rect { x0: 0.0, y0: 0.0, x1: 5.0, y1: 5.0 });
        assert_eq!(kinds(&boxed)[2..], [PointKind::TopLeft, PointKind::BottomRight]);
    }

    #[test]
    fn coordinates_are_checked_against_the_image() {
        assert_eq!(Prompt::default().check(10, 10), Err(PromptError::Empty));
        assert!(Prompt::point(10, 10).check(10, 10).is_ok());
        for outside in [Prompt::point(10.5, 3), Prompt::point(-0.1, 3), Prompt::point(f64::NAN, 3)]
        {
            assert!(matches!(outside.check(10, 10), Err(PromptError::PointOutside { .. })));
        }
        assert!(matches!(
            Prompt::rect(1.0, 1.0, 1.0, 5.0).check(9, 9),
            Err(PromptError::RectEmpty(_))
        ));
        assert!(matches!(
            Prompt::rect(1.0, 1.0, 12.0, 5.0).check(9, 9),
            Err(PromptError::RectOutside { .. })
        ));
    }

    #[test]
    fn a_batch_is_in_pixels_of_the_model() {
        let mapping = Mapping::long_side([2000, 1001], 1024);
        assert_eq!(mapping.input, [1024, 513]);
        let prompts = [Prompt::point(2000, 1001), Prompt::point(1000, 0)];
        let batch = PromptBatch::of(&prompts, &mapping, 8).unwrap();
        let points = batch.points.to_vec::<f32>().unwrap();
        assert_eq!(points, [1024.0, 513.0, 0.0, 0.0, 512.0, 0.0, 0.0, 0.0]);
        assert_eq!(batch.kinds.to_vec::<i64>().unwrap(), [2, 0, 2, 0]);
        let boxed = Prompt::rect(0.0, 0.0, 9.0, 9.0);
        let mixed = [Prompt::point(1, 1).and(2, 2), boxed.clone()];
        assert_eq!(PromptBatch::of(&mixed, &mapping, 8).err(), Some(PromptError::Mixed));
        let mask = Tensor::from_vec([4, 4], vec![0f32; 16]).unwrap();
        let masked = [boxed.with_logits(mask)];
        assert_eq!(
            PromptBatch::of(&masked, &mapping, 8).err(),
            Some(PromptError::MaskShape { side: 8 })
        );
        assert_eq!(
            PromptBatch::of(&masked, &mapping, 4).unwrap().masks.unwrap().shape()[..],
            [1, 4, 4, 1]
        );
    }
}
