//! Flags shared by several commands: the model, and how it runs.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use cutout_sam::device::fallback_reason;
use cutout_sam::{Device, Precision, Profile, Sam, profile_beside, read_profile};

use crate::environment::Environment;
use crate::{checkpoints, stdio};

/// Number type of the matrix products.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum PrecisionName {
    /// Single precision: the same masks as Meta's code.
    F32,
    /// Half precision with single-precision sums: GPUs only.
    F16,
    /// bfloat16 with single-precision sums: GPUs only.
    Bf16,
    /// 8-bit integers: fastest, slightly different masks.
    Int8,
}

/// How a model runs.
#[derive(Args)]
#[command(next_help_heading = "How it runs")]
pub(crate) struct RunOptions {
    /// Device: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    device: Option<Device>,
    /// Number of threads; by default one per core
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Number type of the matrix products
    #[arg(long, value_name = "TYPE")]
    precision: Option<PrecisionName>,
    /// Profile in TOML; by default the cutout.toml beside the checkpoint, if there is one
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
}

fn parse_device(text: &str) -> Result<Device, String> {
    Device::try_from(text.to_owned())
}

impl RunOptions {
    /// The profile of a checkpoint, overridden by the flags of the command line.
    pub(crate) fn profile(&self, checkpoint: Option<&Path>) -> Result<Profile> {
        let mut profile = match (&self.profile, checkpoint) {
            (Some(path), _) => read_profile(path)?,
            (None, Some(checkpoint)) => profile_beside(checkpoint)?.unwrap_or_default(),
            (None, None) => Profile::default(),
        };
        if let Some(device) = &self.device {
            profile.device = device.clone();
        }
        if self.threads.is_some() {
            profile.threads = self.threads;
        }
        if let Some(precision) = self.precision {
            profile.precision = match precision {
                PrecisionName::F32 => Precision::F32,
                PrecisionName::F16 => Precision::F16,
                PrecisionName::Bf16 => Precision::Bf16,
                PrecisionName::Int8 => Precision::Int8,
            };
        }
        Ok(profile)
    }
}

/// The model to run.
#[derive(Args)]
pub(crate) struct ModelOption {
    /// Checkpoint: safetensors, .pt, .pth or GGUF, in Meta's or Hugging Face's layout. For a file that `cutout models`
    /// lists, the file name is enough. Without this flag, the small built-in model runs
    #[arg(long, short, value_name = "CHECKPOINT")]
    pub(crate) model: Option<PathBuf>,
}

impl ModelOption {
    /// The checkpoint, or the built-in model if none is given.
    pub(crate) fn source(&self) -> Result<ModelSource> {
        match &self.model {
            Some(given) => Ok(ModelSource::File(find_model(given)?)),
            None => Ok(ModelSource::BuiltIn),
        }
    }

    /// Opens the model. Without `--model`, opens the built-in model and says so on stderr.
    pub(crate) fn open(&self, run: &RunOptions) -> Result<Sam> {
        let source = self.source()?;
        if let ModelSource::BuiltIn = source {
            stdio::note(
                "using the small built-in model; --model CHECKPOINT selects another, `cutout models` lists checkpoints on this machine",
            );
        }
        let profile = run.profile(source.file())?;
        let fallback = fallback_reason(&profile);
        let sam = source.open(profile)?;
        if let Some(reason) = fallback {
            stdio::note(&format!("running on the processor: {reason}"));
        }
        Ok(sam)
    }
}

/// Source of a model.
pub(crate) enum ModelSource {
    /// A checkpoint file.
    File(PathBuf),
    /// The model inside this program.
    BuiltIn,
}

impl ModelSource {
    /// The checkpoint file; `None` for the built-in model.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            ModelSource::File(path) => Some(path),
            ModelSource::BuiltIn => None,
        }
    }

    /// Opens the model with a profile.
    pub(crate) fn open(&self, profile: Profile) -> Result<Sam> {
        match self {
            ModelSource::File(path) => Ok(Sam::open_with(path, profile)?),
            ModelSource::BuiltIn => Ok(Sam::builtin_with(profile)?),
        }
    }
}

/// The checkpoint for a path, or for the name of a file in one of the usual folders.
pub(crate) fn find_model(given: &Path) -> Result<PathBuf> {
    // Only a bare file name is searched for.
    let is_name = given.parent().is_some_and(|folder| folder.as_os_str().is_empty());
    let (Some(name), true, false) = (given.file_name(), is_name, given.exists()) else {
        return Ok(given.to_owned());
    };
    match checkpoints::named(name, &Environment::read()) {
        Some(found) => {
            stdio::note(&format!("using {}", found.display()));
            Ok(found)
        }
        None => bail!(
            "{}: no such file, here or in the usual places (`cutout models` lists checkpoints)",
            given.display()
        ),
    }
}
