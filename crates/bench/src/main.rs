//! Measures kernels against the ceilings of this machine and, with the feature `rivals`, against other crates.
//!
//! Every number is a median over rounds. A round runs each implementation and the ceiling once, so a machine that slows
//! down slows all of them; ratios are taken within rounds. Results are compared before anything is timed.
#![allow(clippy::print_stdout, reason = "a program that prints its measurements")]

mod bench;
mod ceiling;
mod contest;
mod disturbance;
mod document;
mod goal;
mod kernels;
mod machine;
mod noise;
mod options;
mod outcome;
mod progress;
mod record;
mod rivals;
mod statistics;
mod table;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::bench::Bench;
use crate::document::Run;
use crate::machine::Machine;
use crate::options::{Command, KernelOptions, Options};
use crate::record::Record;

fn main() -> Result<()> {
    match Options::parse().command {
        Command::Kernels(options) => measure_kernels(&options),
    }
}

fn measure_kernels(options: &KernelOptions) -> Result<()> {
    let threads = options.threads();
    rivals::prepare(threads)?;
    let machine = Machine::detect(threads);
    println!("{}", machine.summary());
    if !cfg!(feature = "rivals") {
        println!("built without the feature `rivals`: our own kernels only");
    }
    let tasks = kernels::all(options.only.as_deref());
    ensure!(!tasks.is_empty(), "no kernel contains {:?}", options.only.as_deref().unwrap_or(""));
    let bench = Bench::new(threads, options.budget(), tasks.len());
    println!("{}", table::header());
    let mut outcomes = Vec::with_capacity(tasks.len());
    for task in tasks {
        bench.progress.begin(&task.name());
        let outcome = (task.run)(&bench).with_context(|| task.name())?;
        bench.progress.clear();
        println!("{}", table::rows(&outcome));
        outcomes.push(outcome);
    }
    println!("{}", table::ceilings(&bench.ceilings.borrow()));
    let records = record::records(&outcomes, &bench.ceilings.borrow(), threads);
    if let Some(path) = &options.json {
        write_json(path, &records)?;
    }
    if let Some(path) = &options.write {
        let run = Run { machine: &machine, command: &options.command_line(), outcomes: &outcomes };
        let old = std::fs::read_to_string(path).unwrap_or_default();
        write(path, &document::render(&run, &bench.ceilings.borrow(), &old))?;
    }
    Ok(())
}

fn write_json(path: &Path, records: &[Record]) -> Result<()> {
    write(path, &(serde_json::to_string_pretty(records)? + "\n"))
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
