//! A program of others at the other end of a pipe.

use std::fmt;
use std::io::{self, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of standard error that are kept.
const KEPT_BYTES: usize = 4096;
/// Lines of standard error that are told.
const TOLD_LINES: usize = 10;
/// How long to wait for the end of standard error after the end of the program: a child of its own may hold it open.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A running program. It is killed and reaped when the last handle goes.
pub(crate) struct Process {
    child: Mutex<Child>,
    tail: Arc<Mutex<Vec<u8>>>,
    /// Closed when standard error has ended.
    quiet: Mutex<Receiver<()>>,
}

/// The pipes of a new program, as far as its command asked for them.
pub(crate) struct Pipes {
    pub(crate) input: Option<ChildStdin>,
    pub(crate) output: Option<ChildStdout>,
}

/// How a program ended.
pub(crate) struct Ending {
    /// `None` if it had to be killed.
    pub(crate) status: Option<ExitStatus>,
    /// The last lines of its standard error.
    pub(crate) said: String,
}

impl Ending {
    pub(crate) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => status.fmt(formatter),
            None => formatter.write_str("it did not end by itself"),
        }
    }
}

impl Process {
    /// Starts `command`, whose standard input and output the caller has set, and listens to its standard error.
    #[expect(clippy::disallowed_methods, reason = "waits for a pipe, computes nothing")]
    pub(crate) fn start(command: &mut Command) -> io::Result<(Arc<Self>, Pipes)> {
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let pipes = Pipes { input: child.stdin.take(), output: child.stdout.take() };
        let tail = Arc::new(Mutex::new(Vec::new()));
        let (talking, quiet) = channel();
        let mut listener = Ok(());
        if let Some(errors) = child.stderr.take() {
            let tail = Arc::clone(&tail);
            let listen = move || keep_tail(errors, &tail, talking);
            listener = thread::Builder::new().name("stderr".into()).spawn(listen).map(drop);
        }
        // From here on the program ends with this value, also if nobody can listen to it.
        let process = Process { child: Mutex::new(child), tail, quiet: Mutex::new(quiet) };
        listener.map(|()| (Arc::new(process), pipes))
    }

    /// Kills the program if it still runs, and reaps it.
    pub(crate) fn stop(&self) {
        let mut child = lock(&self.child);
        // Both fail only for a program that is gone already.
        let _ignored = child.kill();
        let _ignored = child.wait();
    }

    /// Waits for the end of the program; one that has not ended after `patience` is killed.
    pub(crate) fn wait(&self, patience: Duration) -> Ending {
        let deadline = Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        let status = loop {
            // The lock is held for a moment only, so that `stop` works from another thread.
            match lock(&self.child).try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < deadline => {}
                Ok(None) | Err(_) => break None,
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        };
        if status.is_none() {
            self.stop();
        }
        Ending { status, said: self.last_words() }
    }

    /// The last lines of standard error.
    fn last_words(&self) -> String {
        match lock(&self.quiet).recv_timeout(LAST_WORDS) {
            Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        let text = String::from_utf8_lossy(&lock(&self.tail)).into_owned();
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
        lines[lines.len().saturating_sub(TOLD_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Ends a source from another thread, even while it waits for its next frame.
#[derive(Clone)]
pub struct StopHandle(Arc<Process>);

impl StopHandle {
    pub(crate) fn new(process: &Arc<Process>) -> Self {
        StopHandle(Arc::clone(process))
    }

    /// Kills and reaps the program that makes the frames.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// A panic while a lock is held leaves nothing half-done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads to the end, keeping the last bytes; `_talking` is dropped at the end.
fn keep_tail(mut errors: impl Read, tail: &Mutex<Vec<u8>>, _talking: Sender<()>) {
    let mut chunk = [0; 1024];
    while let Ok(length @ 1..) = errors.read(&mut chunk) {
        let mut tail = lock(tail);
        tail.extend(&chunk[..length]);
        let excess = tail.len().saturating_sub(KEPT_BYTES);
        tail.drain(..excess);
    }
}

/// What a short-lived program prints, at most 64 KiB of it.
pub(crate) fn capture(command: &mut Command) -> io::Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let mut bytes = Vec::new();
    let read = match child.stdout.take() {
        Some(output) => output.take(64 << 10).read_to_end(&mut bytes),
        None => Ok(0),
    };
    // It may still be printing, or be gone.
    let _ignored = child.kill();
    child.wait()?;
    read?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_does_not_grow() {
        let tail = Mutex::new(Vec::new());
        let (talking, _quiet) = channel();
        keep_tail(Read::chain(io::repeat(b'x').take(1_000_000), &b"end"[..]), &tail, talking);
        let tail = tail.into_inner().unwrap();
        assert_eq!(tail.len(), KEPT_BYTES);
        assert!(tail.ends_with(b"xend"));
    }
}
