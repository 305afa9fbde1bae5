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
    screen::note(&format!("error: {}", message(error)));
    ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
}

/// The error with its causes, each said once: many errors say their cause themselves.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut message = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !message.ends_with(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let cause = || anyhow!("no such file");
        assert_eq!(message(&cause().context("a.png")), "a.png: no such file");
        assert_eq!(message(&cause().context("a.png: no such file")), "a.png: no such file");
    }
}
