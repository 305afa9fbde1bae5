//! Rounds: every implementation of a kernel and the ceiling, measured one after another.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::disturbance::{self, Watch};
use crate::goal::Goal;
use crate::outcome::{Entry, Outcome, Role, Unit};
use crate::progress::Progress;

/// Total time of the calls of one sample: a sample of a short kernel is the mean over several calls.
const SAMPLE_SECONDS: f64 = 0.004;

/// Largest relative difference (by the largest element) between results of the same computation.
const TOLERANCE: f64 = 1e-4;

/// The same, where numbers are rounded to bf16 or bytes inside.
const ROUNDED_TOLERANCE: f64 = 5e-2;

/// Number of rounds of a kernel: at least the first number, then until the time is over or the second number is reached.
///
/// Only quiet rounds count, in which no other process ran. The time spent waiting for them is limited for the whole run
/// (`patience`); after that, disturbed rounds count too.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    rounds: RangeInclusive<usize>,
    time: Duration,
    patience: Cell<Duration>,
}

impl Budget {
    pub(crate) fn new(rounds: RangeInclusive<usize>, time: Duration, patience: Duration) -> Budget {
        Budget { rounds, time, patience: Cell::new(patience) }
    }

    /// Whether another round is due, after `quiet` quiet rounds that took `time` and `all` rounds in total.
    fn allows(&self, quiet: usize, all: usize, time: Duration) -> bool {
        let enough = *self.rounds.start();
        if quiet >= enough {
            return quiet < *self.rounds.end() && time < self.time;
        }
        all < enough || !self.patience.get().is_zero()
    }

    /// Waits until the disturbance is over or patience has run out.
    fn wait(&self, disturbed: Watch) {
        let mut watch = disturbed;
        loop {
            self.patience.set(self.patience.get().saturating_sub(watch.elapsed()));
            if self.patience.get().is_zero() || !watch.is_disturbed() {
                return;
            }
            watch = Watch::start();
            std::thread::sleep(disturbance::LONG_ENOUGH);
        }
    }
}

/// A kernel on a shape.
#[derive(Clone, Debug)]
pub(crate) struct Contest {
    pub(crate) kernel: &'static str,
    pub(crate) shape: String,
    pub(crate) unit: Unit,
    /// Operations or bytes of one call.
    pub(crate) work: f64,
    pub(crate) goal: Goal,
}

/// One implementation, ready to be sampled.
pub(crate) struct Contestant<'a> {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) error: Option<f64>,
    /// Largest error.
    pub(crate) tolerance: f64,
    pub(crate) sample: Box<dyn FnMut() -> Result<f64> + 'a>,
}

impl Contestant<'_> {
    /// The contestant, whose results may differ by what rounding inside changes.
    pub(crate) fn rounding_inside(self) -> Self {
        Contestant { tolerance: ROUNDED_TOLERANCE, ..self }
    }
}

impl Contest {
    /// The machine's ceiling, in the unit of this contest.
    pub(crate) fn ceiling<'a>(&self, mut rate: impl FnMut() -> f64 + 'a) -> Contestant<'a> {
        Contestant {
            name: "ceiling".to_owned(),
            role: Role::Ceiling,
            error: None,
            tolerance: TOLERANCE,
            sample: Box::new(move || Ok(rate())),
        }
    }

    /// An implementation whose `call` does the work once and returns the seconds it took.
    pub(crate) fn timed<'a>(
        &self,
        name: impl Into<String>,
        role: Role,
        error: f64,
        call: impl FnMut() -> Result<f64> + 'a,
    ) -> Contestant<'a> {
        let (unit, work) = (self.unit, self.work);
        let mut sampler = Sampler { call, calls: 0 };
        let sample = move || {
            let seconds = sampler.seconds()?;
            Ok(match unit {
                Unit::Gflops | Unit::Gops | Unit::Gbps => work / seconds / 1e9,
                Unit::Milliseconds => seconds * 1e3,
            })
        };
        let (error, tolerance) = (Some(error), TOLERANCE);
        Contestant { name: name.into(), role, error, tolerance, sample: Box::new(sample) }
    }

    /// Measures all contestants; fails if one computes something else.
    pub(crate) fn run(
        self,
        mut contestants: Vec<Contestant<'_>>,
        budget: &Budget,
        progress: &Progress,
    ) -> Result<Outcome> {
        for Contestant { name, error, tolerance, .. } in &contestants {
            // Negated so that NaN fails too.
            let same = error.is_none_or(|error| error <= *tolerance);
            ensure!(same, "{name} computes something else: error {:e}", error.unwrap_or(f64::NAN));
        }
        let mut rounds = rounds(&mut contestants, budget, progress)?;
        let disturbed = rounds.settle(*budget.rounds.start());
        let entries = contestants.into_iter().zip(rounds.samples);
        let entry = |(contestant, samples): (Contestant<'_>, Vec<f64>)| Entry {
            implementation: contestant.name,
            role: contestant.role,
            samples,
            error: contestant.error,
        };
        Ok(Outcome { entries: entries.map(entry).collect(), disturbed, ..self.skipped(None) })
    }

    /// The outcome when nothing is measured.
    pub(crate) fn skipped(self, reason: Option<String>) -> Outcome {
        let Contest { kernel, shape, unit, goal, .. } = self;
        Outcome {
            kernel,
            shape,
            unit,
            goal,
            entries: Vec::new(),
            disturbed: 0,
            arena_bytes: None,
            skipped: reason,
        }
    }
}

/// The samples of all rounds.
struct Rounds {
    /// The samples of each contestant, one per round.
    samples: Vec<Vec<f64>>,
    /// Whether no other process ran in the round.
    quiet: Vec<bool>,
}

impl Rounds {
    /// Drops the disturbed rounds if enough quiet ones are left; returns the number of disturbed rounds that remain.
    fn settle(&mut self, enough: usize) -> usize {
        let quiet = self.quiet.iter().filter(|quiet| **quiet).count();
        if quiet < enough {
            return self.quiet.len() - quiet;
        }
        for samples in &mut self.samples {
            let mut flags = self.quiet.iter();
            samples.retain(|_| flags.next().is_some_and(|quiet| *quiet));
        }
        0
    }
}

/// Samples every contestant once per round. The order changes, so that no contestant always follows the same one.
fn rounds(
    contestants: &mut [Contestant<'_>],
    budget: &Budget,
    progress: &Progress,
) -> Result<Rounds> {
    let count = contestants.len();
    let mut rounds = Rounds { samples: vec![Vec::new(); count], quiet: Vec::new() };
    let (mut quiet, mut time) = (0, Duration::ZERO);
    while budget.allows(quiet, rounds.quiet.len(), time) {
        // Short rounds are judged together: the time of other processes is counted in clock ticks.
        let watch = Watch::start();
        let first = rounds.quiet.len();
        let mut done = first;
        while done == first
            || !watch.is_long_enough() && budget.allows(quiet + done - first, done, time)
        {
            for position in 0..count {
                let index = (position + done) % count;
                progress.step(done + 1, &contestants[index].name);
                rounds.samples[index].push((contestants[index].sample)()?);
            }
            done += 1;
        }
        let disturbed = watch.is_disturbed();
        rounds.quiet.resize(done, !disturbed);
        if disturbed {
            progress.step(done, "waiting for other processes");
            budget.wait(watch);
        } else {
            quiet += done - first;
            time += watch.elapsed();
        }
    }
    Ok(rounds)
}

/// Takes samples of a call that times itself.
struct Sampler<F> {
    call: F,
    /// Calls per sample; 0 until the first call.
    calls: usize,
}

impl<F: FnMut() -> Result<f64>> Sampler<F> {
    /// Mean seconds of a call. Short calls follow a warm-up call that brings their data back into the caches.
    fn seconds(&mut self) -> Result<f64> {
        if self.calls == 0 {
            // Not the first call: the results were compared before.
            let once = (self.call)()?.max(1e-7);
            self.calls = (SAMPLE_SECONDS / once).ceil() as usize;
            if self.calls == 1 {
                return Ok(once);
            }
        }
        if self.calls > 1 {
            (self.call)()?;
        }
        let mut total = 0.0;
        for _ in 0..self.calls {
            total += (self.call)()?;
        }
        Ok(total / self.calls as f64)
    }
}

/// Runs `body` and returns the seconds it took.
pub(crate) fn seconds(body: impl FnOnce()) -> f64 {
    let started = Instant::now();
    body();
    started.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEST: Contest = Contest {
        kernel: "gelu",
        shape: String::new(),
        unit: Unit::Gbps,
        work: 2e9,
        goal: Goal::None,
    };

    #[test]
    fn every_round_samples_every_contestant_once() {
        let budget = Budget::new(3..=3, Duration::ZERO, Duration::ZERO);
        let order = std::cell::RefCell::new(Vec::new());
        let order = &order;
        let named = |name: &'static str| Contestant {
            name: name.to_owned(),
            role: Role::Rival,
            tolerance: TOLERANCE,
            error: None,
            sample: Box::new(move || {
                order.borrow_mut().push(name);
                Ok(order.borrow().len() as f64)
            }),
        };
        let outcome = CONTEST.run(vec![named("a"), named("b")], &budget, &Progress::silent());
        assert_eq!(*order.borrow(), ["a", "b", "b", "a", "a", "b"]);
        let outcome = outcome.unwrap();
        assert_eq!(outcome.entries[0].samples, [1.0, 4.0, 5.0]);
        assert_eq!(outcome.entries[1].samples, [2.0, 3.0, 6.0]);
    }

    #[test]
    fn disturbed_rounds_count_only_where_quiet_ones_are_few() {
        let rounds = |quiet: [bool; 3]| Rounds {
            samples: vec![vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]],
            quiet: quiet.into(),
        };
        let mut settled = rounds([true, false, true]);
        assert_eq!(settled.settle(2), 0);
        assert_eq!(settled.samples, [[1.0, 3.0], [4.0, 6.0]]);
        let mut settled = rounds([true, false, false]);
        assert_eq!(settled.settle(2), 2);
        assert_eq!(settled.samples[1], [4.0, 5.0, 6.0]);
    }

    #[test]
    fn budgets_wait_for_quiet_rounds_within_their_patience() {
        let seconds = Duration::from_secs;
        let budget = Budget::new(3..=5, seconds(10), seconds(1));
        assert!(budget.allows(0, 9, seconds(0)) && budget.allows(2, 9, seconds(11)));
        assert!(budget.allows(3, 3, seconds(9)) && !budget.allows(3, 3, seconds(11)));
        assert!(!budget.allows(5, 5, seconds(1)));
        budget.patience.set(Duration::ZERO);
        assert!(budget.allows(0, 2, seconds(99)), "three rounds at least, however long they take");
        assert!(!budget.allows(2, 3, seconds(0)));
    }

    #[test]
    fn rates_come_from_seconds() {
        let mut calls = 0;
        let mut contestant = CONTEST.timed("ours", Role::Ours, 0.0, || {
            calls += 1;
            Ok(0.001)
        });
        let rate = (contestant.sample)().unwrap();
        assert!((rate - 2000.0).abs() < 1e-9, "{rate}");
        drop(contestant);
        assert_eq!(calls, 1 + 1 + 4, "one to calibrate, one to warm up, four to make a sample");
    }

    #[test]
    fn another_computation_is_not_measured() {
        let budget = Budget::new(1..=1, Duration::ZERO, Duration::ZERO);
        for error in [1e-3, f64::NAN] {
            let other = CONTEST.timed("other", Role::Rival, error, || Ok(1.0));
            let result = CONTEST.run(vec![other], &budget, &Progress::silent());
            assert!(result.unwrap_err().to_string().contains("other computes something else"));
        }
    }
}
