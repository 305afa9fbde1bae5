//! Developer tasks: ci, bench, explain, fixtures, deps, size, licences.

mod fixtures;

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
    }
}
