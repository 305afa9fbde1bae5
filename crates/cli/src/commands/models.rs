//! `cutout models`: the checkpoints that are already here.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use crate::environment::Environment;
use crate::library::{Catalogue, Found};
use crate::{screen, words};

/// List the checkpoints on this machine that hold a model of the family
#[derive(Args)]
#[command(after_help = "Examples:
  cutout models
      looks around the working directory, in checkpoints/, in the folders of ComfyUI, and in the
      caches of Hugging Face and PyTorch
  cutout models /data/weights sam2.1_hiera_tiny.pt
      looks into a folder and at a file, and says what is wrong with broken ones
  cutout segment truck.jpg --model sam_vit_b_01ec64.pth --point 520,380
      the name is enough for a file that is listed

Models are recognised by what is in the files, never by their names.")]
pub(crate) struct Models {
    /// Files and folders to look at instead of the usual places
    #[arg(value_name = "PLACE")]
    places: Vec<PathBuf>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Models {
    pub(crate) fn run(self) -> Result<()> {
        let catalogue = self.search()?;
        for folder in &catalogue.unfinished {
            screen::note(&format!("{}: too many files to look at all of them", folder.display()));
        }
        if self.json {
            return screen::print_json(&catalogue.found.iter().map(Record::of).collect::<Vec<_>>());
        }
        if catalogue.found.is_empty() {
            let places = catalogue.searched.iter().map(|place| format!("\n  {}", place.display()));
            screen::note(&format!(
                "no checkpoint found (a small model is built in); looked in{}",
                places.collect::<String>()
            ));
            return Ok(());
        }
        screen::print(&text(&catalogue.found))
    }

    fn search(&self) -> Result<Catalogue> {
        if self.places.is_empty() {
            return Ok(Catalogue::usual(&Environment::read()));
        }
        let mut catalogue = Catalogue::default();
        for place in &self.places {
            if !place.exists() {
                bail!("{}: no such file or folder", place.display());
            }
            catalogue.add(place);
        }
        Ok(catalogue)
    }
}

/// A table of models, and below it what is wrong with the rest.
fn text(found: &[Found]) -> String {
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    for file in found {
        match &file.content {
            Ok(content) => rows.push(vec![
                content.identity.to_string(),
                content.format.to_string(),
                words::bytes(file.bytes),
                if cutout_sam::runs(content.identity.family) { "yes" } else { "not yet" }
                    .to_owned(),
                file.path.display().to_string(),
            ]),
            Err(error) => problems.push(format!("  {error}")),
        }
    }
    let mut parts = Vec::new();
    if !rows.is_empty() {
        let head = ["MODEL", "FORMAT", "SIZE", "RUNS", "PATH"];
        rows.insert(0, head.map(str::to_owned).to_vec());
        parts.push(words::table(&rows));
    }
    if !problems.is_empty() {
        parts.push(format!("cannot be used:\n{}", problems.join("\n")));
    }
    parts.join("\n")
}

/// A file as JSON.
#[derive(Serialize)]
struct Record {
    path: String,
    bytes: u64,
    model: Option<String>,
    format: Option<String>,
    /// Whether this version can run it.
    runs: bool,
    error: Option<String>,
}

impl Record {
    fn of(found: &Found) -> Self {
        let content = found.content.as_ref().ok();
        Record {
            path: found.path.display().to_string(),
            bytes: found.bytes,
            model: content.map(|content| content.identity.to_string()),
            format: content.map(|content| content.format.to_string()),
            runs: content.is_some_and(|content| cutout_sam::runs(content.identity.family)),
            error: found.content.as_ref().err().map(ToString::to_string),
        }
    }
}
