//! The command line as a user sees it: the built binary on small files, its exit codes, what it prints and writes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bad_input;
mod bench;
mod builtin;
mod completions;
mod convert;
mod doctor;
mod everything;
mod explain;
mod finding;
mod info;
mod interrupted;
mod models;
mod segment;
mod support;
mod track;
