//! `cutout`: the Segment Anything family on the command line.
//!
//! A library, so that the Python package installs the same command.

mod card;
mod checkpoints;
mod claims;
mod commands;
mod environment;
mod failure;
mod format;
#[cfg(test)]
mod help;
mod interrupt;
mod memory;
mod options;
mod output;
mod picture;
mod progress;
mod prompts;
mod pull;
mod stdio;

use std::ffi::OsString;

use clap::Parser;

/// Segment anything: masks from points, boxes, an earlier mask, or phrases
#[derive(Parser)]
#[command(name = "cutout", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 success, 1 failure, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP. `cutout COMMAND --help` has examples."
)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

/// Runs the command of a command line, whose first argument is the program's name, and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return failure::report_parser(&error),
    };
    match interrupt::install().and_then(|()| arguments.command.run()) {
        Ok(()) => 0,
        Err(error) => failure::report(&error),
    }
}
