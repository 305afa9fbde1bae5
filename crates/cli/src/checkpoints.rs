//! Search for checkpoints on this machine, in the folders where people and programs keep them.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use cutout_sam::inspect;
use cutout_weights::layout::Identity;
use cutout_weights::{Checkpoint, Format, WeightsError};

use crate::environment::Environment;

mod folders;
mod walk;

use folders::{SearchFolder, usual};
use walk::Walk;

/// Search depth below a folder given on the command line.
const DEPTH_OF_NAMED: usize = 6;
/// Extensions of checkpoints: a file with one of them is listed even if it cannot be read.
const EXTENSIONS: [&str; 7] = ["safetensors", "pt", "pth", "gguf", "bin", "ckpt", "ggml"];

/// A file that holds a model, or looks like one that should.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) content: Result<Content, WeightsError>,
}

/// Model and format of a checkpoint.
pub(crate) struct Content {
    pub(crate) identity: Identity,
    pub(crate) format: Format,
    /// Why it cannot be run, on one line with the file's name: what `info` and `segment` say. `None` if it runs.
    pub(crate) problem: Option<String>,
}

/// Result of a search.
#[derive(Default)]
pub(crate) struct Catalogue {
    pub(crate) found: Vec<Found>,
    /// Folders with more entries than the search visits.
    pub(crate) unfinished: Vec<PathBuf>,
    /// The existing folders that were searched.
    pub(crate) searched: Vec<PathBuf>,
    known: HashSet<PathBuf>,
}

impl Catalogue {
    /// The models in the usual folders. Other files are skipped.
    pub(crate) fn usual(environment: &Environment) -> Self {
        let mut catalogue = Catalogue::default();
        for start in usual(environment) {
            catalogue.search(&start, |_, content| content.is_ok());
        }
        catalogue
    }

    /// Adds a file or folder given on the command line. Unreadable files with the extension of a checkpoint are listed with
    /// the reason.
    pub(crate) fn add(&mut self, path: &Path) {
        if !path.is_dir() {
            self.look(path, |_, _| true);
            return;
        }
        let start = SearchFolder { folder: path.to_owned(), depth: DEPTH_OF_NAMED };
        self.search(&start, |path, content| content.is_ok() || has_known_extension(path));
    }

    fn search(
        &mut self,
        start: &SearchFolder,
        keep: impl Fn(&Path, &Result<Content, WeightsError>) -> bool,
    ) {
        let mut walk = Walk::new(start);
        for path in &mut walk {
            self.look(&path, &keep);
        }
        if walk.is_unfinished() {
            self.unfinished.push(start.folder.clone());
        }
        self.searched.push(start.folder.clone());
    }

    /// Opens one file, unless it was already opened under another name.
    fn look(&mut self, path: &Path, keep: impl Fn(&Path, &Result<Content, WeightsError>) -> bool) {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if !self.known.insert(real) {
            return;
        }
        let content = content(path);
        if keep(path, &content) {
            let bytes = fs::metadata(path).map_or(0, |found| found.len());
            self.found.push(Found { path: path.to_owned(), bytes, content });
        }
    }
}

/// The model in a file. Reads names and shapes of the tensors only.
fn content(path: &Path) -> Result<Content, WeightsError> {
    let checkpoint = Checkpoint::open(path)?;
    let inspection = inspect(&checkpoint)?;
    let (identity, problem) = (inspection.identity, inspection.problem());
    Ok(Content { identity, format: checkpoint.format(), problem })
}

fn has_known_extension(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str()))
}

/// The cache of Hugging Face's hub; `None` without a home folder.
pub(crate) fn hub_folder(environment: &Environment) -> Option<PathBuf> {
    folders::hub(environment)
}

/// The folder in which PyTorch keeps downloaded checkpoints; `None` without a home folder.
pub(crate) fn torch_folder(environment: &Environment) -> Option<PathBuf> {
    folders::torch(environment)
}

/// The first file with this name in the usual folders.
pub(crate) fn named(name: &OsStr, environment: &Environment) -> Option<PathBuf> {
    let has_name = |path: &PathBuf| path.file_name() == Some(name);
    usual(environment).iter().find_map(|start| Walk::new(start).find(has_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An environment with a home folder and nothing else.
    fn at(home: &Path) -> Environment {
        Environment { home: Some(home.to_owned()), ..Environment::default() }
    }

    #[test]
    fn names_are_found_in_caches() {
        let home = std::env::temp_dir().join(format!("cutout-checkpoints-{}", std::process::id()));
        let snapshot =
            home.join(".cache/huggingface/hub/models--facebook--sam/snapshots/0123abc/model.pt");
        let torch = home.join(".cache/torch/hub/checkpoints/other.pth");
        for path in [&snapshot, &torch] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "not a checkpoint").unwrap();
        }
        assert_eq!(named(OsStr::new("model.pt"), &at(&home)), Some(snapshot));
        assert_eq!(named(OsStr::new("other.pth"), &at(&home)), Some(torch));
        assert_eq!(named(OsStr::new("absent.pth"), &at(&home)), None);
        let found = Catalogue::usual(&at(&home)).found;
        assert!(found.iter().all(|file| !file.path.starts_with(&home)), "neither is a model");
        fs::remove_dir_all(&home).unwrap();
    }
}
