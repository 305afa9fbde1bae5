//! What is shown on a terminal and not on a pipe.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use cutout_testing::skip;

use crate::support::{Ended, Folder, MODEL, folder_with_model};

/// Runs the program on a terminal, which `script` makes; `None` where there is no such program.
fn on_a_terminal(folder: &Folder, arguments: &[&str]) -> Option<Ended> {
    let program = folder.command(arguments);
    let words = program.get_args().map(|word| format!("'{}'", word.to_str().unwrap()));
    let line =
        format!("'{}' {}", env!("CARGO_BIN_EXE_cutout"), words.collect::<Vec<_>>().join(" "));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    command.current_dir(folder.path("")).stdin(Stdio::null());
    match command.output() {
        Ok(output) => Some(Ended::of(output)),
        Err(error) => {
            skip(&format!("no terminal: the program `script` cannot be run: {error}"));
            None
        }
    }
}

#[test]
fn files_that_were_named_are_mentioned_on_a_terminal_only() {
    let folder = folder_with_model();
    let run = ["segment", "picture.png", "-m", MODEL, "-p", "20,11", "-o", "named.png"];
    let ended = folder.cutout(&run);
    assert_eq!(ended.stderr, "");
    ended.succeeds();
    let Some(ended) = on_a_terminal(&folder, &run) else { return };
    assert!(ended.stdout.contains("wrote named.png"), "{}", ended.stdout);
    ended.succeeds();
}

#[test]
fn a_bar_does_not_begin_with_nothing_of_nothing() {
    let folder = folder_with_model();
    let run = ["everything", "picture.png", "-m", MODEL, "--points-per-side", "8", "-o", "m.json"];
    let Some(ended) = on_a_terminal(&folder, &run) else { return };
    assert!(ended.stdout.contains("picture.png: encoding"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("0/0"), "{}", ended.stdout);
    ended.succeeds();
}
