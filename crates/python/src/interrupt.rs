//! Long work that Ctrl-C ends.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors::CutoutError;

/// How often signals are looked at.
const INTERVAL: Duration = Duration::from_millis(50);

/// Runs `work` on a thread of its own, without the interpreter's lock, and returns its answer. If the user presses Ctrl-C,
/// the call returns `KeyboardInterrupt` at once; what the model is computing then ends unheard.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = sync_channel(1);
    let job = move || {
        // Nobody listens after an interrupt.
        let _ = sender.send(work());
    };
    #[expect(clippy::disallowed_methods, reason = "waits for the model; computes nothing itself")]
    let thread = thread::Builder::new().name("cutout".to_owned()).spawn(job);
    thread.map_err(|error| CutoutError::new_err(format!("no thread for the work: {error}")))?;
    loop {
        let answer;
        (receiver, answer) = py.detach(move || {
            let answer = receiver.recv_timeout(INTERVAL);
            (receiver, answer)
        });
        match answer {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(CutoutError::new_err("the work ended without an answer"));
            }
        }
    }
}
