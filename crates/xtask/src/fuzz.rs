//! `cargo xtask fuzz`: reads mutated inputs of every reader.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Builds and runs `cutout-fuzz`.
pub(crate) fn run(options: &[OsString]) -> Result<()> {
    let status = Command::new("cargo")
        .args(["run", "--quiet", "--release", "--package", "cutout-fuzz", "--"])
        .args(options)
        .status()
        .context("cargo cannot be started")?;
    ensure!(status.success(), "the fuzzer stopped with {status}");
    Ok(())
}
