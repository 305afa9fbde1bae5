//! End-to-end tests of the binary: exit codes, output and files on small models.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bad_input;
mod batch;
mod bench;
mod builtin;
mod compare;
mod completions;
mod convert;
mod doctor;
mod everything;
mod explain;
mod exports;
mod files;
mod finding;
mod flags;
mod info;
mod interrupted;
mod limits;
mod man;
mod models;
mod odd_files;
mod phrases;
mod published;
mod pull;
mod resume;
mod segment;
mod serve;
mod support;
mod terminal;
mod track;
