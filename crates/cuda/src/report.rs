//! Reports of values that ops are not defined on, which kernels write during a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cutout_graph::RunError;

use crate::driver::{Context, DeviceError, Memory};
use crate::lower::PROBLEM_BYTES;
use crate::program::run_error;

/// What a report says, as it lies on the card.
pub(crate) type Reported = [u64; PROBLEM_BYTES / 8];

/// The report of one run. It is read when a value that depends on the run is fetched, so that runs need not wait for each other.
pub(crate) struct Report {
    memory: Memory,
    /// The ops of the program, by step.
    printed: Arc<[String]>,
    clean: AtomicBool,
}

impl Report {
    /// Enqueues a copy of what the kernels of a run wrote at `address`.
    pub(crate) fn copied(
        context: &Arc<Context>,
        address: u64,
        printed: Arc<[String]>,
    ) -> Result<Report, DeviceError> {
        let memory = context.allocate(PROBLEM_BYTES)?;
        context.copy_within(memory.address(), address, PROBLEM_BYTES)?;
        Ok(Report { memory, printed, clean: AtomicBool::new(false) })
    }

    /// Whether it was read, and nothing was wrong.
    pub(crate) fn is_clean(&self) -> bool {
        self.clean.load(Ordering::Relaxed)
    }

    /// Waits for the run, and says what was wrong in it.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        if self.is_clean() {
            return Ok(());
        }
        let mut words = Reported::default();
        let mut ranges = [self.range(&mut words)];
        self.memory.context().copy_out(None, &mut ranges).map_err(run_error)?;
        self.judge(&words)
    }

    /// Where the report lies, and where a copy of it goes.
    pub(crate) fn range<'w>(&self, words: &'w mut Reported) -> (u64, &'w mut [u8]) {
        (self.memory.address(), bytemuck::cast_slice_mut(words))
    }

    /// Says what was wrong in the run, of which this is the report.
    pub(crate) fn judge(&self, words: &Reported) -> Result<(), RunError> {
        match problem(*words) {
            None => {
                self.clean.store(true, Ordering::Relaxed);
                Ok(())
            }
            Some((step, reason)) => {
                let op = self.printed.get(step).cloned().unwrap_or_default();
                Err(RunError::Value { op, reason })
            }
        }
    }
}

/// The step that reported something, and what.
fn problem(words: Reported) -> Option<(usize, String)> {
    let (step, kind) = (words[0] as u32, (words[0] >> 32) as u32);
    let step = usize::try_from(step).ok()?.checked_sub(1)?;
    let at = words[1];
    let (value, other) = (f64::from_bits(words[2]), f64::from_bits(words[3]));
    let reason = match kind {
        0 => format!("index {value} at element {at} is outside a table of {other} rows"),
        1 => format!("box {at}: batch index {value} is outside a batch of {other}"),
        2 => format!("box {at}: corners are not finite"),
        _ => format!("box {at}: needs {value} samples along a cell, 4096 at most"),
    };
    Some((step, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_the_step_and_the_value() {
        assert_eq!(problem([0; 4]), None);
        let words = [3, 1, 7f64.to_bits(), 5f64.to_bits()];
        let (step, reason) = problem(words).unwrap();
        assert_eq!(step, 2);
        assert_eq!(reason, "index 7 at element 1 is outside a table of 5 rows");
    }
}
