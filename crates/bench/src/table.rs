//! The table on the terminal.

use crate::bench::Ceilings;
use crate::outcome::{Entry, Outcome, Role, Unit};
use crate::statistics::{median, spread};

/// Titles of the columns.
pub(crate) fn header() -> String {
    format!(
        "{:<17} {:<32} {:<22} {:>16} {:>7} {:>8} {:>8}  goal",
        "kernel", "shape", "implementation", "median", "spread", "share", "error"
    )
}

/// The rows of one kernel: our own first, with its goal.
pub(crate) fn rows(outcome: &Outcome) -> String {
    if let Some(reason) = &outcome.skipped {
        return format!("{:<17} {:<32} not measured: {reason}", outcome.kernel, outcome.shape);
    }
    let rows: Vec<String> = outcome.entries.iter().map(|entry| row(outcome, entry)).collect();
    rows.join("\n")
}

fn row(outcome: &Outcome, entry: &Entry) -> String {
    let text = format!(
        "{:<17} {:<32} {:<22} {:>16} {:>5.1} % {:>8} {:>8}  {}",
        outcome.kernel,
        outcome.shape,
        entry.implementation,
        amount(entry.median(), outcome.unit),
        100.0 * entry.spread(),
        outcome.share_of_ceiling(entry).map_or_else(String::new, percent),
        entry.error.map_or_else(String::new, |error| format!("{error:.0e}")),
        if entry.role == Role::Ours { verdict(outcome) } else { String::new() },
    );
    text.trim_end().to_owned()
}

/// The goal, the measured value, and whether it was met.
pub(crate) fn verdict(outcome: &Outcome) -> String {
    let times = outcome.times_float().map(|factor| format!("{factor:.2}× f32"));
    let lead = outcome.lead().map(|lead| format!("{lead:.2}× best crate"));
    let disturbed = (outcome.disturbed > 0)
        .then(|| format!("disturbed by other processes in {} rounds", outcome.disturbed));
    let facts: Vec<String> = times.into_iter().chain(lead).chain(disturbed).collect();
    let met = match outcome.goal.is_met(outcome) {
        None => return facts.join(", "),
        Some(true) => "met",
        Some(false) => "missed",
    };
    let head = format!("{}: {met}", outcome.goal);
    std::iter::once(head).chain(facts).collect::<Vec<_>>().join(", ")
}

/// The ceilings over the whole run.
pub(crate) fn ceilings(ceilings: &Ceilings) -> String {
    let line = |name: &str, samples: &[f64], unit: Unit| {
        let (middle, spread) = (amount(median(samples), unit), 100.0 * spread(samples));
        (!samples.is_empty()).then(|| format!("{name}: {middle}, spread {spread:.1} %"))
    };
    let lines = [
        line("multiply-adds in registers", &ceilings.multiply_add, Unit::Gflops),
        line("dot products of bf16 in registers", &ceilings.half_dot, Unit::Gflops),
        line("dot products of bytes in registers", &ceilings.dot, Unit::Gops),
        line("copies beyond the caches, read + written", &ceilings.copy, Unit::Gbps),
    ];
    lines.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

pub(crate) fn amount(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Gflops | Unit::Gops | Unit::Gbps => format!("{value:.1} {}", unit.name()),
        Unit::Milliseconds => format!("{value:.2} {}", unit.name()),
    }
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Goal;
    use crate::outcome::tests::sample;

    #[test]
    fn rows_say_share_and_goal() {
        let text = rows(&sample(90.0, 60.0, Goal::ShareAndLead(0.8)));
        let ours = text.lines().nth(1).unwrap();
        assert!(ours.contains("90.0 GFLOP/s") && ours.contains("90.0 %"), "{ours}");
        assert!(ours.ends_with("≥ 80 %, ahead of all: met, 1.50× best crate"), "{ours}");
        let mut skipped = sample(1.0, 1.0, Goal::None);
        skipped.skipped = Some("no kernel".to_owned());
        assert!(rows(&skipped).ends_with("not measured: no kernel"));
    }
}
