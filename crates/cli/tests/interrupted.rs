//! Ctrl-C, and pipes that are closed early.
#![cfg(unix)]

use std::fs::File;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, json};

use crate::support::{Ended, Folder, MODEL, folder, folder_with_model};

/// A checkpoint of 4 GiB as a sparse file, which takes no room on the disk.
fn sparse_checkpoint(folder: &Folder, name: &str) {
    let (tensors, side) = (256u64, 2048u64);
    let bytes = side * side * 4;
    let entry = |i: u64| {
        let place = json!({"dtype": "F32", "shape": [side, side], "data_offsets": [i * bytes, (i + 1) * bytes]});
        (format!("w{i}"), place)
    };
    let header = serde_json::to_vec(&(0..tensors).map(entry).collect::<Map<_, _>>()).unwrap();
    let mut file = File::create(folder.path(name)).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(&header).unwrap();
    file.set_len(8 + header.len() as u64 + tensors * bytes).unwrap();
}

/// Waits until a condition holds; panics after half a minute, which only a hang takes.
pub(crate) fn wait_until(what: &str, so: impl Fn() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends Ctrl-C to a command and waits for its end.
pub(crate) fn interrupt(child: Child) -> Ended {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    Ended::of(child.wait_with_output().unwrap())
}

#[test]
fn ctrl_c_leaves_no_temporary_files() {
    let folder = folder();
    sparse_checkpoint(&folder, "hollow.safetensors");
    let convert = ["convert", "hollow.safetensors", "out.gguf", "--quantize", "q4_0"];
    let mut command = folder.command(&convert);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("writing", || !folder.temporary_files().is_empty());
    let ended = interrupt(child);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert!(ended.stderr.contains("interrupted"), "{}", ended.stderr);
    assert!(folder.temporary_files().is_empty());
    assert!(!folder.has("out.gguf"));
}

#[test]
fn ctrl_c_while_waiting_for_input() {
    let folder = folder_with_model();
    assert!(Command::new("mkfifo").arg(folder.path("pipe.png")).status().unwrap().success());
    let mut command = folder.command(&["segment", "pipe.png", "-m", MODEL, "-p", "3,3"]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    // Opening the other end waits until the command reads: its handler is installed by then.
    let _writer = File::options().write(true).open(folder.path("pipe.png")).unwrap();
    assert_eq!(interrupt(child).code, Some(130));
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let folder = folder_with_model();
    for arguments in [&["info", "--tensors", MODEL][..], &["completions", "zsh"], &["doctor"]] {
        let mut command = folder.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = Ended::of(child.wait_with_output().unwrap());
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(141), ""), "{arguments:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_an_error() {
    let folder = folder_with_model();
    for arguments in [&["--help"][..], &["segment", "--help"], &["--version"], &["info", MODEL]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ended = Ended::of(folder.command(arguments).stdout(full).output().unwrap());
        assert_eq!(ended.code, Some(1), "{arguments:?}");
        let expected = "error: standard output: No space left on device\n";
        assert_eq!(ended.stderr, expected, "{arguments:?}");
        // A process without a standard output.
        let program = env!("CARGO_BIN_EXE_cutout");
        let line = format!("{program} {} >&-", arguments.join(" "));
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", &line]).current_dir(folder.path("")).output().unwrap();
        let ended = Ended::of(output);
        assert_eq!(ended.code, Some(1), "{line}");
        assert!(ended.stderr.contains("standard output is closed"), "{line}: {}", ended.stderr);
    }
    folder.command(&["info", MODEL]).stdout(Stdio::null()).status().unwrap();
}
