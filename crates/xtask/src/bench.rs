//! `cargo xtask bench`: runs the benchmarks, built with the crates they compare with.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Builds `cutout-bench` with the crates it compares with, which no other command needs, and runs it.
pub(crate) fn kernels(options: &[OsString]) -> Result<()> {
    let status = Command::new("cargo")
        .args(["run", "--quiet", "--release", "--package", "cutout-bench", "--features", "rivals"])
        .args(["--", "kernels"])
        .args(options)
        .status()
        .context("cargo cannot be started")?;
    ensure!(status.success(), "the benchmark stopped with {status}");
    Ok(())
}
