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
const CHAPTERS: [(&str, &[&str]); 9] = [
    ("Matrix products, f32 (rows × depth × columns)", &["gemm_f32"]),
    ("Matrix products, bf16", &["gemm_bf16"]),
    ("Matrix products, int8", &["gemm_int8"]),
    ("Attention, f32", &["attention"]),
    ("Attention, bf16", &["attention_bf16"]),
    ("Attention, int8", &["attention_int8"]),
    ("Bound by memory", &["layer_norm", "softmax", "gelu"]),
    ("Convolutions", &["conv2d", "conv_transpose2d"]),
    ("Compile time", &["compile"]),
];

/// Begins the section of one kind of processor.
const SECTION: &str = "\n## Kernels on ";
/// Begins what follows the sections.
const METHOD: &str = "\n## Method\n";

/// The whole page: the notes of the `old` page, a section per kind of processor, then the method. A run makes the section of its own
/// processor and keeps the others.
pub(crate) fn render(run: &Run<'_>, ceilings: &Ceilings, old: &str) -> String {
    let mut page = format!("# Performance\n\n{NOTES_BEGIN}\n{}\n{NOTES_END}\n", notes(old));
    let ours = section(run, ceilings);
    let heading = ours.lines().next().unwrap_or_default();
    let mut sections: Vec<&str> = sections(old).collect();
    match sections.iter_mut().find(|known| known.lines().next() == Some(heading)) {
        Some(known) => *known = &ours,
        None => sections.push(&ours),
    }
    for section in sections {
        page += SECTION;
        page += section.trim_end();
        page.push('\n');
    }
    page + &method()
}

/// The sections of an earlier page, each from its processor's name on.
fn sections(old: &str) -> impl Iterator<Item = &str> {
    let body = old.split_once(NOTES_END).map_or("", |(_, body)| body);
    let body = body.split_once(METHOD).map_or(body, |(sections, _)| sections);
    body.split(SECTION).skip(1)
}

/// The processor, its ceilings and its tables.
fn section(run: &Run<'_>, ceilings: &Ceilings) -> String {
    let Machine { processor, cores, threads, isa, extensions, caches, date, commit, load } =
        run.machine;
    let mut section = format!(
        "{processor}\n\n\
         Made by `{command}` on {date}, commit {commit}: {threads} threads on {cores} cores, {isa} ({extensions}), {caches},\n\
         load before the run {load}. Ceilings, medians over the whole run:\n\n{ceilings}",
        command = run.command,
        ceilings = list(table::ceilings(ceilings).lines()),
    );
    for (title, kernels) in CHAPTERS {
        let outcomes: Vec<&Outcome> =
            run.outcomes.iter().filter(|outcome| kernels.contains(&outcome.kernel)).collect();
        if !outcomes.is_empty() {
            section += &format!("\n### {title}\n\n{}", chapter(&outcomes));
        }
    }
    section
}

fn method() -> String {
    let rivals = list(rivals::CONFIGURATION.into_iter());
    format!(
        "{METHOD}\n\
         The ceiling is the speed of multiply-adds or dot products in registers, or of a large copy for kernels bound by memory. The\n\
         share is cutout's speed relative to it. Speeds count the operations of the plain algorithm; shares above 100 % are possible\n\
         because Strassen's and Winograd's algorithms multiply less.\n\n\
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

    fn page_of(processor: &str, speed: f64, old: &str) -> String {
        // The load differs from one look to the next.
        let machine = Machine {
            processor: processor.to_owned(),
            load: "0.10".to_owned(),
            ..Machine::detect(2)
        };
        let outcomes = [sample(speed, 60.0, Goal::ShareAndLead(0.8))];
        let run = Run { machine: &machine, command: "cargo xtask bench", outcomes: &outcomes };
        let ceilings = Ceilings { copy: vec![20.0], ..Ceilings::default() };
        render(&run, &ceilings, old)
    }

    #[test]
    fn a_page_keeps_its_notes() {
        let first = page_of("Some CPU", 90.0, "");
        assert!(first.contains("None yet."), "{first}");
        assert!(first.contains("## Kernels on Some CPU\n"), "{first}");
        assert!(first.contains("| gemm_f32 4096x768x2304 | 100.0 GFLOP/s ± 25 % |"), "{first}");
        assert!(first.contains("≥ 80 %, ahead of all: met"), "{first}");
        let edited = first.replace("None yet.", "The first row is the one to watch.\n\nMore.");
        assert_eq!(page_of("Some CPU", 90.0, &edited), edited);
    }

    #[test]
    fn a_run_replaces_only_the_section_of_its_processor() {
        let one = page_of("One", 90.0, "");
        let both = page_of("Another", 80.0, &one);
        let again = page_of("One", 70.0, &both);
        assert!(both.contains("≥ 80 %, ahead of all: met"), "{both}");
        assert_eq!(again.matches("## Kernels on One\n").count(), 1);
        assert_eq!(again.matches("## Method\n").count(), 1);
        let of = |page: &str, name: &str| {
            let sections: Vec<String> = sections(page).map(str::to_owned).collect();
            sections.into_iter().find(|section| section.starts_with(name)).unwrap()
        };
        assert_eq!(of(&again, "Another").trim_end(), of(&both, "Another").trim_end());
        assert_ne!(of(&again, "One").trim_end(), of(&both, "One").trim_end());
    }
}
