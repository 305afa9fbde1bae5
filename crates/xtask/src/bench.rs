//! `cargo xtask bench`: runs the benchmarks, built with the crates they compare with.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Builds `cutout-bench` with the crates it compares with, which no other command needs, and runs it.
pub(crate) fn kernels(options: &[OsString]) -> Result<()> {
    run(&["--package", "cutout-bench", "--features", "rivals", "--", "kernels"], options)
}

/// Times kernels and models on a GPU, beside PyTorch if a Python is given.
pub(crate) fn cuda(options: &[OsString]) -> Result<()> {
    run(&["--package", "cutout-sam", "--example", "bench_cuda", "--"], options)
}

fn run(program: &[&str], options: &[OsString]) -> Result<()> {
    let status = Command::new("cargo")
        .args(["run", "--quiet", "--release"])
        .args(program)
        .args(options)
        .status()
        .context("cargo cannot be started")?;
    ensure!(status.success(), "the benchmark stopped with {status}");
    Ok(())
}
