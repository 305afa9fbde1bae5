//! Progress display on a terminal; silent on a pipe.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress line, removed on drop.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Work of unknown length.
    pub(crate) fn spinner(message: impl Into<String>) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style("{spinner} {msg} {elapsed}"));
        bar.set_message(message.into());
        keep_turning(&bar);
        Progress { bar }
    }

    /// Work of `length` equal steps.
    pub(crate) fn bar(length: u64, message: impl Into<String>) -> Self {
        Progress::measured(length, message, STEPS)
    }

    /// Work of `length` bytes.
    pub(crate) fn bytes(length: u64, message: impl Into<String>) -> Self {
        Progress::measured(length, message, "{binary_bytes}/{binary_total_bytes}")
    }

    fn measured(length: u64, message: impl Into<String>, counter: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        bar.set_style(measured_style(counter));
        bar.set_message(message.into());
        Progress { bar }
    }

    /// Sets the number of steps of work whose length was unknown.
    pub(crate) fn set_length(&self, length: u64) {
        if self.bar.length().is_none() {
            self.bar.set_style(measured_style(STEPS));
        }
        self.bar.set_length(length);
    }

    /// Sets the number of finished steps.
    pub(crate) fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// Sets the message.
    pub(crate) fn say(&self, message: impl Into<String>) {
        self.bar.set_message(message.into());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Redraws a spinner until it is finished, where there is a terminal and a thread can be started.
/// [`ProgressBar::enable_steady_tick`] panics where none can.
#[expect(clippy::disallowed_methods, reason = "it draws, and computes nothing")]
fn keep_turning(bar: &ProgressBar) {
    if bar.is_hidden() {
        return;
    }
    let bar = bar.downgrade();
    let turn = move || {
        while let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) {
            bar.tick();
            drop(bar);
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    // Without a thread the line stands still.
    let _started = std::thread::Builder::new().name("progress".into()).spawn(turn);
}

/// Counter of equal steps.
const STEPS: &str = "{pos}/{len}";

fn measured_style(counter: &str) -> ProgressStyle {
    style(&format!("{{msg}} {{wide_bar}} {counter} {{elapsed}} (left {{eta}})"))
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates in this file are valid")
}
