//! A progress line on a terminal; nothing on a pipe.

use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write, stderr};

/// Progress of a run.
pub(crate) struct Progress {
    visible: bool,
    total: usize,
    begun: Cell<usize>,
    task: RefCell<String>,
}

impl Progress {
    /// A run of `total` tasks.
    pub(crate) fn new(total: usize) -> Progress {
        let visible = stderr().is_terminal();
        Progress { visible, total, begun: Cell::new(0), task: RefCell::default() }
    }

    #[cfg(test)]
    pub(crate) fn silent() -> Progress {
        Progress { visible: false, total: 0, begun: Cell::new(0), task: RefCell::default() }
    }

    /// The next task begins.
    pub(crate) fn begin(&self, task: &str) {
        self.begun.set(self.begun.get() + 1);
        task.clone_into(&mut self.task.borrow_mut());
        self.show("preparing, comparing results");
    }

    /// The current task is in this round, at this implementation.
    pub(crate) fn step(&self, round: usize, implementation: &str) {
        self.show(&format!("round {round}, {implementation}"));
    }

    /// Clears the line for other output.
    pub(crate) fn clear(&self) {
        self.write("\r\x1b[K");
    }

    fn show(&self, detail: &str) {
        let (begun, total) = (self.begun.get(), self.total);
        self.write(&format!("\r\x1b[K[{begun}/{total}] {}: {detail}", self.task.borrow()));
    }

    fn write(&self, text: &str) {
        if self.visible {
            let mut stream = stderr().lock();
            // An error of the terminal must not stop the measurement.
            stream.write_all(text.as_bytes()).and_then(|()| stream.flush()).ok();
        }
    }
}
