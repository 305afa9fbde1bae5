//! `cargo xtask ci`: everything a change must pass, stopping at the first failure.

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::{deps, licences, size};

/// One cargo command of a CI run.
struct Step {
    arguments: &'static [&'static str],
    /// An environment variable and its value.
    variable: Option<(&'static str, &'static str)>,
}

const STEPS: &[Step] = &[
    Step { arguments: &["fmt", "--all", "--check"], variable: None },
    Step {
        arguments: &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"],
        variable: None,
    },
    // Examples are compiled by the step before.
    Step {
        arguments: &["test", "--workspace", "--quiet", "--lib", "--bins", "--tests"],
        variable: None,
    },
    Step { arguments: &["test", "--workspace", "--quiet", "--doc"], variable: None },
    Step {
        arguments: &["doc", "--workspace", "--no-deps", "--quiet"],
        variable: Some(("RUSTDOCFLAGS", "-D warnings")),
    },
];

/// Runs all steps.
pub(crate) fn run() -> Result<()> {
    STEPS.iter().try_for_each(cargo)?;
    deps::check()?;
    size::check()?;
    licences::check()?;
    println!("ci: all steps passed");
    Ok(())
}

fn cargo(step: &Step) -> Result<()> {
    let line = step.arguments.join(" ");
    println!("ci: cargo {line}");
    let start = Instant::now();
    let status = Command::new("cargo").args(step.arguments).envs(step.variable).status()?;
    if !status.success() {
        bail!("`cargo {line}` failed");
    }
    println!("ci: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
