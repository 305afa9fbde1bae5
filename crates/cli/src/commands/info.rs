//! `cutout info`: the contents of a checkpoint.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::options::ModelSource;
use crate::stdio;

mod facts;
mod text;

use facts::Facts;

/// Show what a checkpoint holds, and whether it can be run
#[derive(Args)]
#[command(after_help = "Examples:
  cutout info sam_vit_b_01ec64.pth
  cutout info sam2.1_hiera_tiny.pt --tensors
      also lists every tensor with its type and shape
  cutout info model.safetensors --json | jq .parameters

Only names and shapes are read, and no code in the file is run: fast and safe for any file.")]
pub(crate) struct Info {
    /// Checkpoint, the file name of one that `cutout models` lists, or built-in
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
        let checkpoint = ModelSource::named(&self.model)?.checkpoint()?;
        let facts = Facts::of(&checkpoint);
        match (self.json, self.tensors) {
            (true, with_tensors) => stdio::print_json(&facts.to_json(with_tensors)),
            (false, false) => stdio::print(&text::summary(&facts)),
            (false, true) => {
                let (summary, tensors) = (text::summary(&facts), text::tensors(&facts));
                stdio::print(&format!("{summary}\n\n{tensors}"))
            }
        }
    }
}
