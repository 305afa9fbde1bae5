//! `cargo xtask clients`: real annotation tools against `cutout serve`.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::metadata::root;

/// Builds the program and lets `fixtures/check_clients.py` drive the tools.
pub(crate) fn drive(options: &[OsString]) -> Result<()> {
    let root = root()?;
    let build = ["build", "--release", "-p", "cutout-cli"];
    let built = Command::new("cargo").args(build).current_dir(&root).status()?;
    ensure!(built.success(), "cargo build failed");
    let script = root.join("fixtures/check_clients.py");
    let driven = Command::new("python3").arg(script).args(options).current_dir(&root).status()?;
    ensure!(driven.success(), "a tool did not get the masks of `cutout segment`");
    Ok(())
}
