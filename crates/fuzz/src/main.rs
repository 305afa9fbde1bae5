//! `cutout-fuzz`: reads mutated inputs of one target or of all. `cargo xtask fuzz` builds and runs it.
#![allow(clippy::print_stdout, reason = "a command line program prints")]

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use cutout_fuzz::{CountingAllocator, Range, TARGETS, Target, run};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Read mutated inputs: no panic, and no more memory than the bound of the target
#[derive(Parser)]
#[command(name = "cutout-fuzz")]
struct Arguments {
    /// Targets; all if none is given
    targets: Vec<String>,
    /// Inputs of each target
    #[arg(long, default_value_t = 1_000_000)]
    inputs: u64,
    /// Number of the first input
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seed of the mutations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for an input that fails
    #[arg(long, default_value = ".")]
    failures: PathBuf,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    // Panics are reported with the number of the input.
    std::panic::set_hook(Box::new(|_| {}));
    let mut failed = 0;
    for target in selected(&arguments.targets)? {
        failed += usize::from(!passes(target, &arguments)?);
    }
    if failed > 0 {
        bail!("{failed} targets failed");
    }
    Ok(())
}

fn selected(names: &[String]) -> Result<Vec<&'static Target>> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let find = |name: &String| {
        let known = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
        let found = TARGETS.iter().find(|target| target.name == name);
        found.with_context(|| format!("no target {name:?}; the targets are {}", known()))
    };
    names.iter().map(find).collect()
}

fn passes(target: &Target, arguments: &Arguments) -> Result<bool> {
    let Arguments { inputs, first, seed, failures, .. } = arguments;
    let started = Instant::now();
    let range = Range { seed: *seed, first: *first, inputs: *inputs };
    let name = target.name;
    match run(target, range) {
        Ok(outcome) => {
            let seconds = started.elapsed().as_secs_f64();
            let mib = outcome.peak as f64 / f64::from(1 << 20);
            println!(
                "{name}: {inputs} inputs ({} accepted, {} refused) in {seconds:.0} s, at most {mib:.1} MiB each",
                outcome.accepted, outcome.refused
            );
            Ok(true)
        }
        Err(failure) => {
            let path = failures.join(format!("{name}-{seed}-{}.bin", failure.number));
            std::fs::write(&path, &failure.input).with_context(|| path.display().to_string())?;
            println!(
                "{name}: input {} of seed {seed}: {}; kept as {}",
                failure.number,
                failure.reason,
                path.display()
            );
            Ok(false)
        }
    }
}
