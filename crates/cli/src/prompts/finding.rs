//! Phrases and exemplars as they are written on the command line.

use anyhow::Result;
use clap::Args;
use cutout_imaging::Size;
use cutout_sam::{Find, Label, Point, Rect};

use super::{PromptOptions, parse_number, parse_numbers};
use crate::failure::Usage;

/// What to find.
#[derive(Args)]
#[command(next_help_heading = "What to find (SAM 3)")]
pub(crate) struct FindOptions {
    /// Find every object that a phrase describes. Again for more phrases
    #[arg(long = "text", value_name = "PHRASE")]
    phrases: Vec<String>,
    /// A box around an example of what to find, or a point on one; with - in front of it, of what not. Again for more
    /// examples
    #[arg(long = "exemplar", value_name = "[+|-]X0,Y0,X1,Y1|X,Y", value_parser = parse_exemplar, allow_hyphen_values = true)]
    exemplars: Vec<(Place, Label)>,
    /// One mask of everything that a phrase describes, whatever its score, instead of one for each object
    #[arg(long)]
    semantic: bool,
    /// Leave out objects whose mask overlaps that of a better one of the same phrase by more than this, as IoU
    #[arg(long, value_name = "IOU", value_parser = parse_number, allow_negative_numbers = true)]
    mask_nms_thresh: Option<f32>,
}

/// Where an example is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Rect(Rect),
    Point(Point),
}

impl FindOptions {
    /// Whether masks of whole phrases are wanted.
    pub(crate) fn semantic(&self) -> bool {
        self.semantic
    }

    /// The question for a picture of `size`; nothing where no phrase and no exemplar is given.
    pub(crate) fn question(
        &self,
        prompts: &PromptOptions,
        size: Size,
        threshold: Option<f32>,
    ) -> Result<Option<Find>> {
        if self.phrases.is_empty() && self.exemplars.is_empty() {
            if self.semantic || self.mask_nms_thresh.is_some() {
                return Err(Usage::error(
                    "--semantic and --mask-nms-thresh go with --text or --exemplar",
                ));
            }
            return Ok(None);
        }
        if !prompts.is_empty() {
            return Err(Usage::error(
                "--text and --exemplar find objects, --point, --box, --mask-input and --multimask show one: ask one after the other",
            ));
        }
        let mut find = Find::default();
        for phrase in &self.phrases {
            find = find.and(phrase);
        }
        for (place, label) in &self.exemplars {
            find = match place {
                Place::Rect(rect) => find.with_rect(prompts.rect_in_pixels(*rect, size), *label),
                Place::Point(point) => find.with_point(prompts.in_pixels(*point, size), *label),
            };
        }
        if let Some(threshold) = threshold {
            find = find.threshold(threshold);
        }
        if let Some(overlap) = self.mask_nms_thresh {
            find = find.without_overlap(overlap);
        }
        Ok(Some(find))
    }
}

fn parse_exemplar(text: &str) -> Result<(Place, Label), String> {
    let (label, numbers) = match (text.strip_prefix('-'), text.strip_prefix('+')) {
        (Some(numbers), _) => (Label::Negative, numbers),
        (None, Some(numbers)) => (Label::Positive, numbers),
        (None, None) => (Label::Positive, text),
    };
    let place = match parse_numbers(numbers)?[..] {
        [x0, y0, x1, y1] => Place::Rect(Rect { x0, y0, x1, y1 }),
        [x, y] => Place::Point(Point { x, y }),
        _ => return Err("expected X0,Y0,X1,Y1 (a box) or X,Y (a point)".to_owned()),
    };
    Ok((place, label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_labels() {
        let rect = Place::Rect(Rect { x0: 1.0, y0: 2.0, x1: 3.0, y1: 4.0 });
        let point = Place::Point(Point { x: 5.0, y: 6.5 });
        for (text, place, label) in [
            ("1,2,3,4", rect, Label::Positive),
            ("+1,2,3,4", rect, Label::Positive),
            ("-1,2,3,4", rect, Label::Negative),
            ("5,6.5", point, Label::Positive),
            ("-5,6.5", point, Label::Negative),
        ] {
            assert_eq!(parse_exemplar(text), Ok((place, label)), "{text}");
        }
        for wrong in ["", "-", "1,2,3", "1", "1,2,3,4,5", "+a,b,c,d", "1,nan"] {
            assert!(parse_exemplar(wrong).is_err(), "{wrong}");
        }
    }
}
