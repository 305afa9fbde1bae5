//! `cutout`: the Segment Anything family on the command line.

mod commands;
mod environment;
mod failure;
#[cfg(test)]
mod help;
mod interrupt;
mod library;
mod memory;
mod options;
mod output;
mod progress;
mod prompts;
mod screen;
mod words;

use std::process::ExitCode;

use clap::Parser;

/// Segment anything: a click, a box, a mask or a phrase goes in, exact masks come out.
#[derive(Parser)]
#[command(name = "cutout", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 could not, 2 wrong usage. `cutout COMMAND --help` has examples."
)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match interrupt::install().and_then(|()| arguments.command.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
