//! Phrases and exemplars as they are written on the command line.

use anyhow::Result;
use clap::Args;
use cutout_imaging::Size;
use cutout_sam::{Find, Label, Rect};

use super::{PromptOptions, parse_rect};
use crate::failure::Usage;

/// What to find.
#[derive(Args)]
#[command(next_help_heading = "What to find (SAM 3)")]
pub(crate) struct FindOptions {
    /// Find every object that a phrase describes. Again for more phrases
    #[arg(long = "text", value_name = "PHRASE")]
    phrases: Vec<String>,
    /// A box around an example of what to find; with - in front of it, of what not. Again for more examples
    #[arg(long = "exemplar", value_name = "[+|-]X0,Y0,X1,Y1", value_parser = parse_exemplar, allow_hyphen_values = true)]
    exemplars: Vec<(Rect, Label)>,
    /// One mask of everything that a phrase describes instead of one for each object
    #[arg(long)]
    semantic: bool,
    /// Leave out objects whose mask overlaps that of a better one of the same phrase by more than this, as IoU
    #[arg(long, value_name = "IOU")]
    mask_nms_thresh: Option<f32>,
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
        for (rect, label) in &self.exemplars {
            find = find.with_rect(prompts.rect_in_pixels(*rect, size), *label);
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

fn parse_exemplar(text: &str) -> Result<(Rect, Label), String> {
    let (label, numbers) = match (text.strip_prefix('-'), text.strip_prefix('+')) {
        (Some(numbers), _) => (Label::Negative, numbers),
        (None, Some(numbers)) => (Label::Positive, numbers),
        (None, None) => (Label::Positive, text),
    };
    parse_rect(numbers).map(|rect| (rect, label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_labels() {
        let rect = Rect { x0: 1.0, y0: 2.0, x1: 3.0, y1: 4.0 };
        for (text, label) in [
            ("1,2,3,4", Label::Positive),
            ("+1,2,3,4", Label::Positive),
            ("-1,2,3,4", Label::Negative),
        ] {
            assert_eq!(parse_exemplar(text), Ok((rect, label)), "{text}");
        }
        for wrong in ["", "-", "1,2,3", "+a,b,c,d"] {
            assert!(parse_exemplar(wrong).is_err(), "{wrong}");
        }
    }
}
