//! The commands, one file each.

use anyhow::Result;
use clap::Subcommand;

mod completions;
mod segment;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    Segment(segment::Segment),
    Completions(completions::Completions),
}

impl Command {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Command::Segment(command) => command.run(),
            Command::Completions(command) => command.run(),
        }
    }
}
