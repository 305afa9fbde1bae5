//! `cargo xtask python`: builds the Python package into a virtual environment and runs its tests.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::metadata::root;

/// List of what the tests need besides the package.
const PACKAGES: &str = "python/tests/requirements.txt";

/// Folder of the environment, under the target folder.
const ENVIRONMENT: &str = "target/python";

/// Runs the tests of the package, `options` to pytest. Without a Python that serves it says so and runs nothing.
pub(crate) fn test(options: &[OsString]) -> Result<()> {
    let root = root()?;
    let environment = root.join(ENVIRONMENT);
    if let Err(reason) = make(&environment, &root.join(PACKAGES)) {
        println!("python: SKIPPED, the tests of the Python package did not run: {reason:#}");
        return Ok(());
    }
    let program = |name: &str| environment.join("bin").join(name);
    // The profile that the tests of Rust were built with: its dependencies are there already.
    let mut develop = Command::new(program("maturin"));
    develop.args(["develop", "--quiet", "--profile", "dev"]);
    let develop = develop.env("VIRTUAL_ENV", &environment).current_dir(&root).status()?;
    ensure!(develop.success(), "maturin cannot build the package");
    let mut pytest = Command::new(program("python"));
    pytest.args(["-m", "pytest", "--quiet", "-rs", "python/tests"]).args(options);
    ensure!(pytest.current_dir(&root).status()?.success(), "tests of the Python package failed");
    Ok(())
}

/// Makes the environment and installs what the tests need.
fn make(environment: &Path, packages: &Path) -> Result<()> {
    let python = environment.join("bin/python");
    if !python.exists() {
        let version = "import sys; sys.exit(sys.version_info < (3, 10))";
        let mut check = Command::new("python3");
        let found = check.args(["-c", version]).status().context("there is no python3")?;
        ensure!(found.success(), "python3 is older than 3.10");
        let mut make = Command::new("python3");
        let made = make.args(["-m", "venv"]).arg(environment).status()?;
        ensure!(made.success(), "python3 cannot make a virtual environment");
    }
    let mut install = Command::new(python);
    install
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
        .arg(packages);
    ensure!(install.status()?.success(), "pip cannot install the packages of {PACKAGES}");
    Ok(())
}
