//! The profile: a strict TOML file that says how a model is compiled and run.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::passes;

mod stored;

pub use stored::StoredProfile;

/// Where programs run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Device {
    /// The fastest device of the machine.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The NVIDIA GPU of this number.
    Cuda(usize),
}

impl TryFrom<String> for Device {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let number = |digits: &str| digits.parse().ok().map(Device::Cuda);
        match text.as_str() {
            "auto" => Some(Device::Auto),
            "cpu" => Some(Device::Cpu),
            "cuda" => Some(Device::Cuda(0)),
            other => other.strip_prefix("cuda:").and_then(number),
        }
        .ok_or_else(|| format!("device {text:?} is none of auto, cpu, cuda, cuda:N"))
    }
}

impl From<Device> for String {
    fn from(device: Device) -> String {
        match device {
            Device::Auto => "auto".to_owned(),
            Device::Cpu => "cpu".to_owned(),
            Device::Cuda(number) => format!("cuda:{number}"),
        }
    }
}

/// Number type that weights are multiplied in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// What suits the device: single precision on the CPU; on a GPU half precision in image encoders.
    #[default]
    Auto,
    /// Single precision, which gives the reference results.
    F32,
    /// Half precision with single-precision sums; GPUs only.
    F16,
    /// bfloat16 with single-precision sums.
    Bf16,
    /// 8-bit integers with one scale per output channel.
    Int8,
}

/// Most threads of a profile: more than any machine has cores, few enough to start.
pub const MAX_THREADS: usize = 1024;

/// How a model is compiled and run. `Profile::default()` is what runs without a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// Where programs run.
    pub device: Device,
    /// Threads; all cores when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Precision of every part that `[parts]` does not name.
    pub precision: Precision,
    /// Limit on the activations of a program, in MiB; none when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_mib: Option<usize>,
    /// Limit on the memory of a GPU that a model uses, in bytes; none when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vram_limit: Option<usize>,
    /// Whether large products in `f32` may use Strassen's algorithm, which is faster and rounds a little more; they do when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strassen: Option<bool>,
    /// Precision by part of the model: a prefix of weight paths, such as `image_encoder`.
    pub parts: BTreeMap<String, Precision>,
    /// Passes switched on or off by name; those not named run.
    pub passes: BTreeMap<String, bool>,
}

/// An error in a profile, with its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ProfileError {
    /// Line of the file, from 1; absent when the problem has no single line.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl Profile {
    /// Reads a profile; an unknown key, value or pass is an error with its line.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let profile: Profile = toml::from_str(text).map_err(|error| ProfileError {
            line: error.span().map(|span| line_of(text, span.start)),
            message: error.message().trim().to_owned(),
        })?;
        if let Some(threads) = profile.threads.filter(|threads| threads.get() > MAX_THREADS) {
            let message = format!("{threads} threads are more than the {MAX_THREADS} allowed");
            return Err(ProfileError { line: line_of_key(text, "threads"), message });
        }
        let known: Vec<&str> = passes::PIPELINE.iter().map(|pass| pass.name).collect();
        match profile.passes.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(profile),
            Some(unknown) => Err(ProfileError {
                line: line_of_key(text, unknown),
                message: format!("unknown pass {unknown:?}; the passes are {}", known.join(", ")),
            }),
        }
    }

    /// Whether a pass runs.
    pub fn runs(&self, pass: &str) -> bool {
        self.passes.get(pass).copied().unwrap_or(true)
    }

    /// Precision of the weight at `path`: that of the longest part that contains it.
    pub fn precision_of(&self, path: &str) -> Precision {
        let named = self.parts.iter().filter(|(part, _)| contains(part, path));
        named.max_by_key(|(part, _)| part.len()).map_or(self.precision, |(_, &precision)| precision)
    }

    /// Whether `[parts]` names a part that contains the weight or part at `path`.
    pub fn names(&self, path: &str) -> bool {
        self.parts.keys().any(|part| contains(part, path))
    }

    /// The profile as the file that would give it.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a profile has only strings, numbers and tables of them")
    }
}

fn contains(part: &str, path: &str) -> bool {
    path.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn line_of(text: &str, position: usize) -> usize {
    1 + text.as_bytes()[..position.min(text.len())].iter().filter(|&&byte| byte == b'\n').count()
}

fn line_of_key(text: &str, key: &str) -> Option<usize> {
    let starts = |line: &str| line.trim_start().trim_start_matches(['"', '\'']).starts_with(key);
    text.lines().position(starts).map(|index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_round_trips() {
        let text = "device = \"cuda:1\"\nthreads = 3\nmemory_limit_mib = 400\nstrassen = false\n\
                    [parts]\nimage_encoder = \"int8\"\n[passes]\nfuse_epilogues = false\n";
        let profile = Profile::parse(text).unwrap();
        assert_eq!(profile.device, Device::Cuda(1));
        assert_eq!((profile.strassen, Profile::default().strassen), (Some(false), None));
        assert!(!profile.runs("fuse_epilogues") && profile.runs("fold_constants"));
        assert_eq!(Profile::parse(&profile.to_toml()).unwrap(), profile);
        assert_eq!(Profile::parse("").unwrap(), Profile::default());
    }

    #[test]
    fn precision_follows_the_longest_part() {
        let text = "precision = \"bf16\"\n[parts]\n\"image_encoder\" = \"int8\"\n\"image_encoder.neck\" = \"f32\"\n";
        let profile = Profile::parse(text).unwrap();
        assert_eq!(profile.precision_of("image_encoder.blocks.0.weight"), Precision::Int8);
        assert_eq!(profile.precision_of("image_encoder.neck.0.weight"), Precision::F32);
        assert_eq!(profile.precision_of("image_encoder_2.weight"), Precision::Bf16);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line, part) in [
            ("threads = 2\ntreads = 3\n", 2, "unknown field `treads`"),
            ("threads = 0\n", 1, "nonzero"),
            ("\nthreads = 100000000000\n", 2, "more than the 1024 allowed"),
            ("\nprecision = \"int4\"\n", 2, "unknown variant `int4`"),
            ("device = \"gpu\"\n", 1, "none of auto, cpu"),
            ("[passes]\nfuse_everything = true\n", 2, "unknown pass"),
            ("threads = = 2\n", 1, ""),
        ] {
            let error = Profile::parse(text).unwrap_err();
            assert_eq!(error.line, Some(line), "{text:?}: {error}");
            assert!(error.message.contains(part), "{text:?}: {error}");
        }
    }
}
