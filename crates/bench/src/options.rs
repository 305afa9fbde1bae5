//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::contest::Budget;

/// Benchmarks of cutout's engine.
#[derive(Parser)]
#[command(name = "cutout-bench", bin_name = "cargo xtask bench")]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Measures every kernel, the crates it competes with, and this machine's ceilings, in one process and one run.
    Kernels(KernelOptions),
}

/// Explanation of columns and fields, at the end of the help.
const AFTER: &str = "\
A spread is the interquartile range as a share of the median; a share of the ceiling is the median over rounds of what the
kernel and the ceiling reached in the same round.

Examples:
  cargo xtask bench kernels                               everything, three to six minutes
  cargo xtask bench kernels --quick --only gemm_f32       only products, fewer rounds
  cargo xtask bench kernels --threads 1 --json one.json   one thread, records for scripts
  cargo xtask bench kernels --write docs/performance.md   this processor's section of the page in the repository";

#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct KernelOptions {
    /// Write the records {kernel, shape, implementation, threads, median_gflops, spread, ...} to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Fewer rounds: less than a minute, more noise.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Threads of every implementation; all cores when absent.
    #[arg(long, value_name = "N")]
    threads: Option<std::num::NonZeroUsize>,
    /// Write the section of this kind of processor to this page, keeping its notes and the other sections.
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Measure only what has TEXT in `kernel shape`.
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
}

impl KernelOptions {
    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.threads.map_or_else(cores, std::num::NonZero::get)
    }

    /// The budget of each kernel.
    pub(crate) fn budget(&self) -> Budget {
        if self.quick {
            Budget::new(3..=9, Duration::from_millis(500), Duration::from_secs(5))
        } else {
            Budget::new(7..=40, Duration::from_secs(7), Duration::from_secs(120))
        }
    }

    /// The command that writes the same page again.
    pub(crate) fn command_line(&self) -> String {
        let mut words = vec!["cargo xtask bench kernels".to_owned()];
        let mut flag = |name: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("--{name} {value}")));
        };
        flag("threads", self.threads.map(|threads| threads.to_string()));
        flag("only", self.only.clone());
        flag("write", self.write.as_ref().map(|path| path.display().to_string()));
        if self.quick {
            words.push("--quick".to_owned());
        }
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_repeated() {
        let words = ["cutout-bench", "kernels", "--quick", "--threads", "3", "--write", "a.md"];
        let Command::Kernels(options) = Options::parse_from(words).command;
        assert_eq!(options.threads(), 3);
        assert_eq!(
            options.command_line(),
            "cargo xtask bench kernels --threads 3 --write a.md --quick"
        );
        assert!(Options::try_parse_from(["cutout-bench", "kernels", "--threads", "0"]).is_err());
    }
}
