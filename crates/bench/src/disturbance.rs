//! Detects other processes that ran during a measurement.
//!
//! A ceiling is the best of short measurements and a kernel runs for longer, so another process slows only the kernel. Rounds in
//! which other processes ran are not comparable.

use std::fs::read_to_string;
use std::time::{Duration, Instant};

/// Least time of a watch: the time of other processes is counted in ticks of 10 ms.
pub(crate) const LONG_ENOUGH: Duration = Duration::from_millis(250);

/// Ticks of /proc/stat per second.
const TICKS: f64 = 100.0;

/// Processor time that other processes may use: this share of all cores, plus two ticks of rounding.
const TOLERATED_SHARE: f64 = 0.03;
const TOLERATED_SECONDS: f64 = 0.015;

/// Processor time of other processes since a start time.
pub(crate) struct Watch {
    started: Instant,
    /// Seconds of processor time used by other processes before the start; `None` if the system does not report it.
    others: Option<f64>,
}

impl Watch {
    pub(crate) fn start() -> Watch {
        Watch { started: Instant::now(), others: others() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether the watch has lasted long enough to be judged.
    pub(crate) fn is_long_enough(&self) -> bool {
        self.elapsed() >= LONG_ENOUGH
    }

    /// Whether other processes, or the host of a virtual machine, have used the processors since the start.
    pub(crate) fn is_disturbed(&self) -> bool {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
        let available = self.elapsed().as_secs_f64() * cores;
        let used = self.others.zip(others()).map_or(0.0, |(before, now)| now - before);
        used > TOLERATED_SHARE * available + TOLERATED_SECONDS
    }
}

/// Seconds of processor time used by all other processes.
fn others() -> Option<f64> {
    let everybody = busy_ticks(&read_to_string("/proc/stat").ok()?)?;
    let ours = own_ticks(&read_to_string("/proc/self/stat").ok()?)?;
    Some(everybody.saturating_sub(ours) as f64 / TICKS)
}

/// Ticks in which some process ran, from the first line of /proc/stat: user, nice, system, (idle, waiting), interrupts (two),
/// stolen by the host. Ticks of guests are part of the user ticks.
fn busy_ticks(text: &str) -> Option<u64> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    (ticks.len() >= 8).then(|| [0, 1, 2, 5, 6, 7].iter().map(|&index| ticks[index]).sum())
}

/// Ticks of a process, its system calls included, from its /proc/PID/stat.
fn own_ticks(text: &str) -> Option<u64> {
    // The name, in parentheses, may contain anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(ticks(11)? + ticks(12)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read() {
        let text = "cpu  100 20 3 5000 600 7 8 9 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_ticks(text), Some(100 + 20 + 3 + 7 + 8 + 9));
        assert_eq!(busy_ticks("cpu  1 2 3"), None);
        let text = "42 (a (b) c) R 1 42 42 0 -1 4194304 121 0 0 0 31 11 0 0 20 0 1 0 630515";
        assert_eq!(own_ticks(text), Some(42));
        assert_eq!(own_ticks("nothing"), None);
    }

    #[test]
    fn a_system_without_counters_is_never_disturbed() {
        assert!(!Watch { started: Instant::now(), others: None }.is_disturbed());
    }
}
