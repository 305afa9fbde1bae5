//! Standard output and standard error.

use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::failure::without_codes;

/// Writes a line to standard output: results, for programs.
pub(crate) fn print(text: &str) -> Result<()> {
    check_open()?;
    let mut output = io::stdout().lock();
    let written = writeln!(output, "{}", escaped(text)).and_then(|()| output.flush());
    written.context("standard output")
}

/// Writes the help that was asked for to standard output.
pub(crate) fn print_help(help: &clap::Error) -> Result<()> {
    check_open()?;
    help.print().and_then(|()| io::stdout().flush()).context("standard output")
}

/// Returns an error if the process was started without a standard output. The runtime then puts the null device in its
/// place, open for reading too, which no shell does; the results would be lost.
#[cfg(unix)]
fn check_open() -> Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fstat, stat};
    let output = io::stdout();
    let (Ok(flags), Ok(found), Ok(null)) =
        (fcntl_getfl(&output), fstat(&output), stat("/dev/null"))
    else {
        return Ok(());
    };
    let is_null = (found.st_dev, found.st_ino) == (null.st_dev, null.st_ino);
    anyhow::ensure!(!(is_null && flags.contains(OFlags::RDWR)), "standard output is closed");
    Ok(())
}

#[cfg(not(unix))]
fn check_open() -> Result<()> {
    Ok(())
}

/// The text with control characters written out: names from files must not steer the terminal.
fn escaped(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || turns_text(c);
    if !text.contains(is_harmful) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_harmful(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    safe.into()
}

/// Whether a character changes the direction in which the text around it is shown.
fn turns_text(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes JSON to standard output.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

/// Writes a line to standard error: notes, for people. Errors are ignored.
pub(crate) fn note(text: &str) {
    let _ignored = writeln!(io::stderr(), "{}", escaped(text));
}

/// Notes which files were written. Of files that the user named, only a terminal is told.
pub(crate) fn note_written<'a>(are_named: bool, paths: impl Iterator<Item = &'a Path>) {
    let name = |path: &Path| one_line(&path.display().to_string());
    let names: Vec<String> = paths.map(name).collect();
    if let [first @ .., last] = &names[..]
        && (!are_named || io::stderr().is_terminal())
    {
        let first = if first.is_empty() { String::new() } else { first.join(", ") + " and " };
        note(&format!("wrote {first}{last}"));
    }
}

/// Exit code when the reader of standard output is gone: 128 and the number of SIGPIPE, as shells report it.
pub(crate) const CLOSED_PIPE_EXIT_CODE: u8 = 141;

/// Writes a warning to standard error.
pub(crate) fn warn(text: &str) {
    note(&format!("warning: {}", one_line(&without_codes(text))));
}

/// The text with line ends written out: names from files must not look like lines of this program.
pub(crate) fn one_line(text: &str) -> String {
    text.replace('\n', "\\n")
}

/// Whether the reader of standard output closed the pipe, as `head` does. This is not reported.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let broken = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    error.downcast_ref::<io::Error>().is_some_and(broken)
}
