//! The result of measuring one kernel on one shape.

use crate::goal::Goal;
use crate::statistics::{median, paired_ratio, spread};

/// Unit of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// 10^9 arithmetic operations per second.
    Gflops,
    /// 10^9 operations on bytes per second.
    Gops,
    /// 10^9 bytes read or written per second.
    Gbps,
    /// Milliseconds.
    Milliseconds,
}

impl Unit {
    /// Name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Unit::Gflops => "GFLOP/s",
            Unit::Gops => "GOP/s",
            Unit::Gbps => "GB/s",
            Unit::Milliseconds => "ms",
        }
    }
}

/// Role of an implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The machine's ceiling.
    Ceiling,
    /// Our kernel, the one with the goal.
    Ours,
    /// Our kernel in single precision beside one in bytes.
    OurFloat,
    /// Another crate.
    Rival,
}

/// The samples of one implementation, one per round.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) implementation: String,
    pub(crate) role: Role,
    pub(crate) samples: Vec<f64>,
    /// Largest difference from our result (ours: from the definition), relative to the largest element.
    pub(crate) error: Option<f64>,
}

impl Entry {
    pub(crate) fn median(&self) -> f64 {
        median(&self.samples)
    }

    pub(crate) fn spread(&self) -> f64 {
        spread(&self.samples)
    }
}

/// Everything measured of one kernel on one shape, or why nothing was.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) kernel: &'static str,
    pub(crate) shape: String,
    pub(crate) unit: Unit,
    pub(crate) goal: Goal,
    pub(crate) entries: Vec<Entry>,
    /// Rounds that were measured although other processes ran, because too few were quiet.
    pub(crate) disturbed: usize,
    /// Bytes of activations of the program, its result included.
    pub(crate) arena_bytes: Option<usize>,
    /// Why nothing was measured.
    pub(crate) skipped: Option<String>,
}

impl Outcome {
    /// The first entry of a role.
    pub(crate) fn of_role(&self, role: Role) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.role == role)
    }

    /// Share of the ceiling that an implementation reached, within rounds.
    pub(crate) fn share_of_ceiling(&self, entry: &Entry) -> Option<f64> {
        let ceiling = self.of_role(Role::Ceiling)?;
        (entry.role != Role::Ceiling && entry.role != Role::OurFloat)
            .then(|| paired_ratio(&entry.samples, &ceiling.samples))
    }

    /// Our rate relative to the best rival's, within rounds.
    pub(crate) fn lead(&self) -> Option<f64> {
        let ours = self.of_role(Role::Ours)?;
        self.entries
            .iter()
            .filter(|entry| entry.role == Role::Rival)
            .map(|rival| paired_ratio(&ours.samples, &rival.samples))
            .min_by(f64::total_cmp)
    }

    /// Our rate relative to our kernel in single precision, within rounds.
    pub(crate) fn times_float(&self) -> Option<f64> {
        let (ours, float) = (self.of_role(Role::Ours)?, self.of_role(Role::OurFloat)?);
        Some(paired_ratio(&ours.samples, &float.samples))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An outcome with a ceiling of 100, ours and one rival.
    pub(crate) fn sample(ours: f64, rival: f64, goal: Goal) -> Outcome {
        let entry = |name: &str, role, rate: f64| Entry {
            implementation: name.to_owned(),
            role,
            samples: vec![rate, rate * 0.5, rate],
            error: (role != Role::Ceiling).then_some(1e-7),
        };
        Outcome {
            kernel: "gemm_f32",
            shape: "4096x768x2304".to_owned(),
            unit: Unit::Gflops,
            goal,
            entries: vec![
                entry("ceiling", Role::Ceiling, 100.0),
                entry("cutout", Role::Ours, ours),
                entry("faer", Role::Rival, rival),
            ],
            disturbed: 0,
            arena_bytes: None,
            skipped: None,
        }
    }

    #[test]
    fn goals_need_share_and_lead() {
        let met = |ours, rival, goal: Goal| goal.is_met(&sample(ours, rival, goal));
        assert_eq!(met(85.0, 60.0, Goal::ShareAndLead(0.8)), Some(true));
        assert_eq!(met(85.0, 90.0, Goal::ShareAndLead(0.8)), Some(false));
        assert_eq!(met(85.0, 90.0, Goal::Share(0.8)), Some(true));
        assert_eq!(met(75.0, 60.0, Goal::Share(0.8)), Some(false));
        assert_eq!(met(75.0, 60.0, Goal::Gflops(70.0)), Some(true));
        assert_eq!(met(75.0, 60.0, Goal::Milliseconds(70.0)), Some(false));
        assert_eq!(met(75.0, 60.0, Goal::TimesFloat(3.0)), None);
        assert_eq!(met(75.0, 60.0, Goal::None), None);
    }
}
