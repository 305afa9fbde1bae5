//! `cargo xtask ci`: everything a change must pass, stopping at the first failure.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

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

/// Begins a line by which a test program says that it leaves out tests; `cutout_testing::skip` writes it.
const SKIPPED: &str = "SKIPPED in ";

/// Runs all steps. Ends with the test programs that could not run all their tests, and why.
pub(crate) fn run() -> Result<()> {
    let mut skipped = Vec::new();
    for step in STEPS {
        skipped.extend(cargo(step)?);
    }
    deps::check()?;
    size::check()?;
    licences::check()?;
    println!("ci: all steps passed");
    for line in skipped {
        println!("ci: {line}");
    }
    Ok(())
}

/// Runs a step and returns what its tests said about being skipped.
fn cargo(step: &Step) -> Result<Vec<String>> {
    let line = step.arguments.join(" ");
    println!("ci: cargo {line}");
    let start = Instant::now();
    let mut command = Command::new("cargo");
    command.args(step.arguments).envs(step.variable).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let errors = child.stderr.take().context("standard error is a pipe")?;
    let skipped = pass_on(BufReader::new(errors), io::stderr());
    let status = child.wait()?;
    if !status.success() {
        bail!("`cargo {line}` failed");
    }
    println!("ci: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(skipped?)
}

/// Passes on what a command writes, line by line as it comes, and returns the lines that say that tests were skipped.
fn pass_on(mut from: impl BufRead, mut to: impl Write) -> io::Result<Vec<String>> {
    let mut skipped = Vec::new();
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        let text = String::from_utf8_lossy(&line);
        if let Some(start) = text.find(SKIPPED) {
            skipped.push(text[start..].trim_end().to_owned());
        }
        line.clear();
    }
    Ok(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_collected_and_everything_is_passed_on() {
        let said =
            b"warning: x\nSKIPPED in server: no chromium\n..SKIPPED in card: no driver\nlast \xff";
        let mut passed = Vec::new();
        let skipped = pass_on(&said[..], &mut passed).unwrap();
        assert_eq!(passed, said);
        assert_eq!(skipped, ["SKIPPED in server: no chromium", "SKIPPED in card: no driver"]);
    }
}
