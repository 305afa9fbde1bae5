//! Ctrl-C, SIGTERM and SIGHUP: the process ends at once and removes incomplete files, unless the command ends by itself.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::stdio;

/// What is said after a signal.
static MESSAGE: Mutex<&str> = Mutex::new("interrupted: incomplete files are removed");

/// Whether the running command polls [`requested`] and ends by itself.
static GRACEFUL: AtomicBool = AtomicBool::new(false);
/// Number of the first signal; 0 before it.
static RECEIVED: AtomicI32 = AtomicI32::new(0);

/// Number of the signal of Ctrl-C.
const CTRL_C: i32 = 2;

/// Declares that the running command polls [`requested`]: the first signal lets it finish, the second ends the process.
pub(crate) fn finish_gracefully() {
    GRACEFUL.store(true, Ordering::Relaxed);
}

/// A signal came, and the command ended early.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted {
    signal: i32,
}

impl Interrupted {
    /// 128 and the number of the signal, as shells report it.
    pub(crate) fn exit_code(&self) -> u8 {
        exit_code(self.signal)
    }
}

fn exit_code(signal: i32) -> u8 {
    128u8.saturating_add(u8::try_from(signal).unwrap_or_default())
}

/// Sets what is said after a signal.
pub(crate) fn say(message: &'static str) {
    *MESSAGE.lock().unwrap_or_else(PoisonError::into_inner) = message;
}

/// Whether a signal came.
pub(crate) fn requested() -> bool {
    RECEIVED.load(Ordering::Relaxed) != 0
}

/// Returns an error if a signal came, because the work is incomplete.
pub(crate) fn check() -> Result<()> {
    match RECEIVED.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(anyhow::Error::new(Interrupted { signal })),
    }
}

/// Installs the handler of the signals.
pub(crate) fn install() -> Result<()> {
    listen().context("cannot install the handler of Ctrl-C")
}

fn receive(signal: i32) {
    let first = RECEIVED.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_ok() && GRACEFUL.load(Ordering::Relaxed) {
        return;
    }
    cutout_files::remove_unfinished();
    stdio::note(&format!("\n{}", MESSAGE.lock().unwrap_or_else(PoisonError::into_inner)));
    std::process::exit(exit_code(signal).into());
}

/// Calls [`receive`] on a thread of its own for each signal.
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "it waits for signals and computes nothing")]
fn listen() -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGTERM};
    use signal_hook::iterator::Signals;
    let mut signals = Signals::new([CTRL_C, SIGTERM])?;
    // `nohup` starts programs with SIGHUP ignored, and that must stay so.
    if is_ignored(SIGHUP) == Some(false) {
        signals.add_signal(SIGHUP)?;
    }
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || signals.forever().for_each(receive)).map(drop)
}

/// Whether the process was started with a signal ignored; `None` where the system does not tell.
#[cfg(unix)]
fn is_ignored(signal: i32) -> Option<bool> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask >> (signal - 1) & 1 == 1)
}

#[cfg(not(unix))]
fn listen() -> io::Result<()> {
    ctrlc::set_handler(|| receive(CTRL_C)).map_err(io::Error::other)
}
