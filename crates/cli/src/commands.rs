//! The commands, one file each.

use anyhow::Result;
use clap::Subcommand;

mod batch;
mod bench;
mod compare;
mod completions;
mod convert;
mod doctor;
mod everything;
mod explain;
mod info;
mod man;
mod models;
mod pull;
mod segment;
mod serve;
mod track;

/// The command to run.
#[derive(Subcommand)]
pub(crate) enum Command {
    Segment(segment::Segment),
    Everything(everything::Everything),
    Batch(batch::Batch),
    Track(track::Track),
    Serve(serve::Serve),
    Info(info::Info),
    Convert(convert::Convert),
    Models(models::Models),
    Pull(pull::Pull),
    Explain(explain::Explain),
    Bench(bench::Bench),
    Compare(compare::Compare),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
    Man(man::Man),
}

impl Command {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Command::Segment(command) => command.run(),
            Command::Everything(command) => command.run(),
            Command::Batch(command) => command.run(),
            Command::Track(command) => command.run(),
            Command::Serve(command) => command.run(),
            Command::Info(command) => command.run(),
            Command::Convert(command) => command.run(),
            Command::Models(command) => command.run(),
            Command::Pull(command) => command.run(),
            Command::Explain(command) => command.run(),
            Command::Bench(command) => command.run(),
            Command::Compare(command) => command.run(),
            Command::Doctor(command) => command.run(),
            Command::Completions(command) => command.run(),
            Command::Man(command) => command.run(),
        }
    }
}
