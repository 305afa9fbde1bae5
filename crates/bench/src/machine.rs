//! The machine, the date and the commit of a run.

use std::fs::read_to_string;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use cutout_cpu::Isa;

/// Machine, time and commit of a run.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) threads: usize,
    pub(crate) isa: &'static str,
    /// Instruction-set extensions that kernels use.
    pub(crate) extensions: String,
    /// "L1 data 32K, L2 1024K, L3 32768K".
    pub(crate) caches: String,
    pub(crate) date: String,
    pub(crate) commit: String,
    /// Load average of the minute before the run.
    pub(crate) load: String,
}

/// Names in /proc/cpuinfo.
const EXTENSIONS: [&str; 9] = [
    "fma",
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_int8",
];

impl Machine {
    pub(crate) fn detect(threads: usize) -> Machine {
        let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = field(&info, "flags").unwrap_or_default();
        let known: Vec<&str> = flags.split(' ').filter(|flag| EXTENSIONS.contains(flag)).collect();
        let load = read_to_string("/proc/loadavg").unwrap_or_default();
        Machine {
            processor: processor(&info),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            threads,
            isa: Isa::detect().name(),
            extensions: known.join(" "),
            caches: caches(),
            date: date(),
            commit: commit(),
            load: load.split(' ').next().unwrap_or("unknown").to_owned(),
        }
    }

    /// One line for the terminal.
    pub(crate) fn summary(&self) -> String {
        let Machine { processor, cores, threads, isa, caches, commit, load, .. } = self;
        format!(
            "{processor}, {cores} cores, {isa}, {caches}; {threads} threads, commit {commit}, load {load}"
        )
    }
}

fn processor(info: &str) -> String {
    let Some(name) = field(info, "model name") else { return std::env::consts::ARCH.to_owned() };
    match (field(info, "cpu family"), field(info, "model")) {
        (Some(family), Some(model)) => {
            let kind = kind(family, model).map_or_else(String::new, |kind| format!(": {kind}"));
            format!("{name} (family {family}, model {model}{kind})")
        }
        (None, _) | (_, None) => name.to_owned(),
    }
}

/// The name of a kind of core, where virtual machines hide the product's name.
fn kind(family: &str, model: &str) -> Option<&'static str> {
    match (family.parse::<u32>().ok()?, model.parse::<u32>().ok()?) {
        (6, 106 | 108) => Some("Ice Lake"),
        (6, 143) => Some("Sapphire Rapids"),
        (6, 207) => Some("Emerald Rapids"),
        (6, 173 | 174) => Some("Granite Rapids"),
        (25, 0..=15 | 32..=95) => Some("Zen 3"),
        (25, _) => Some("Zen 4"),
        (26, _) => Some("Zen 5"),
        _ => None,
    }
}

/// The first value of a key in /proc/cpuinfo.
fn field<'a>(info: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = info.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
}

fn caches() -> String {
    let read = |index: usize, name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
        read_to_string(path).ok().map(|text| text.trim().to_owned())
    };
    let cache = |index: usize| {
        let (level, kind, size) =
            (read(index, "level")?, read(index, "type")?, read(index, "size")?);
        match kind.as_str() {
            "Instruction" => None,
            "Data" => Some(format!("L{level} data {size}")),
            _ => Some(format!("L{level} {size}")),
        }
    };
    let known: Vec<String> = (0..6).filter_map(cache).collect();
    if known.is_empty() { "caches unknown".to_owned() } else { known.join(", ") }
}

/// The commit, marked if files differ from it; "unknown" outside a repository.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", "crates"]);
    if changed.is_some_and(|files| !files.is_empty()) { commit + " with changes" } else { commit }
}

/// Today in UTC.
fn date() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date_of_day(now.as_secs() / 86_400)
}

/// The date of a day counted from 1970-01-01, in the Gregorian calendar.
fn date_of_day(day: u64) -> String {
    // Counts years from 1 March, so that the leap day is the last day of a year; day 0 is 0000-03-01.
    let day = day + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day_of_month:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (day, text) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (19_722, "2023-12-31"),
            (19_782, "2024-02-29"),
        ] {
            assert_eq!(date_of_day(day), text);
        }
    }

    #[test]
    fn fields_of_the_processor() {
        let info = "model name\t: Some CPU\ncpu family\t: 6\nmodel\t\t: 106\nflags : fma avx2\n";
        assert_eq!(processor(info), "Some CPU (family 6, model 106: Ice Lake)");
        let other = info.replace("106", "1");
        assert_eq!(processor(&other), "Some CPU (family 6, model 1)");
        assert_eq!(field(info, "flags"), Some("fma avx2"));
        assert_eq!(field(info, "bugs"), None);
    }
}
