//! Ctrl-C: the process ends at once, and leaves no half-written file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::screen;

/// Folders that this process writes to.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Takes care of Ctrl-C from now on.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        remove_temporary_files();
        screen::note("\ninterrupted: files that were not complete are removed");
        std::process::exit(1);
    })
    .context("cannot take care of Ctrl-C")
}

/// Says that files will be written beside `file`.
pub(crate) fn writes_beside(file: &Path) {
    let folder = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    if !folders.iter().any(|known| known == folder) {
        folders.push(folder.to_owned());
    }
}

/// Every file is written under a temporary name with this process's number in it, and renamed when it is complete.
fn remove_temporary_files() {
    let mark = format!(".cutout-{}-", std::process::id());
    let folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    for entry in entries.filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with(&mark) {
            // Nobody is left to tell if this fails.
            let _ignored = fs::remove_file(entry.path());
        }
    }
}
