//! Progress on a terminal; nothing on a pipe.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Something that is under way. Its line disappears when it is dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Work of unknown length.
    pub(crate) fn spinner(message: impl Into<String>) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style("{spinner} {msg} {elapsed}"));
        bar.set_message(message.into());
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress { bar }
    }

    /// Work of `length` equal pieces.
    pub(crate) fn bar(length: u64, message: impl Into<String>) -> Self {
        Progress::measured(length, message, "{pos}/{len}")
    }

    /// Work of so many bytes.
    pub(crate) fn bytes(length: u64, message: impl Into<String>) -> Self {
        Progress::measured(length, message, "{binary_bytes}/{binary_total_bytes}")
    }

    fn measured(length: u64, message: impl Into<String>, counter: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        bar.set_style(style(&format!("{{msg}} {{wide_bar}} {counter} {{elapsed}} (left {{eta}})")));
        bar.set_message(message.into());
        Progress { bar }
    }

    /// There are so many pieces.
    pub(crate) fn set_length(&self, length: u64) {
        self.bar.set_length(length);
    }

    /// So many pieces are done.
    pub(crate) fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// What is being done now.
    pub(crate) fn say(&self, message: impl Into<String>) {
        self.bar.set_message(message.into());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are written here and are valid")
}
