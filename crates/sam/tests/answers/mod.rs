//! Shared by tests of predictors: pictures, prompts and expected masks of the fixtures.
#![allow(dead_code, reason = "no test file needs all of it")]
#![allow(unreachable_pub, reason = "it is a module of test files")]

use cutout_sam::imaging::{Image, Size};
use cutout_sam::{Label, Masks, Point, Prompt, Rect};
use cutout_tensor::{Tensor, Tolerance, compare};

pub const PICTURES: [&str; 2] = ["landscape", "portrait"];
pub const PROMPTS: [&str; 6] = ["point", "points", "box", "box_point", "point_logits", "logits"];

/// Share of mask pixels that may differ: the order of sums can move a logit across the threshold.
const DIFFERENT: f64 = 0.001;

/// Looks up a tensor of one run by name.
pub type Part<'a> = &'a dyn Fn(&str) -> Option<Tensor>;

/// A picture from `u8[height, width, 3]`.
pub fn picture(pixels: &Tensor) -> Image {
    let size = Size::new(pixels.shape()[1], pixels.shape()[0]);
    Image::from_rgb(size, pixels.to_vec::<u8>().unwrap()).unwrap()
}

/// A box from left, top, right, bottom.
pub fn rect(corners: &[f64]) -> Rect {
    let [x0, y0, x1, y1] = corners[..] else { panic!("a box has four numbers") };
    Rect { x0, y0, x1, y1 }
}

/// Label from a number: 1 is positive.
pub fn label(number: f64) -> Label {
    if number == 1.0 { Label::Positive } else { Label::Negative }
}

/// A click, box or mask in pixels of its picture: `points` and `labels`, `box`, `logits`.
pub fn prompt(part: Part<'_>) -> Prompt {
    let numbers = |name: &str| Some(part(name)?.to_f64_vec().unwrap());
    let mut prompt = Prompt::default();
    if let (Some(points), Some(labels)) = (numbers("points"), numbers("labels")) {
        for (place, number) in points.chunks(2).zip(labels) {
            prompt = prompt.with_point(Point { x: place[0], y: place[1] }, label(number));
        }
    }
    if let Some(corners) = numbers("box") {
        prompt = prompt.with_rect(rect(&corners));
    }
    match part("logits") {
        Some(logits) => prompt.with_logits(logits),
        None => prompt,
    }
}

/// Compares an answer with the predictor's: `low_res`, `iou`, and as far as they are there `object_score` and `masks`.
pub fn check(about: &str, part: Part<'_>, masks: &Masks) {
    let [low_res, iou] = ["low_res", "iou"]
        .map(|name| part(name).unwrap_or_else(|| panic!("{about}: the fixture has no {name}")));
    let (object_score, expected) = (part("object_score"), part("masks"));
    assert_eq!(masks.len(), low_res.shape()[0], "{about}");
    let side = low_res.shape()[1];
    let (mut different, mut pixels) = (0usize, 0usize);
    for (index, segment) in masks.iter().enumerate() {
        let row = |tensor: &Tensor| tensor.slice(0, index..index + 1).unwrap();
        let logits = row(&low_res).reshape([side, side]).unwrap();
        let difference = compare(segment.logits(), &logits, Tolerance::Stage).unwrap();
        assert!(difference.within, "{about}, logits of mask {index}: {difference}");
        let near = |found: f32, wanted: &Tensor, what: &str| {
            let (found, wanted) = (f64::from(found), wanted.to_f64_vec().unwrap()[0]);
            assert!(
                (found - wanted).abs() < 1e-4,
                "{about}, {what} {index}: {found}, not {wanted}"
            );
        };
        near(segment.iou(), &row(&iou), "IoU of mask");
        if let Some(score) = &object_score {
            near(segment.object_score().unwrap(), score, "object score of mask");
        }
        let Some(expected) = &expected else { continue };
        let (mask, wanted) = (segment.mask().unwrap(), row(expected).to_vec::<u8>().unwrap());
        assert_eq!(mask.pixels().len(), wanted.len(), "{about}");
        different += mask.pixels().iter().zip(&wanted).filter(|(a, b)| **a != (**b == 1)).count();
        pixels += wanted.len();
    }
    let share = different as f64 / f64::max(pixels as f64, 1.0);
    assert!(share <= DIFFERENT, "{about}: {different} of {pixels} pixels differ");
}
