//! `cutout`: the Segment Anything family on the command line.

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

use std::process::ExitCode;

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

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::report_parser(&error),
    };
    match interrupt::install().and_then(|()| arguments.command.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
