//! `cutout completions`: shell completions.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

/// Print the completion script for a shell
#[derive(Args)]
#[command(after_help = "Examples:
  cutout completions bash > ~/.local/share/bash-completion/completions/cutout
  cutout completions zsh > ~/.zfunc/_cutout")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<()> {
        let mut text = Vec::new();
        generate(self.shell, &mut crate::Arguments::command(), "cutout", &mut text);
        crate::stdio::print(String::from_utf8(text)?.trim_end())
    }
}
