//! `cargo xtask arm`: the kernels' tests, built for 64-bit ARM and run under user-mode emulation.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// Where Debian installs the C library of the target.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// The crates whose code differs between processors, and those it rests on.
const PACKAGES: [&str; 3] = ["cutout-cpu", "cutout-parallel", "cutout-tensor"];

/// Checks the tools, then builds and runs the tests.
pub(crate) fn test() -> Result<()> {
    let missing = missing();
    ensure!(missing.is_empty(), "cargo xtask arm needs:\n{}", missing.join("\n"));
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--target", TARGET]);
    for package in PACKAGES {
        cargo.args(["--package", package]);
    }
    let status = cargo
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{EMULATOR} -L {LIBRARIES}"))
        .status()
        .context("cargo cannot be started")?;
    ensure!(status.success(), "the tests for {TARGET} stopped with {status}");
    Ok(())
}

/// A line for each tool that is not installed.
fn missing() -> Vec<String> {
    let library = |line: String| Path::new(line.trim()).is_dir().then_some(());
    let standard_library = output("rustc", &["--print", "target-libdir", "--target", TARGET]);
    let found = [
        (standard_library.and_then(library), format!("rustup target add {TARGET}")),
        (output(LINKER, &["--version"]).map(drop), "gcc-aarch64-linux-gnu (Debian)".to_owned()),
        (output(EMULATOR, &["--version"]).map(drop), "qemu-user (Debian)".to_owned()),
        (library(LIBRARIES.to_owned()), "libc6-dev-arm64-cross (Debian)".to_owned()),
    ];
    found.into_iter().filter(|(tool, _)| tool.is_none()).map(|(_, name)| name).collect()
}

/// What a program prints, if it is there and succeeds.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
