//! Failures of commands: one message on standard error, and an exit code.

use std::fmt;

use crate::interrupt::Interrupted;
use crate::stdio;

/// Wrong usage: an error in the command line. Exit code 2, as for errors of the parser.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl Usage {
    /// An error with this message.
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

/// Prints an error and returns the exit code.
pub(crate) fn report(error: &anyhow::Error) -> u8 {
    if stdio::is_closed_pipe(error) {
        return stdio::CLOSED_PIPE_EXIT_CODE;
    }
    stdio::note(&format!("error: {}", message(error)));
    match error.downcast_ref::<Interrupted>() {
        Some(interrupted) => interrupted.exit_code(),
        None if error.is::<Usage>() => 2,
        None => 1,
    }
}

/// Prints what the parser of the command line says, which may be the help that was asked for.
pub(crate) fn report_parser(error: &clap::Error) -> u8 {
    if error.use_stderr() {
        // If standard error cannot be written either, there is nowhere to report it.
        let _ignored = error.print();
        return 2;
    }
    match stdio::print_help(error) {
        Ok(()) => 0,
        Err(error) => report(&error),
    }
}

/// The error with its causes, in one line. A cause that is already part of the message is not repeated.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut message = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !message.ends_with(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    stdio::one_line(&without_codes(&message))
}

/// A message without the numbers that the standard library adds to errors of the system, such as ` (os error 2)`.
pub(crate) fn without_codes(message: &str) -> String {
    let mut parts = message.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((code, rest)) if code.parse::<u32>().is_ok() => plain.push_str(rest),
            Some(_) | None => plain.extend([" (os error ", part]),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_cause_is_not_repeated() {
        let cause = || anyhow!("no such file");
        assert_eq!(message(&cause().context("a.png")), "a.png: no such file");
        assert_eq!(message(&cause().context("a.png: no such file")), "a.png: no such file");
    }

    #[test]
    fn a_message_is_one_line_without_codes_of_the_system() {
        let error = anyhow!("Is a directory (os error 21)").context("two\nlines.png: cannot read");
        assert_eq!(message(&error), "two\\nlines.png: cannot read: Is a directory");
        let odd = anyhow!("a (os error 2) b (os error x) c (os error 3");
        assert_eq!(message(&odd), "a b (os error x) c (os error 3");
    }
}
