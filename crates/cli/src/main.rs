//! `cutout`: the Segment Anything family on the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(cutout_cli::run(std::env::args_os()))
}
