//! Standard output and standard error.

use std::io::{self, ErrorKind, Write};

use anyhow::Result;
use serde::Serialize;

/// Writes a line to standard output: results, for programs.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{text}")?;
    Ok(output.flush()?)
}

/// Writes JSON to standard output.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

/// Writes a line to standard error: notes, for people. Errors are ignored.
pub(crate) fn note(text: &str) {
    let _ignored = writeln!(io::stderr(), "{text}");
}

/// Writes a warning to standard error.
pub(crate) fn warn(text: &str) {
    note(&format!("warning: {text}"));
}

/// Whether the reader of standard output closed the pipe, as `head` does. This is not reported.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let broken = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    error.downcast_ref::<io::Error>().is_some_and(broken)
}
