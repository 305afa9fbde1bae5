//! Developer tasks: ci, bench, explain, fixtures, deps, size, licences.

mod bench;
mod fixtures;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Developer tasks of the workspace.
#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// What the scripts that make fixtures need from the workspace.
    #[command(subcommand)]
    Fixtures(Fixtures),
    /// Measurements, beside the machine's ceilings and other crates.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    /// Every kernel on the models' shapes; `--help` behind it tells more.
    #[command(disable_help_flag = true)]
    Kernels {
        /// Options of the benchmark.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
}

#[derive(Subcommand)]
enum Fixtures {
    /// Writes the cases of every op, for fixtures/make.py: cases.json and inputs.safetensors.
    Cases {
        /// Where to write; made if missing.
        directory: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    match Options::parse().task {
        Task::Fixtures(Fixtures::Cases { directory }) => fixtures::write_cases(&directory),
        Task::Bench(Bench::Kernels { options }) => bench::kernels(&options),
    }
}
