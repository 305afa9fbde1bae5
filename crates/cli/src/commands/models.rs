//! `cutout models`: the checkpoints on this machine.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use crate::checkpoints::{Catalogue, Found};
use crate::environment::Environment;
use crate::{format, stdio};

/// List the checkpoints on this machine that hold a SAM 1, 2 or 3
#[derive(Args)]
#[command(after_help = "Examples:
  cutout models
      searches the current folder, checkpoints/, the folders of ComfyUI, and the caches of
      Hugging Face and PyTorch
  cutout models /data/weights sam2.1_hiera_tiny.pt
      searches a folder and reads a file; shows why unreadable files cannot be used
  cutout segment truck.jpg --model sam_vit_b_01ec64.pth --point 520,380
      for a listed file, the file name is enough

Models are identified by the content of the files, not by their names.")]
pub(crate) struct Models {
    /// Files and folders to search instead of the usual folders
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Models {
    pub(crate) fn run(self) -> Result<()> {
        let catalogue = self.search()?;
        for folder in &catalogue.unfinished {
            stdio::note(&format!("{}: too many files, not all were searched", folder.display()));
        }
        if self.json {
            return stdio::print_json(&catalogue.found.iter().map(Record::of).collect::<Vec<_>>());
        }
        if catalogue.found.is_empty() {
            let folders = catalogue.searched.iter().map(|path| format!("\n  {}", path.display()));
            stdio::note(&format!(
                "no checkpoint found (a small model is built in, `cutout pull` fetches others); searched{}",
                folders.collect::<String>()
            ));
            return Ok(());
        }
        stdio::print(&text(&catalogue.found))
    }

    fn search(&self) -> Result<Catalogue> {
        if self.paths.is_empty() {
            return Ok(Catalogue::usual(&Environment::read()));
        }
        let mut catalogue = Catalogue::default();
        for path in &self.paths {
            if !path.exists() {
                bail!("{}: no such file or folder", path.display());
            }
            catalogue.add(path);
        }
        Ok(catalogue)
    }
}

/// A table of models, followed by what is wrong with those that do not run and with unreadable files.
fn text(found: &[Found]) -> String {
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    for file in found {
        match &file.content {
            Ok(content) => {
                rows.push(vec![
                    content.identity.to_string(),
                    content.format.to_string(),
                    format::bytes(file.bytes),
                    if content.problem.is_none() { "yes" } else { "no" }.to_owned(),
                    file.path.display().to_string(),
                ]);
                problems.extend(content.problem.iter().map(|problem| format!("  {problem}")));
            }
            Err(error) => problems.push(format!("  {error}")),
        }
    }
    let mut parts = Vec::new();
    if !rows.is_empty() {
        let head = ["MODEL", "FORMAT", "SIZE", "RUNS", "PATH"];
        rows.insert(0, head.map(str::to_owned).to_vec());
        parts.push(format::table(&rows));
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
            runs: content.is_some_and(|content| content.problem.is_none()),
            error: match &found.content {
                Ok(content) => content.problem.clone(),
                Err(error) => Some(error.to_string()),
            },
        }
    }
}
