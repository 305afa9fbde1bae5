//! `cutout info`: what is in a checkpoint, whether or not it can be run.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use cutout_weights::Checkpoint;

use crate::options::find_model;
use crate::screen;

mod facts;
mod text;

use facts::Facts;

/// Say what a checkpoint holds, and whether it can be run
#[derive(Args)]
#[command(after_help = "Examples:
  cutout info sam_vit_b_01ec64.pth
  cutout info sam2.1_hiera_tiny.pt --tensors
      and every tensor with its type and shape
  cutout info model.safetensors --json | jq .parameters

No tensor is read and no code in the file is run, so this is quick and safe with any file.")]
pub(crate) struct Info {
    /// The checkpoint
    model: PathBuf,
    /// List every tensor with its element type and shape
    #[arg(long)]
    tensors: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Info {
    pub(crate) fn run(self) -> Result<()> {
        let path = find_model(&self.model)?;
        let checkpoint = Checkpoint::open(&path)?;
        let facts = Facts::of(&path, &checkpoint)?;
        match (self.json, self.tensors) {
            (true, with_tensors) => screen::print_json(&facts.to_json(with_tensors)),
            (false, false) => screen::print(&text::summary(&facts)),
            (false, true) => {
                let (summary, tensors) = (text::summary(&facts), text::tensors(&facts));
                screen::print(&format!("{summary}\n\n{tensors}"))
            }
        }
    }
}
