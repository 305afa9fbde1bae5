//! `cutout compare`: what a precision gives and costs, for one model on the user's own pictures.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use cutout_sam::Device;
use serde_json::json;

use crate::card::{Candidate, Questions, table};
use crate::options::{ModelSource, PrecisionName, parse_device, parse_threads};
use crate::{picture, stdio};

/// Compare precisions with f32: errors, masks, time and memory
#[derive(Args)]
#[command(after_help = "Examples:
  cutout compare sam_vit_b_01ec64.pth --precision bf16,int8 --images photos
  cutout compare sam3.pt --precision bf16 --images street.jpg --text \"yellow bus\" --json

Each picture is asked 16 clicks on a grid and 5 boxes, and the phrases given. Errors are
relative to f32, over all numbers. IoU is that of each mask with the f32 mask of the same
candidate, mean and least; `choice` is the share of prompts whose best candidate is another.
Times are medians; memory is what the process holds after the last picture. Parts that the
profile beside the checkpoint names keep their precision, except in the reference.")]
pub(crate) struct Compare {
    /// Checkpoint, as for `--model` of other commands; `built-in` names the built-in model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Precisions to compare with f32, separated by commas
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "bf16,int8")]
    precision: Vec<PrecisionName>,
    /// Picture, or folder of pictures
    #[arg(long, value_name = "DIR")]
    images: PathBuf,
    /// At most this many pictures of the folder, by name
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=256))]
    limit: u32,
    /// Phrase to find (SAM 3); may be repeated
    #[arg(long, value_name = "PHRASE")]
    text: Vec<String>,
    /// Device: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    device: Option<Device>,
    /// Number of threads; by default one per core
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<NonZeroUsize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Compare {
    pub(crate) fn run(self) -> Result<()> {
        let source = ModelSource::named(&self.model)?;
        let mut pictures = picture::pictures_in(&self.images)?;
        pictures.truncate(self.limit as usize);
        let count = pictures.len();
        let Compare { text, device, threads, .. } = self;
        let questions = Questions { pictures, text, device, threads };
        let run_in = |precision: PrecisionName| {
            let name = precision.name().to_owned();
            Candidate { name, source: &source, precision }
        };
        let others: Vec<_> = self.precision.into_iter().map(run_in).collect();
        let rows = questions.rows(&run_in(PrecisionName::F32), &others)?;
        if self.json {
            return stdio::print_json(&json!({ "pictures": count, "precisions": rows }));
        }
        stdio::print(&table(&rows))
    }
}
