//! Phrases and exemplars on the command line.

use anyhow::Result;
use clap::Args;
use cutout_imaging::Size;
use cutout_sam::prompt_text::{ExemplarShape, parse_exemplar};
use cutout_sam::{Find, Label};

use super::{PromptOptions, parse_share};
use crate::failure::Usage;

/// Flags of phrases and exemplars.
#[derive(Args)]
#[command(next_help_heading = "What to find (SAM 3)")]
pub(crate) struct FindOptions {
    /// Find every object that this phrase describes. Repeat for more phrases
    #[arg(long = "text", value_name = "PHRASE")]
    phrases: Vec<String>,
    /// Find objects like this example, given by a box or a point; with a leading -, objects unlike it. Repeat for more
    /// examples
    #[arg(long = "exemplar", value_name = "[+|-]X0,Y0,X1,Y1|X,Y", value_parser = parse_exemplar, allow_hyphen_values = true)]
    exemplars: Vec<(ExemplarShape, Label)>,
    /// One mask per phrase that covers everything it describes, instead of one mask per object
    #[arg(long)]
    semantic: bool,
    /// Drop an object if the IoU of its mask with a higher-scoring one of the same phrase exceeds this
    #[arg(long, value_name = "IOU", value_parser = parse_share, allow_negative_numbers = true)]
    mask_nms_thresh: Option<f32>,
}

impl FindOptions {
    /// Whether `--semantic` is given.
    pub(crate) fn semantic(&self) -> bool {
        self.semantic
    }

    /// The query for a picture of `size`; `None` without a phrase or exemplar.
    pub(crate) fn question(
        &self,
        prompts: &PromptOptions,
        size: Size,
        threshold: Option<f32>,
    ) -> Result<Option<Find>> {
        if self.phrases.is_empty() && self.exemplars.is_empty() {
            if self.semantic || self.mask_nms_thresh.is_some() {
                return Err(Usage::error(
                    "--semantic and --mask-nms-thresh require --text or --exemplar",
                ));
            }
            return Ok(None);
        }
        if !prompts.is_empty() {
            return Err(Usage::error(
                "--text and --exemplar cannot be combined with --point, --box, --mask-input or --multimask: run them one after the other",
            ));
        }
        let mut find = Find::default();
        for phrase in &self.phrases {
            find = find.and(phrase);
        }
        for (shape, label) in &self.exemplars {
            find = match shape {
                ExemplarShape::Rect(rect) => {
                    find.with_rect(prompts.rect_in_pixels(*rect, size), *label)
                }
                ExemplarShape::Point(point) => {
                    find.with_point(prompts.in_pixels(*point, size), *label)
                }
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
