//! The commands, one file each.

use anyhow::Result;
use clap::Subcommand;

mod bench;
mod completions;
mod explain;
mod segment;

/// What to do.
#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "one is made, once")]
pub(crate) enum Command {
    Segment(segment::Segment),
    Explain(explain::Explain),
    Bench(bench::Bench),
    Completions(completions::Completions),
}

impl Command {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Command::Segment(command) => command.run(),
            Command::Explain(command) => command.run(),
            Command::Bench(command) => command.run(),
            Command::Completions(command) => command.run(),
        }
    }
}
