//! Flags that several commands share: which model, and how it runs.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use cutout_sam::{Device, Precision, Profile, Sam, profile_beside, read_profile};

use crate::environment::Environment;
use crate::{library, screen};

/// Number type that weights are multiplied in.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum PrecisionName {
    /// Single precision: Meta's answer.
    F32,
    /// The upper half of single precision; no device multiplies in it yet.
    Bf16,
    /// Signed bytes: fastest, slightly different masks.
    Int8,
}

/// How a model runs.
#[derive(Args)]
#[command(next_help_heading = "How it runs")]
pub(crate) struct RunOptions {
    /// Where to run: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    device: Option<Device>,
    /// Threads; one for each core unless given
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Number type that weights are multiplied in
    #[arg(long, value_name = "TYPE")]
    precision: Option<PrecisionName>,
    /// A profile in TOML; else the cutout.toml beside the checkpoint, if there is one
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
}

fn parse_device(text: &str) -> Result<Device, String> {
    Device::try_from(text.to_owned())
}

impl RunOptions {
    /// The profile of a checkpoint, with what the command line says on top of it.
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
                PrecisionName::Bf16 => Precision::Bf16,
                PrecisionName::Int8 => Precision::Int8,
            };
        }
        Ok(profile)
    }
}

/// Which model.
#[derive(Args)]
pub(crate) struct ModelOption {
    /// Checkpoint of the model: safetensors, .pt, .pth or GGUF, in Meta's or Hugging Face's layout. The name alone is
    /// enough for a file that `cutout models` lists. Without it, a small built-in model runs
    #[arg(long, short, value_name = "CHECKPOINT")]
    pub(crate) model: Option<PathBuf>,
}

impl ModelOption {
    /// Where the model comes from.
    pub(crate) fn source(&self) -> Result<ModelSource> {
        match &self.model {
            Some(given) => Ok(ModelSource::File(find_model(given)?)),
            None => Ok(ModelSource::BuiltIn),
        }
    }

    /// The model, ready to run. Without `--model` it is the built-in one, which is told.
    pub(crate) fn open(&self, run: &RunOptions) -> Result<Sam> {
        let source = self.source()?;
        if let ModelSource::BuiltIn = source {
            screen::note(
                "using the small built-in model; --model CHECKPOINT takes a full one, and `cutout models` lists those it finds",
            );
        }
        source.open(run.profile(source.file())?)
    }
}

/// Where a model comes from.
pub(crate) enum ModelSource {
    /// A checkpoint.
    File(PathBuf),
    /// This program.
    BuiltIn,
}

impl ModelSource {
    /// The checkpoint, if it is a file.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            ModelSource::File(path) => Some(path),
            ModelSource::BuiltIn => None,
        }
    }

    /// The model, to be run as `profile` says.
    pub(crate) fn open(&self, profile: Profile) -> Result<Sam> {
        match self {
            ModelSource::File(path) => Ok(Sam::open_with(path, profile)?),
            ModelSource::BuiltIn => Ok(Sam::builtin_with(profile)?),
        }
    }
}

/// The checkpoint that is meant by what was given: a path, or the name of a file in one of the usual places.
pub(crate) fn find_model(given: &Path) -> Result<PathBuf> {
    // A path with a folder in it means that file and no other.
    let is_name = given.parent().is_some_and(|folder| folder.as_os_str().is_empty());
    let (Some(name), true, false) = (given.file_name(), is_name, given.exists()) else {
        return Ok(given.to_owned());
    };
    match library::named(name, &Environment::read()) {
        Some(found) => {
            screen::note(&format!("using {}", found.display()));
            Ok(found)
        }
        None => bail!(
            "{}: no such file, here or in the usual places (`cutout models` lists checkpoints)",
            given.display()
        ),
    }
}
