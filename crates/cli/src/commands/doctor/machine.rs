//! Description of the machine, from the operating system.

use std::fs::{self, read_to_string};
use std::path::Path;

/// The machine. Facts that the system does not report are `None` or empty.
pub(super) struct Machine {
    pub(super) system: String,
    pub(super) processor: String,
    /// Instruction-set extensions relevant to the kernels.
    pub(super) features: Vec<&'static str>,
    pub(super) memory: Option<Memory>,
    /// Mode of transparent huge pages: "always", "madvise" or "never".
    pub(super) huge_pages: Option<String>,
    pub(super) gpu: Gpu,
}

/// Memory in bytes, within the limit of the control group.
#[derive(Debug, PartialEq)]
pub(super) struct Memory {
    pub(super) total: u64,
    /// Memory available without swapping.
    pub(super) free: u64,
}

/// NVIDIA GPUs.
#[derive(Default)]
pub(super) struct Gpu {
    /// Description of the driver; `None` without a driver.
    pub(super) driver: Option<String>,
    pub(super) names: Vec<String>,
}

impl Machine {
    pub(super) fn detect() -> Self {
        let text = |path: &str| read_to_string(path).unwrap_or_default();
        Machine {
            system: system(&text("/etc/os-release"), &text("/proc/sys/kernel/osrelease")),
            processor: processor(&text("/proc/cpuinfo")),
            features: features(),
            memory: memory(&text("/proc/meminfo"))
                .map(|memory| limited(memory, &text(LIMIT), &text(USED))),
            huge_pages: chosen(&text("/sys/kernel/mm/transparent_hugepage/enabled")),
            gpu: gpu(),
        }
    }
}

/// Memory limit and memory use of the control group.
const LIMIT: &str = "/sys/fs/cgroup/memory.max";
const USED: &str = "/sys/fs/cgroup/memory.current";

/// Distribution, kernel and architecture.
fn system(release: &str, kernel: &str) -> String {
    let architecture = std::env::consts::ARCH;
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    match pretty {
        Some(name) => {
            format!("{}, Linux {}, {architecture}", name.trim_matches('"'), kernel.trim())
        }
        None => format!("{}, {architecture}", std::env::consts::OS),
    }
}

fn processor(info: &str) -> String {
    let name = field(info, ':', "model name");
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), str::to_owned)
}

/// The first value of a key.
fn field<'a>(text: &'a str, separator: char, key: &str) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(separator));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
}

fn memory(info: &str) -> Option<Memory> {
    let kibibytes = |key: &str| {
        let value = field(info, ':', key)?.strip_suffix("kB")?;
        value.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Memory { total: kibibytes("MemTotal")?, free: kibibytes("MemAvailable")? })
}

/// Memory within the limit of the control group; "max" means no limit.
fn limited(memory: Memory, limit: &str, used: &str) -> Memory {
    let Ok(limit) = limit.trim().parse::<u64>() else { return memory };
    let used = used.trim().parse::<u64>().unwrap_or(0);
    Memory { total: memory.total.min(limit), free: memory.free.min(limit.saturating_sub(used)) }
}

/// The word in brackets, which marks the selected mode.
fn chosen(choices: &str) -> Option<String> {
    let (_, rest) = choices.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    Some(word.to_owned())
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    macro_rules! present {
        ($($name:tt)*) => {
            [$(($name, std::arch::is_x86_feature_detected!($name))),*]
        };
    }
    let known = present!(
        "sse4.2" "avx" "fma" "f16c" "avx2" "avxvnni" "avx512f" "avx512bw" "avx512dq" "avx512vl"
        "avx512vnni" "avx512bf16" "avx512fp16"
    );
    known.into_iter().filter(|(_, present)| *present).map(|(name, _)| name).collect()
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<&'static str> {
    macro_rules! present {
        ($($name:tt)*) => {
            [$(($name, std::arch::is_aarch64_feature_detected!($name))),*]
        };
    }
    let known = present!("neon" "fp16" "dotprod" "i8mm" "bf16" "sve" "sve2");
    known.into_iter().filter(|(_, present)| *present).map(|(name, _)| name).collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

/// Usual paths of the driver's library.
const LIBRARIES: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/lib/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "C:\\Windows\\System32\\nvcuda.dll",
];

fn gpu() -> Gpu {
    let version = read_to_string("/proc/driver/nvidia/version").ok();
    let version = version.as_deref().and_then(driver_version);
    let library = LIBRARIES.iter().find(|path| Path::new(path).exists());
    let driver = match (version, library) {
        (Some(version), _) => Some(format!("driver {version}")),
        (None, Some(library)) => Some(format!("driver library {library}")),
        (None, None) => None,
    };
    let devices = fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten();
    let names = devices.filter_map(|device| {
        let text = read_to_string(device.ok()?.path().join("information")).ok()?;
        field(&text, ':', "Model").map(str::to_owned)
    });
    Gpu { driver, names: names.collect() }
}

/// "550.54.15" from "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar …".
fn driver_version(text: &str) -> Option<String> {
    let is_version =
        |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_respects_the_limit_of_the_control_group() {
        let info = "MemTotal:       16384 kB\nMemFree: 10 kB\nMemAvailable:    8192 kB\n";
        let found = memory(info).unwrap();
        assert_eq!(found, Memory { total: 16 << 20, free: 8 << 20 });
        assert_eq!(limited(found, "max\n", "5\n"), Memory { total: 16 << 20, free: 8 << 20 });
        let within = limited(memory(info).unwrap(), "4194304\n", "1048576\n");
        assert_eq!(within, Memory { total: 4 << 20, free: 3 << 20 });
        assert_eq!(memory("MemTotal: many kB"), None);
    }

    #[test]
    fn system_files_are_parsed() {
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen(""), None);
        let line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 2024\n";
        assert_eq!(driver_version(line).as_deref(), Some("550.54.15"));
        assert_eq!(
            processor("processor : 0\nmodel name\t: Some CPU @ 2 GHz\n"),
            "Some CPU @ 2 GHz"
        );
        let name = system("NAME=x\nPRETTY_NAME=\"Debian 12\"\n", "6.1.0\n");
        assert!(name.starts_with("Debian 12, Linux 6.1.0, "), "{name}");
        assert!(!system("", "").is_empty());
    }
}
