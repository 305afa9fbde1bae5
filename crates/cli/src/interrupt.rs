//! Ctrl-C: the process ends at once and removes incomplete files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow};

use crate::stdio;

/// Folders that this process writes to.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// What is said after Ctrl-C.
static MESSAGE: Mutex<&str> = Mutex::new("interrupted: incomplete files are removed");

/// Whether the running command polls [`requested`] and ends by itself.
static GRACEFUL: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Declares that the running command polls [`requested`]: the first Ctrl-C lets it finish, the second ends the process.
pub(crate) fn finish_gracefully() {
    GRACEFUL.store(true, Ordering::Relaxed);
}

/// Sets what is said after Ctrl-C.
pub(crate) fn say(message: &'static str) {
    *MESSAGE.lock().unwrap_or_else(PoisonError::into_inner) = message;
}

/// Whether Ctrl-C was pressed.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Returns an error if Ctrl-C was pressed, because the work is incomplete.
pub(crate) fn check() -> Result<()> {
    if requested() { Err(anyhow!("interrupted: what is written is complete")) } else { Ok(()) }
}

/// Installs the handler of Ctrl-C.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if GRACEFUL.load(Ordering::Relaxed) && !REQUESTED.swap(true, Ordering::Relaxed) {
            return;
        }
        remove_temporary_files();
        stdio::note(&format!("\n{}", MESSAGE.lock().unwrap_or_else(PoisonError::into_inner)));
        std::process::exit(1);
    })
    .context("cannot install the handler of Ctrl-C")
}

/// Registers the folder of `file` for the clean-up after Ctrl-C.
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

/// Removes the temporary files of this process, which have its id in their names.
fn remove_temporary_files() {
    let mark = format!(".cutout-{}-", std::process::id());
    let folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    for entry in entries.filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with(&mark) {
            // The process ends, so errors are ignored.
            let _ignored = fs::remove_file(entry.path());
            let _ignored = fs::remove_dir_all(entry.path());
        }
    }
}
