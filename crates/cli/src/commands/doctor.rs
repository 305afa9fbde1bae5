//! `cutout doctor`: the machine, a self check of the kernels, and the models that run here.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use cutout_sam::Profile;
use cutout_sam::device::{
    ByteUnit, CardFacts, HalfUnit, Isa, SelfCheck, cards, self_check, strassen_rule, threads,
    usable_gpu,
};
use serde_json::{Value, json};

use crate::checkpoints::Catalogue;
use crate::environment::Environment;
use crate::{format, stdio};

mod machine;

use machine::{Gpu, Machine};

/// Check this machine: processor, memory, ffmpeg, checkpoints, and a self check of the kernels
#[derive(Args)]
#[command(after_help = "Examples:
  cutout doctor
  cutout doctor --json | jq .self_check

Exit code 1: an instruction set gives wrong results on this machine.")]
pub(crate) struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<()> {
        let findings = Findings::collect();
        if self.json {
            stdio::print_json(&findings.to_json())?;
        } else {
            stdio::print(&findings.text())?;
        }
        if !findings.checks.iter().all(SelfCheck::passed) {
            bail!("the self check failed: results on this machine cannot be trusted");
        }
        Ok(())
    }
}

/// Results of all checks.
struct Findings {
    machine: Machine,
    threads: usize,
    ffmpeg: Option<PathBuf>,
    catalogue: Catalogue,
    temporary: PathBuf,
    /// Error of writing to the temporary folder.
    temporary_problem: Option<String>,
    checks: Vec<SelfCheck>,
}

impl Findings {
    fn collect() -> Self {
        let environment = Environment::read();
        let threads = threads(&Profile::default());
        let temporary = std::env::temp_dir();
        Findings {
            machine: Machine::detect(),
            threads,
            ffmpeg: environment.program("ffmpeg"),
            catalogue: Catalogue::usual(&environment),
            temporary_problem: write_something(&temporary),
            temporary,
            checks: self_check(threads),
        }
    }

    fn text(&self) -> String {
        let Machine { system, processor, features, memory, huge_pages, gpu } = &self.machine;
        let mut rows = Vec::new();
        let mut add = |key: &str, value: String| rows.push(vec![key.to_owned(), value]);
        let unknown = || "not known on this system".to_owned();
        add("cutout", env!("CARGO_PKG_VERSION").to_owned());
        add("system", system.clone());
        add("processor", processor.clone());
        add("features", if features.is_empty() { unknown() } else { features.join(" ") });
        add("instructions", self.instructions());
        add("f32", strassen_rule());
        let isa = Isa::detect();
        add("bf16", HalfUnit::detect(isa).description().to_owned());
        add("int8", ByteUnit::detect(isa).description(isa).to_owned());
        add("threads", format!("{} (one for each core)", self.threads));
        add(
            "memory",
            memory.as_ref().map_or_else(unknown, |memory| {
                format!("{}, {} free", format::bytes(memory.total), format::bytes(memory.free))
            }),
        );
        add("huge pages", huge_pages.clone().unwrap_or_else(unknown));
        add("GPU", gpu_text(gpu));
        for line in cards_text(&cards().unwrap_or_default()) {
            add("", line);
        }
        add(
            "ffmpeg",
            self.ffmpeg.as_ref().map_or_else(
                || "not found; needed for video files".to_owned(),
                |path| path.display().to_string(),
            ),
        );
        add(
            "temp folder",
            match &self.temporary_problem {
                None => format!("{}, can be written", self.temporary.display()),
                Some(problem) => format!("{}: {problem}", self.temporary.display()),
            },
        );
        for check in &self.checks {
            add("self check", check_text(check));
        }
        let found = &self.catalogue.found;
        add("checkpoints", format::counted(found.len(), "model"));
        for file in found {
            if let Ok(content) = &file.content {
                add("", format!("{}: {}", content.identity, file.path.display()));
            }
        }
        format!("{}\n\n{}", format::table(&rows), self.verdict())
    }

    /// The instruction set in use, and the other available ones.
    fn instructions(&self) -> String {
        let others: Vec<&str> = Isa::available().into_iter().skip(1).map(Isa::name).collect();
        let rest = if others.is_empty() {
            String::new()
        } else {
            format!(" (also available: {})", others.join(", "))
        };
        format!("{}{rest}", Isa::detect().name())
    }

    /// Summary: which models run, and how.
    fn verdict(&self) -> String {
        if !self.checks.iter().all(SelfCheck::passed) {
            return "Do not use this machine: the self check failed.".to_owned();
        }
        let device = match usable_gpu() {
            Ok((name, _)) => format!("on the GPU, {name}"),
            Err(_) => format!(
                "on the processor, with {} on {}",
                Isa::detect().name(),
                format::counted(self.threads, "thread")
            ),
        };
        let identities = self.catalogue.found.iter().filter_map(|file| file.content.as_ref().ok());
        let runnable = identities.filter(|content| content.problem.is_none()).count();
        let found = match (runnable, self.catalogue.found.len()) {
            (0, 0) => "; no checkpoint was found".to_owned(),
            (0, _) => "; the checkpoints found hold models that this version cannot run".to_owned(),
            (_, _) => format!(", and {} found", format::counted(runnable, "checkpoint")),
        };
        format!("Models would run {device}: the small built-in one{found}.")
    }

    fn to_json(&self) -> Value {
        let Machine { system, processor, features, memory, huge_pages, gpu } = &self.machine;
        let check = |check: &SelfCheck| {
            let (difference, error) = match &check.outcome {
                Ok(difference) => (Some(difference.largest), None),
                Err(error) => (None, Some(error.to_string())),
            };
            json!({
                "instructions": check.isa.name(),
                "passed": check.passed(),
                "largest_difference": difference,
                "error": error,
            })
        };
        let models = self.catalogue.found.iter().filter_map(|file| {
            let content = file.content.as_ref().ok()?;
            Some(json!({
                "model": content.identity.to_string(),
                "path": file.path.display().to_string(),
                "runs": content.problem.is_none(),
            }))
        });
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "system": system,
            "processor": processor,
            "features": features,
            "instructions": Isa::detect().name(),
            "f32": strassen_rule(),
            "bf16": HalfUnit::detect(Isa::detect()).name(),
            "int8": ByteUnit::detect(Isa::detect()).name(),
            "instructions_available": Isa::available().into_iter().map(Isa::name).collect::<Vec<_>>(),
            "threads": self.threads,
            "memory_bytes": memory.as_ref().map(|memory| memory.total),
            "memory_free_bytes": memory.as_ref().map(|memory| memory.free),
            "huge_pages": huge_pages,
            "gpus": gpu.names,
            "cuda_all": usable_numbers(&cards().unwrap_or_default()),
            "gpu_driver": gpu.driver,
            "ffmpeg": self.ffmpeg.as_ref().map(|path| path.display().to_string()),
            "temp_folder": self.temporary.display().to_string(),
            "temp_folder_problem": self.temporary_problem,
            "self_check": self.checks.iter().map(check).collect::<Vec<_>>(),
            "checkpoints": models.collect::<Vec<_>>(),
            "verdict": self.verdict(),
        })
    }
}

/// Whether a GPU is used, or why not.
fn gpu_text(gpu: &Gpu) -> String {
    let driver = gpu.driver.as_ref().map_or(String::new(), |driver| format!(" ({driver})"));
    match usable_gpu() {
        Ok((name, memory)) => {
            format!("{name}{driver}, {}; used by --device auto", format::bytes(memory as u64))
        }
        Err(reason) if gpu.names.is_empty() => format!("none used: {reason}{driver}"),
        Err(reason) => format!("{}{driver} not used: {reason}", gpu.names.join(", ")),
    }
}

/// The numbers of the cards that `--device cuda:all` uses.
fn usable_numbers(cards: &[CardFacts]) -> Vec<usize> {
    let numbered = cards.iter().enumerate();
    numbered.filter(|(_, card)| card.problem.is_none()).map(|(number, _)| number).collect()
}

/// A line for each card, where there are several, and what `--device cuda:all` uses.
fn cards_text(cards: &[CardFacts]) -> Vec<String> {
    if cards.len() < 2 {
        return Vec::new();
    }
    let line = |(number, card): (usize, &CardFacts)| {
        let CardFacts { name, memory, problem } = card;
        let memory = format::bytes(*memory as u64);
        match problem {
            None => format!("cuda:{number}: {name}, {memory}"),
            Some(problem) => format!("cuda:{number}: {name}, {memory}; not used: it {problem}"),
        }
    };
    let mut lines: Vec<String> = cards.iter().enumerate().map(line).collect();
    let numbers: Vec<String> = usable_numbers(cards).iter().map(usize::to_string).collect();
    let used = if numbers.is_empty() { "none".to_owned() } else { numbers.join(", ") };
    lines.push(format!("--device cuda:all uses {used}"));
    lines
}

fn check_text(check: &SelfCheck) -> String {
    let name = check.isa.name();
    match &check.outcome {
        Ok(difference) if difference.largest == 0.0 => {
            format!("{name}: passed, equal to the portable kernel")
        }
        Ok(difference) if difference.within => {
            format!("{name}: passed, at most {:.0e} from the portable kernel", difference.largest)
        }
        Ok(difference) => format!("{name}: FAILED, {difference}"),
        Err(error) => format!("{name}: FAILED, {error}"),
    }
}

/// Writes a file to a folder and removes it. Returns the error, if any.
fn write_something(folder: &std::path::Path) -> Option<String> {
    let path = folder.join(format!(".cutout-{}-doctor.tmp", std::process::id()));
    let written = OpenOptions::new().write(true).create_new(true).open(&path);
    let outcome = written.and_then(|mut file| std::io::Write::write_all(&mut file, b"cutout"));
    let removed = fs::remove_file(&path);
    outcome.and(removed).err().map(|error| format!("cannot be written: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_card_is_listed_with_what_all_uses() {
        let card = |name: &str, problem: Option<&str>| CardFacts {
            name: name.to_owned(),
            memory: 80 << 30,
            problem: problem.map(str::to_owned),
        };
        let old = "has compute capability 7.0, 8.0 is needed";
        let cards = [card("H200", None), card("V100", Some(old)), card("H200", None)];
        let lines = cards_text(&cards);
        assert_eq!(lines.len(), 4);
        assert!(lines[0].starts_with("cuda:0: H200, 80") && !lines[0].contains("not used"));
        assert!(lines[1].starts_with("cuda:1: V100, 80"), "{lines:?}");
        assert!(lines[1].ends_with(&format!("not used: it {old}")), "{lines:?}");
        assert_eq!(lines[3], "--device cuda:all uses 0, 2");
        assert_eq!(cards_text(&cards[1..2]), Vec::<String>::new(), "the line above says it all");
        let none = [card("a", Some(old)), card("b", Some(old))];
        assert_eq!(cards_text(&none)[2], "--device cuda:all uses none");
        assert_eq!(usable_numbers(&cards), [0, 2]);
    }
}
