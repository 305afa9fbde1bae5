//! `cutout man`: manual pages.

use anyhow::Result;
use clap::{Args, CommandFactory};

use crate::failure::Usage;

/// Print the manual page of the program or of a command
#[derive(Args)]
#[command(after_help = "Examples:
  cutout man > ~/.local/share/man/man1/cutout.1
  cutout man track | man -l -")]
pub(crate) struct Man {
    /// The command; by default the program, whose page names all commands
    command: Option<String>,
}

impl Man {
    pub(crate) fn run(self) -> Result<()> {
        let mut program = crate::Arguments::command();
        // Fills in what the commands have from the program.
        program.build();
        let page = match &self.command {
            None => program,
            Some(name) => program.find_subcommand(name).cloned().ok_or_else(|| {
                let known: Vec<&str> =
                    program.get_subcommands().map(clap::Command::get_name).collect();
                Usage::error(format!("no command {name:?}; there are {}", known.join(", ")))
            })?,
        };
        let mut text = Vec::new();
        clap_mangen::Man::new(page).render(&mut text)?;
        crate::stdio::print(String::from_utf8(text)?.trim_end())
    }
}
