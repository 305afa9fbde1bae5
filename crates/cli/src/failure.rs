//! How a command fails: one message on standard error, and an exit code.

use std::fmt;
use std::process::ExitCode;

use crate::screen;

/// The command line asks for something that cannot be meant. Exit code 2, as for what the parser refuses.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl Usage {
    /// The error to return.
    pub(crate) fn error(message: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Usage(message.into()))
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Tells the user, and says how the process ends.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if screen::is_closed_pipe(error) {
        return ExitCode::SUCCESS;
    }
    screen::note(&format!("error: {error:#}"));
    ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
}
