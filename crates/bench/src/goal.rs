//! Performance goals of the kernels.

use std::fmt;

use crate::outcome::{Outcome, Role};

/// A goal for our own implementation of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// Measured for comparison only.
    None,
    /// At least this share of the ceiling.
    Share(f64),
    /// At least this share of the ceiling, and faster than every rival in the same rounds.
    ShareAndLead(f64),
    /// At least this rate, in 10^9 operations per second.
    Gflops(f64),
    /// At least this many times as fast as our own kernel in single precision, in the same rounds.
    TimesFloat(f64),
    /// At most this many milliseconds.
    Milliseconds(f64),
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::None => f.write_str("-"),
            Goal::Share(share) => write!(f, "≥ {:.0} %", 100.0 * share),
            Goal::ShareAndLead(share) => write!(f, "≥ {:.0} %, ahead of all", 100.0 * share),
            Goal::Gflops(rate) => write!(f, "≥ {rate:.0} GFLOP/s"),
            Goal::TimesFloat(factor) => write!(f, "≥ {factor:.0}× f32"),
            Goal::Milliseconds(limit) => write!(f, "≤ {limit:.0} ms"),
        }
    }
}

impl Goal {
    /// Whether the goal was met; `None` without a goal or a measurement.
    pub(crate) fn is_met(self, outcome: &Outcome) -> Option<bool> {
        let ours = outcome.of_role(Role::Ours)?;
        let share = || outcome.share_of_ceiling(ours).unwrap_or(0.0);
        match self {
            Goal::None => None,
            Goal::Share(goal) => Some(share() >= goal),
            Goal::ShareAndLead(goal) => {
                Some(share() >= goal && outcome.lead().is_none_or(|lead| lead > 1.0))
            }
            Goal::Gflops(goal) => Some(ours.median() >= goal),
            Goal::TimesFloat(goal) => outcome.times_float().map(|factor| factor >= goal),
            Goal::Milliseconds(goal) => Some(ours.median() <= goal),
        }
    }
}
