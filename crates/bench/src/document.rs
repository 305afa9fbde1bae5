//! Writes the page of measurements.

use crate::bench::Ceilings;
use crate::machine::Machine;
use crate::outcome::{Outcome, Role};
use crate::rivals;
use crate::table;

/// The contents of a page.
pub(crate) struct Run<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) command: &'a str,
    pub(crate) outcomes: &'a [Outcome],
}

const NOTES_BEGIN: &str =
    "<!-- notes: begin. Text between these markers is kept when the page is made again. -->";
const NOTES_END: &str = "<!-- notes: end -->";

/// Kernels by chapter.
const CHAPTERS: [(&str, &[&str]); 7] = [
    ("Matrix products, f32 (rows × depth × columns)", &["gemm_f32"]),
    ("Matrix products, bf16", &["gemm_bf16"]),
    ("Matrix products, int8", &["gemm_int8"]),
    ("Attention", &["attention"]),
    ("Bound by memory", &["layer_norm", "softmax", "gelu"]),
    ("Convolutions", &["conv2d", "conv_transpose2d"]),
    ("Compile time", &["compile"]),
];

/// The whole page: the notes of the `old` page, the tables, then machine and method.
pub(crate) fn render(run: &Run<'_>, ceilings: &Ceilings, old: &str) -> String {
    let mut page = format!("# Performance\n\n{NOTES_BEGIN}\n{}\n{NOTES_END}\n", notes(old));
    page += &head(run);
    for (title, kernels) in CHAPTERS {
        let outcomes: Vec<&Outcome> =
            run.outcomes.iter().filter(|outcome| kernels.contains(&outcome.kernel)).collect();
        if !outcomes.is_empty() {
            page += &format!("\n### {title}\n\n{}", chapter(&outcomes));
        }
    }
    page + &method(run.machine, ceilings)
}

fn head(run: &Run<'_>) -> String {
    let Machine { processor, threads, isa, date, commit, .. } = run.machine;
    format!(
        "\n## Kernels\n\n\
         Made by `{command}` on {date}, commit {commit}: {processor}, {threads} threads, {isa}.\n\n\
         The ceiling is the speed of multiply-adds in registers, or of a large copy for kernels bound by memory. The share is\n\
         cutout's speed relative to it. Speeds count the operations of the plain algorithm; shares above 100 % are possible\n\
         because Strassen's and Winograd's algorithms multiply less.\n",
        command = run.command,
    )
}

fn method(machine: &Machine, ceilings: &Ceilings) -> String {
    let Machine { processor, cores, threads, isa, extensions, caches, load, .. } = machine;
    let ceilings = list(table::ceilings(ceilings).lines());
    let rivals = list(rivals::CONFIGURATION.into_iter());
    format!(
        "\n## Machine and method\n\n\
         | | |\n|---|---|\n\
         | processor | {processor} |\n\
         | cores, threads used | {cores}, {threads} |\n\
         | instruction set | {isa} ({extensions}) |\n\
         | caches | {caches} |\n\
         | load before the run | {load} |\n\n\
         Ceilings, medians over the whole run:\n\n{ceilings}\n\
         Each number is the median over rounds, with its spread (interquartile range divided by the median). A round runs\n\
         every implementation and the ceiling once; shares and factors are medians of the ratios within rounds. Results are\n\
         checked before timing: cutout against the op's reference definition (on an excerpt if the whole would take minutes),\n\
         the other crates against cutout. The largest error, relative to the largest element, must stay below 1e-4. Rounds\n\
         disturbed by other processes are discarded; if too few are left, the goal column says so.\n\n\
         The other crates:\n\n{rivals}",
    )
}

fn list<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.map(|line| format!("- {line}\n")).collect()
}

/// The text between the markers of an earlier page.
fn notes(old: &str) -> &str {
    let inside = || old.split_once(NOTES_BEGIN)?.1.split_once(NOTES_END);
    inside().map_or("None yet.", |(notes, _)| notes.trim())
}

/// One table: a row per kernel and shape, a column per implementation.
fn chapter(outcomes: &[&Outcome]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for entry in outcomes.iter().flat_map(|outcome| &outcome.entries) {
        if !columns.contains(&entry.implementation.as_str()) {
            columns.push(&entry.implementation);
        }
    }
    let mut table = format!("| kernel | {} | share | goal |\n|---|", columns.join(" | "));
    table += &"---|".repeat(columns.len() + 2);
    table.push('\n');
    for outcome in outcomes {
        table += &line(outcome, &columns);
    }
    table + &errors(outcomes)
}

fn line(outcome: &Outcome, columns: &[&str]) -> String {
    let name = format!("{} {}", outcome.kernel, outcome.shape);
    if let Some(reason) = &outcome.skipped {
        let empty = " |".repeat(columns.len() + 1);
        return format!("| {name} |{empty} {}: not measured, {reason} |\n", outcome.goal);
    }
    let cell = |column: &&str| {
        let entry = outcome.entries.iter().find(|entry| entry.implementation == *column);
        entry.map_or_else(String::new, |entry| {
            let amount = table::amount(entry.median(), outcome.unit);
            format!("{amount} ± {:.0} %", 100.0 * entry.spread())
        })
    };
    let cells: Vec<String> = columns.iter().map(cell).collect();
    let ours = outcome.of_role(Role::Ours);
    let share = ours.and_then(|ours| outcome.share_of_ceiling(ours));
    let share = share.map_or_else(String::new, table::percent);
    let memory = outcome
        .arena_bytes
        .map(|bytes| format!("activations {:.1} MiB", bytes as f64 / f64::from(1 << 20)));
    let verdict = Some(table::verdict(outcome)).filter(|text| !text.is_empty());
    let remarks: Vec<String> = verdict.into_iter().chain(memory).collect();
    format!("| {name} | {} | {share} | {} |\n", cells.join(" | "), remarks.join("; "))
}

/// The largest error of each implementation, in one line.
fn errors(outcomes: &[&Outcome]) -> String {
    let mut worst: Vec<(&str, f64)> = Vec::new();
    for entry in outcomes.iter().flat_map(|outcome| &outcome.entries) {
        let Some(error) = entry.error else { continue };
        let name = entry.implementation.as_str();
        match worst.iter_mut().find(|(known, _)| *known == name) {
            Some((_, largest)) => *largest = largest.max(error),
            None => worst.push((name, error)),
        }
    }
    if worst.iter().all(|(_, error)| *error == 0.0) {
        return String::new();
    }
    let list: Vec<String> =
        worst.iter().map(|(name, error)| format!("{name} {error:.1e}")).collect();
    format!("\nLargest errors: {}.\n", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Goal;
    use crate::outcome::tests::sample;

    #[test]
    fn a_page_keeps_its_notes() {
        let machine = Machine::detect(2);
        let outcomes = [sample(90.0, 60.0, Goal::ShareAndLead(0.8))];
        let run = Run { machine: &machine, command: "cargo xtask bench", outcomes: &outcomes };
        let ceilings = Ceilings { copy: vec![20.0], ..Ceilings::default() };
        let first = render(&run, &ceilings, "");
        assert!(first.contains("None yet."), "{first}");
        assert!(first.contains("| gemm_f32 4096x768x2304 | 100.0 GFLOP/s ± 25 % |"), "{first}");
        assert!(first.contains("≥ 80 %, ahead of all: met"), "{first}");
        let edited = first.replace("None yet.", "The first row is the one to watch.\n\nMore.");
        let second = render(&run, &ceilings, &edited);
        assert_eq!(second, edited);
    }
}
