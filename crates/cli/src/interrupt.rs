//! Ctrl-C: the process ends at once, and leaves no half-written file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow};

use crate::screen;

/// Folders that this process writes to.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Whether the work under way looks at [`requested`] and ends by itself.
static GRACEFUL: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Says that the work under way looks at [`requested`]: the first Ctrl-C lets it end by itself, the second does not wait.
pub(crate) fn finish_gracefully() {
    GRACEFUL.store(true, Ordering::Relaxed);
}

/// Whether Ctrl-C was pressed.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Fails if Ctrl-C was pressed: the command did not do all it was asked for.
pub(crate) fn check() -> Result<()> {
    if requested() { Err(anyhow!("interrupted: what is written is complete")) } else { Ok(()) }
}

/// Takes care of Ctrl-C from now on.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if GRACEFUL.load(Ordering::Relaxed) && !REQUESTED.swap(true, Ordering::Relaxed) {
            return;
        }
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
            let _ignored = fs::remove_dir_all(entry.path());
        }
    }
}
