//! Prompts: points, boxes and masks in pixels of the original image.

pub mod text;

use std::fmt;

use cutout_imaging::{Mapping, Size};
use cutout_tensor::{DType, Tensor, TensorType};

use crate::components::prompt_encoder::PointKind;
use crate::parts::Decode;

/// Most points of a prompt, and most exemplars of a query: a program is compiled for each number of them.
pub(crate) const MAX_POINTS: usize = 1024;

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

/// Whether a point lies on the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// It is.
    Positive,
    /// It is not.
    Negative,
}

/// Number of masks returned for a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Candidates {
    /// One, for prompts that leave no doubt.
    One,
    /// Three (part, whole, and in between), for a single click.
    #[default]
    Three,
}

/// A prompt: points, an optional box and the optional logits of an earlier mask.
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

    /// The object in a box, given by its left, top, right and bottom. Asks for one mask.
    pub fn rect(
        x0: impl Into<f64>,
        y0: impl Into<f64>,
        x1: impl Into<f64>,
        y1: impl Into<f64>,
    ) -> Self {
        let (x0, y0, x1, y1) = (x0.into(), y0.into(), x1.into(), y1.into());
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

    /// Adds a point on the object.
    pub fn and(self, x: impl Into<f64>, y: impl Into<f64>) -> Self {
        self.with_point(Point { x: x.into(), y: y.into() }, Label::Positive)
    }

    /// Adds a point outside the object.
    pub fn not(self, x: impl Into<f64>, y: impl Into<f64>) -> Self {
        self.with_point(Point { x: x.into(), y: y.into() }, Label::Negative)
    }

    /// Adds a point.
    pub fn with_point(mut self, point: Point, label: Label) -> Self {
        self.points.push((point, label));
        self
    }

    /// Sets the box.
    pub fn with_rect(mut self, rect: Rect) -> Self {
        self.rect = Some(rect);
        self
    }

    /// Sets the low-resolution logits to refine.
    pub fn with_logits(mut self, logits: Tensor) -> Self {
        self.logits = Some(logits);
        self
    }

    /// Sets the number of masks to return.
    pub fn candidates(mut self, candidates: Candidates) -> Self {
        self.candidates = candidates;
        self
    }

    /// Number of masks to return.
    pub fn wanted(&self) -> Candidates {
        self.candidates
    }

    /// Whether the prompt has mask logits.
    pub(crate) fn has_logits(&self) -> bool {
        self.logits.is_some()
    }

    /// The prompt with at most this many points, corners of the box included: of more, the first half and the last half of
    /// that number.
    pub(crate) fn shortened(&self, most: usize) -> Prompt {
        let corners = if self.rect.is_some() { 2 } else { 0 };
        let mut short = self.clone();
        if self.points.len() + corners > most {
            let (first, last) = ((most / 2).saturating_sub(corners), most - most / 2);
            short.points.drain(first..self.points.len() - last);
        }
        short
    }

    /// Key of prompts that can share a batch: number of points, whether there is a box, whether there are logits, and
    /// the number of masks.
    pub(crate) fn shape(&self) -> (usize, bool, bool, Candidates) {
        (self.points.len(), self.rect.is_some(), self.logits.is_some(), self.candidates)
    }

    /// Checks every coordinate against an image of that size, and logits against the side of a model's low-resolution
    /// masks.
    pub(crate) fn check(&self, size: Size, mask_side: usize) -> Result<(), PromptError> {
        if self.points.is_empty() && self.rect.is_none() && self.logits.is_none() {
            return Err(PromptError::Empty);
        }
        let points = self.points.len();
        if points > MAX_POINTS {
            return Err(PromptError::TooManyPoints { points });
        }
        self.points.iter().try_for_each(|(point, _)| check_point(*point, size))?;
        self.rect.map_or(Ok(()), |rect| check_rect(rect, size))?;
        let wanted = TensorType::new(DType::F32, [mask_side, mask_side]);
        match &self.logits {
            Some(logits) if *logits.ty() != wanted => {
                Err(PromptError::MaskShape { side: mask_side })
            }
            Some(logits) => match logits.first_not_finite() {
                Ok(Some((element, value))) => Err(PromptError::MaskValue { element, value }),
                Ok(None) | Err(_) => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Points, box corners and padding in the order of the prompt encoder; empty for a prompt that is only a mask.
    fn tokens(&self, order: TokenOrder) -> Vec<(Point, PointKind)> {
        let kind = |label| match label {
            Label::Positive => PointKind::Positive,
            Label::Negative => PointKind::Negative,
        };
        let points = self.points.iter().map(|(point, label)| (*point, kind(*label)));
        let corners = self.rect.into_iter().flat_map(|Rect { x0, y0, x1, y1 }| {
            [
                (Point { x: x0, y: y0 }, PointKind::TopLeft),
                (Point { x: x1, y: y1 }, PointKind::BottomRight),
            ]
        });
        let padding = (Point { x: 0.0, y: 0.0 }, PointKind::Padding);
        if self.points.is_empty() && self.rect.is_none() {
            return Vec::new();
        }
        match order {
            TokenOrder::CornersLast if self.rect.is_some() => points.chain(corners).collect(),
            TokenOrder::CornersLast => points.chain([padding]).collect(),
            TokenOrder::CornersFirst => corners.chain(points).chain([padding]).collect(),
        }
    }
}

/// Whether a point lies on an image or on its border.
fn is_inside(x: f64, y: f64, Size { width, height }: Size) -> bool {
    (0.0..=width as f64).contains(&x) && (0.0..=height as f64).contains(&y)
}

/// Rejects a point outside an image of that size.
pub(crate) fn check_point(point: Point, size: Size) -> Result<(), PromptError> {
    if is_inside(point.x, point.y, size) {
        return Ok(());
    }
    let Size { width, height } = size;
    Err(PromptError::PointOutside { point, width, height })
}

/// Rejects a box that reaches outside an image of that size or has no area.
pub(crate) fn check_rect(rect: Rect, size: Size) -> Result<(), PromptError> {
    let Size { width, height } = size;
    if !(is_inside(rect.x0, rect.y0, size) && is_inside(rect.x1, rect.y1, size)) {
        return Err(PromptError::RectOutside { rect, width, height });
    }
    if rect.x0 >= rect.x1 || rect.y0 >= rect.y1 {
        return Err(PromptError::RectEmpty(rect));
    }
    Ok(())
}

/// The order in which a family's prompt encoder gets points, box corners and padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenOrder {
    /// SAM 1: points, then the box's corners; padding only where there is no box.
    CornersLast,
    /// SAM 2 and 3: the box's corners, points, and always padding.
    CornersFirst,
}

/// One batch of prompts, as tensors.
pub(crate) struct PromptBatch {
    /// `f32[prompts, points, 2]`, in pixels of the model's input.
    pub(crate) points: Tensor,
    /// `i64[prompts, points]`.
    pub(crate) kinds: Tensor,
    /// Logits of earlier answers, `f32[prompts, side, side, 1]`.
    pub(crate) masks: Option<Tensor>,
}

impl PromptBatch {
    /// The program that answers the batch.
    pub(crate) fn part(&self, wanted: Candidates) -> Decode {
        let (prompts, points) = (self.kinds.shape()[0], self.kinds.shape()[1]);
        Decode { prompts, points, masks: self.masks.is_some(), wanted }
    }

    /// Several prompts as tensors. All have the same number of points and boxes, and all or none have logits, which are
    /// `f32[mask_side, mask_side]`.
    pub(crate) fn of(
        prompts: &[&Prompt],
        mapping: &Mapping,
        order: TokenOrder,
        mask_side: usize,
    ) -> Result<PromptBatch, PromptError> {
        prompts.iter().try_for_each(|prompt| prompt.check(mapping.original, mask_side))?;
        let tokens: Vec<Vec<(Point, PointKind)>> =
            prompts.iter().map(|prompt| prompt.tokens(order)).collect();
        let points = tokens.first().map_or(0, Vec::len);
        let masked = prompts.first().is_some_and(|prompt| prompt.logits.is_some());
        let same = tokens.iter().all(|tokens| tokens.len() == points)
            && prompts.iter().all(|prompt| prompt.logits.is_some() == masked);
        if !same {
            return Err(PromptError::Mixed);
        }
        let all = || tokens.iter().flatten();
        let place = |point: &Point| {
            let (x, y) = mapping.to_model(point.x, point.y);
            [x as f32, y as f32]
        };
        let coordinates: Vec<f32> = all().flat_map(|(point, _)| place(point)).collect();
        let kinds: Vec<i64> = all().map(|(_, kind)| *kind as i64).collect();
        let wrong = |_| PromptError::MaskShape { side: mask_side };
        let mut logits = Vec::new();
        for mask in prompts.iter().filter_map(|prompt| prompt.logits.as_ref()) {
            logits.extend(mask.to_vec::<f32>().map_err(wrong)?);
        }
        let count = prompts.len();
        let masks = masked.then(|| Tensor::from_vec([count, mask_side, mask_side, 1], logits));
        Ok(PromptBatch {
            points: Tensor::from_vec([count, points, 2], coordinates).map_err(wrong)?,
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
    /// The prompt is empty.
    #[error("the prompt has no point, no box and no mask")]
    Empty,
    /// A point outside the image.
    #[error("the point {point} lies outside the image, which is {width} by {height} pixels")]
    PointOutside {
        /// The point.
        point: Point,
        /// Width of the image.
        width: usize,
        /// Height of the image.
        height: usize,
    },
    /// A box that reaches outside the image.
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
    /// More points than a prompt, or more exemplars than a query, may have.
    #[error("{points} points or boxes in one prompt; at most {MAX_POINTS} are allowed")]
    TooManyPoints {
        /// How many there are.
        points: usize,
    },
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
    /// A mask with NaN or infinity in it.
    #[error("mask logits must be finite numbers: element {element} is {value}")]
    MaskValue {
        /// Position in row-major order.
        element: usize,
        /// Its value.
        value: f64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_stands_for_a_missing_box() {
        let kinds = |prompt: &Prompt, order| {
            prompt.tokens(order).iter().map(|(_, kind)| *kind).collect::<Vec<_>>()
        };
        use PointKind::{BottomRight, Negative, Padding, Positive, TopLeft};
        use TokenOrder::{CornersFirst, CornersLast};
        let clicked = Prompt::point(1, 2).not(3, 4);
        assert_eq!(kinds(&clicked, CornersLast), [Positive, Negative, Padding]);
        assert_eq!(kinds(&clicked, CornersFirst), [Positive, Negative, Padding]);
        let boxed = Prompt::point(1, 2).with_rect(Rect { x0: 0.0, y0: 0.0, x1: 5.0, y1: 5.0 });
        assert_eq!(kinds(&boxed, CornersLast), [Positive, TopLeft, BottomRight]);
        assert_eq!(kinds(&boxed, CornersFirst), [TopLeft, BottomRight, Positive, Padding]);
        let mask = Prompt::logits(Tensor::scalar(0f32));
        assert_eq!(kinds(&mask, CornersLast), []);
        assert_eq!(kinds(&mask, CornersFirst), []);
    }

    #[test]
    fn coordinates_are_checked_against_the_image() {
        let size = Size::new(10, 9);
        assert_eq!(Prompt::default().check(size, 4), Err(PromptError::Empty));
        assert!(Prompt::point(10, 9).check(size, 4).is_ok());
        for outside in [Prompt::point(10.5, 3), Prompt::point(-0.1, 3), Prompt::point(f64::NAN, 3)]
        {
            assert!(matches!(outside.check(size, 4), Err(PromptError::PointOutside { .. })));
        }
        let clicked = |points| {
            let point = (Point { x: 1.0, y: 2.0 }, Label::Positive);
            Prompt { points: vec![point; points], ..Prompt::default() }.check(size, 4)
        };
        assert!(clicked(MAX_POINTS).is_ok());
        let too_many = PromptError::TooManyPoints { points: MAX_POINTS + 1 };
        assert_eq!(clicked(MAX_POINTS + 1), Err(too_many));
        let flat = Prompt::rect(1.0, 1.0, 1.0, 5.0).check(size, 4);
        assert!(matches!(flat, Err(PromptError::RectEmpty(_))));
        let wide = Prompt::rect(1.0, 1.0, 12.0, 5.0).check(size, 4);
        assert!(matches!(wide, Err(PromptError::RectOutside { .. })));
        let zeros = |side: usize| Tensor::from_vec([side, side], vec![0f32; side * side]).unwrap();
        let refused = Err(PromptError::MaskShape { side: 4 });
        assert!(Prompt::logits(zeros(4)).check(size, 4).is_ok());
        assert_eq!(Prompt::logits(zeros(3)).check(size, 4), refused);
        for bad in [f32::NAN, f32::INFINITY] {
            let mut logits = vec![0f32; 16];
            logits[7] = bad;
            let prompt = Prompt::logits(Tensor::from_vec([4, 4], logits).unwrap());
            let found = prompt.check(size, 4);
            assert!(matches!(found, Err(PromptError::MaskValue { element: 7, .. })), "{found:?}");
        }
        let whole = Tensor::from_vec([4, 4], vec![0i64; 16]).unwrap();
        assert_eq!(Prompt::logits(whole).check(size, 4), refused);
    }

    #[test]
    fn a_batch_is_in_pixels_of_the_model() {
        let mapping = Mapping {
            original: Size::new(2000, 1001),
            content: Size::new(1024, 513),
            model: Size::square(1024),
        };
        let batch = |prompts: &[&Prompt], side| {
            PromptBatch::of(prompts, &mapping, TokenOrder::CornersLast, side)
        };
        let clicked = batch(&[&Prompt::point(2000, 1001), &Prompt::point(1000, 0)], 8).unwrap();
        let points = clicked.points.to_vec::<f32>().unwrap();
        assert_eq!(points, [1024.0, 513.0, 0.0, 0.0, 512.0, 0.0, 0.0, 0.0]);
        assert_eq!(clicked.kinds.to_vec::<i64>().unwrap(), [2, 0, 2, 0]);
        let boxed = Prompt::rect(0.0, 0.0, 9.0, 9.0);
        let mixed = batch(&[&Prompt::point(1, 1).and(2, 2), &boxed], 8);
        assert_eq!(mixed.err(), Some(PromptError::Mixed));
        let masked = boxed.with_logits(Tensor::from_vec([4, 4], vec![0f32; 16]).unwrap());
        assert_eq!(batch(&[&masked], 8).err(), Some(PromptError::MaskShape { side: 8 }));
        assert_eq!(batch(&[&masked], 4).unwrap().masks.unwrap().shape()[..], [1, 4, 4, 1]);
    }
}
