//! Ctrl-C: the process ends at once and removes incomplete files.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::stdio;

/// Exit code of a process that Ctrl-C ended: 128 and the number of the signal, as shells report it.
pub(crate) const EXIT_CODE: u8 = 130;

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

/// Ctrl-C was pressed, and the command ended early.
#[derive(Debug, thiserror::Error)]
#[error("interrupted: what is written is complete")]
pub(crate) struct Interrupted;

/// Whether Ctrl-C was pressed.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Returns an error if Ctrl-C was pressed, because the work is incomplete.
pub(crate) fn check() -> Result<()> {
    if requested() { Err(anyhow::Error::new(Interrupted)) } else { Ok(()) }
}

/// Installs the handler of Ctrl-C.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if GRACEFUL.load(Ordering::Relaxed) && !REQUESTED.swap(true, Ordering::Relaxed) {
            return;
        }
        cutout_files::remove_unfinished();
        stdio::note(&format!("\n{}", MESSAGE.lock().unwrap_or_else(PoisonError::into_inner)));
        std::process::exit(EXIT_CODE.into());
    })
    .context("cannot install the handler of Ctrl-C")
}
