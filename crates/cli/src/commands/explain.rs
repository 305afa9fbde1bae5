//! `cutout explain`: the compiled graphs of a model.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use cutout_sam::ExplainError;

use crate::failure::Usage;
use crate::options::{ModelSource, RunOptions};
use crate::stdio;

/// Show the compiled graph of a model: ops, memory plan, cost of each op
#[derive(Args)]
#[command(after_help = "Examples:
  cutout explain sam_vit_b_01ec64.pth --part decoder
  cutout explain sam_vit_b_01ec64.pth --part encoder --after fold_constants")]
pub(crate) struct Explain {
    /// Checkpoint, the file name of one that `cutout models` lists, or built-in
    model: PathBuf,
    /// Part of the model: encoder, prepare_image or decoder; SAM 2 also has follow (one tracked frame); SAM 3 also has
    /// find_features, text and detector
    #[arg(long, default_value = "encoder")]
    part: String,
    /// Show the graph after this pass instead of after all passes
    #[arg(long, value_name = "PASS")]
    after: Option<String>,
    #[command(flatten)]
    run: RunOptions,
}

impl Explain {
    pub(crate) fn run(self) -> Result<()> {
        let model = ModelSource::named(&self.model)?;
        let sam = model.open(self.run.profile(model.file())?)?;
        match sam.explain(&self.part, self.after.as_deref()) {
            Ok(text) => stdio::print(text.trim_end()),
            Err(error @ ExplainError::Part { .. }) => Err(Usage::error(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }
}
