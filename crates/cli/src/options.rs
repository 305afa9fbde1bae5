//! Flags shared by several commands: the model, and how it runs.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use cutout_sam::device::{fallback_reason, fast_precision};
use cutout_sam::{
    Device, Devices, Fleet, MAX_THREADS, Precision, Profile, Sam, builtin_checkpoint,
    profile_beside, profile_path_beside, read_profile, stored_profile,
};
use cutout_weights::Checkpoint;

use crate::claims::Claims;
use crate::environment::Environment;
use crate::failure::Usage;
use crate::pull::Published;
use crate::{checkpoints, format, stdio};

/// Number type of the matrix products.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrecisionName {
    /// Single precision: the same masks as Meta's code.
    F32,
    /// Half precision with single-precision sums: GPUs only.
    F16,
    /// bfloat16 with single-precision sums: half the memory for weights, faster where the processor multiplies it.
    Bf16,
    /// 8-bit integers: fastest, slightly different masks.
    Int8,
    /// The fastest of these that costs little: int8 for a file that `cutout convert` measured it for, else bf16 where the processor
    /// multiplies it faster, else f32; on a GPU, f16 in encoders.
    Auto,
    /// Each of f32, bf16 and int8, one after the other: `cutout bench` only.
    #[value(hide = true)]
    All,
}

impl PrecisionName {
    /// The precision of a profile for a checkpoint.
    pub(crate) fn precision(
        self,
        profile: &Profile,
        checkpoint: Option<&Path>,
    ) -> Result<Precision> {
        Ok(match self {
            PrecisionName::Auto => {
                let stored = match checkpoint {
                    Some(path) => stored_profile(&Checkpoint::open(path)?)?,
                    None => None,
                };
                fast_precision(profile, stored.as_ref())
            }
            PrecisionName::F32 => Precision::F32,
            PrecisionName::F16 => Precision::F16,
            PrecisionName::Bf16 => Precision::Bf16,
            PrecisionName::Int8 => Precision::Int8,
            PrecisionName::All => {
                return Err(Usage::error(
                    "--precision all: only `cutout bench` times all precisions",
                ));
            }
        })
    }

    /// Name in reports, as on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PrecisionName::F32 => "f32",
            PrecisionName::F16 => "f16",
            PrecisionName::Bf16 => "bf16",
            PrecisionName::Int8 => "int8",
            PrecisionName::Auto => "auto",
            PrecisionName::All => "all",
        }
    }
}

/// How a model runs.
#[derive(Args)]
#[command(next_help_heading = "How it runs")]
pub(crate) struct RunOptions {
    /// Device: auto, cpu, cuda or cuda:N. For many pictures also cuda:all or cuda:0,2, which share them, and cpux4, which
    /// processes four at a time
    #[arg(long, value_name = "DEVICE", value_parser = parse_devices)]
    device: Option<Devices>,
    /// Number of threads, of all devices together; by default one per core
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<NonZeroUsize>,
    /// Number type of the matrix products
    #[arg(long, value_name = "TYPE")]
    precision: Option<PrecisionName>,
    /// Most memory to use of each GPU, in bytes or as 6GiB or 800MiB; by default all that is free
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, allow_negative_numbers = true)]
    vram_limit: Option<usize>,
    /// Profile in TOML; by default the cutout.toml beside the checkpoint, if there is one
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
}

/// A number of threads, from 1 to the most a profile may have.
pub(crate) fn parse_threads(text: &str) -> Result<NonZeroUsize, String> {
    match text.parse::<NonZeroUsize>() {
        Ok(threads) if threads.get() <= MAX_THREADS => Ok(threads),
        Ok(_) | Err(_) => Err(format!("expected a number from 1 to {MAX_THREADS}")),
    }
}

/// A number of bytes, with a unit or without.
fn parse_bytes(text: &str) -> Result<usize, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let (digits, shift) = units
        .into_iter()
        .find_map(|(unit, shift)| text.strip_suffix(unit).map(|digits| (digits, shift)))
        .unwrap_or((text, 0));
    let count = digits.trim_end().parse::<usize>().ok().filter(|&count| count > 0);
    let bytes = count.and_then(|count| count.checked_mul(1 << shift));
    bytes.ok_or_else(|| "expected bytes as 6000000000, 800MiB or 6GiB".to_owned())
}

pub(crate) fn parse_device(text: &str) -> Result<Device, String> {
    Device::try_from(text.to_owned())
}

fn parse_devices(text: &str) -> Result<Devices, String> {
    text.parse()
}

impl RunOptions {
    /// The inputs of a command that runs this model.
    pub(crate) fn claims(&self, model: &ModelSource) -> Claims {
        let mut claims = Claims::default();
        let beside = model.file().map(profile_path_beside);
        let profile = self.profile.clone().or(beside);
        model.file().into_iter().chain(profile.as_deref()).for_each(|file| claims.reads(file));
        claims
    }

    /// The precisions of `--precision all`, else the one given, if any.
    pub(crate) fn precisions(&self) -> Vec<Option<PrecisionName>> {
        match self.precision {
            Some(PrecisionName::All) => {
                [PrecisionName::F32, PrecisionName::Bf16, PrecisionName::Int8].map(Some).to_vec()
            }
            one => vec![one],
        }
    }

    /// The profile of a checkpoint, overridden by the flags of the command line.
    pub(crate) fn profile(&self, checkpoint: Option<&Path>) -> Result<Profile> {
        self.profile_in(self.precision, checkpoint)
    }

    /// The devices among which pictures are shared, if there are several, and the profile for each of them.
    fn several(&self, checkpoint: Option<&Path>) -> Result<Option<(&Devices, Profile)>> {
        let Some(devices) = self.device.as_ref().filter(|devices| devices.are_several()) else {
            return Ok(None);
        };
        let profile = self.profile_on(Some(&devices.first()), self.precision, checkpoint)?;
        Ok(Some((devices, profile)))
    }

    /// The same in another precision than that of the command line.
    pub(crate) fn profile_in(
        &self,
        precision: Option<PrecisionName>,
        checkpoint: Option<&Path>,
    ) -> Result<Profile> {
        let device = match &self.device {
            None => None,
            Some(Devices::One(device)) => Some(device),
            Some(several) => {
                return Err(Usage::error(format!(
                    "--device {several}: several devices share the pictures of `cutout everything` and `cutout batch`; this command \
                     runs on one: auto, cpu, cuda or cuda:N"
                )));
            }
        };
        self.profile_on(device, precision, checkpoint)
    }

    /// The profile with the flags of the command line, but for the device and the precision.
    fn profile_on(
        &self,
        device: Option<&Device>,
        precision: Option<PrecisionName>,
        checkpoint: Option<&Path>,
    ) -> Result<Profile> {
        let mut profile = match (&self.profile, checkpoint) {
            (Some(path), _) => read_profile(path)?,
            (None, Some(checkpoint)) => profile_beside(checkpoint)?.unwrap_or_default(),
            (None, None) => Profile::default(),
        };
        if let Some(device) = device {
            profile.device = device.clone();
        }
        if self.threads.is_some() {
            profile.threads = self.threads;
        }
        if self.vram_limit.is_some() {
            profile.vram_limit = self.vram_limit;
        }
        if let Some(precision) = precision {
            profile.precision = precision.precision(&profile, checkpoint)?;
        }
        Ok(profile)
    }
}

/// The model to run.
#[derive(Args)]
pub(crate) struct ModelOption {
    /// Checkpoint: safetensors, .pt, .pth or GGUF, in Meta's or Hugging Face's layout. For a file that `cutout models`
    /// lists, the file name is enough; for one fetched by `cutout pull NAME`, the name. Without this flag, the small built-in
    /// model runs; `built-in` names it
    #[arg(long, short, value_name = "CHECKPOINT")]
    pub(crate) model: Option<PathBuf>,
}

impl ModelOption {
    /// The checkpoint, or the built-in model if none is given.
    pub(crate) fn source(&self) -> Result<ModelSource> {
        self.model.as_deref().map_or(Ok(ModelSource::BuiltIn), ModelSource::named)
    }
}

/// Source of a model.
pub(crate) enum ModelSource {
    /// A checkpoint file.
    File(PathBuf),
    /// The model inside this program.
    BuiltIn,
}

/// The name of the built-in model where a checkpoint is expected.
const BUILT_IN: &str = "built-in";

impl ModelSource {
    /// The model that a path or a name stands for.
    pub(crate) fn named(given: &Path) -> Result<Self> {
        if given.as_os_str() == BUILT_IN && !given.exists() {
            return Ok(ModelSource::BuiltIn);
        }
        Ok(ModelSource::File(find_model(given)?))
    }

    /// The file's content.
    pub(crate) fn checkpoint(&self) -> Result<Checkpoint> {
        match self {
            ModelSource::File(path) => Ok(Checkpoint::open(path)?),
            ModelSource::BuiltIn => Ok(builtin_checkpoint()?),
        }
    }

    /// The checkpoint file; `None` for the built-in model.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            ModelSource::File(path) => Some(path),
            ModelSource::BuiltIn => None,
        }
    }

    /// The model in messages.
    pub(crate) fn shown(&self) -> String {
        self.file().map_or(BUILT_IN.to_owned(), |path| path.display().to_string())
    }

    /// Opens the model; if it is the built-in one, a note says so.
    pub(crate) fn start(&self, run: &RunOptions) -> Result<Sam> {
        self.note_built_in();
        let profile = run.profile(self.file())?;
        let fallback = fallback_reason(&profile);
        let sam = self.open(profile)?;
        if let Some(reason) = fallback {
            stdio::note(&format!("running on the processor: {reason}"));
        }
        Ok(sam)
    }

    /// Opens the model on the devices for so many pictures; notes as those of [`ModelSource::start`].
    pub(crate) fn start_fleet(&self, run: &RunOptions, pictures: usize) -> Result<Fleet> {
        let Some((devices, profile)) = run.several(self.file())? else {
            return Ok(self.start(run)?.into());
        };
        let devices = devices.clone().at_most(pictures);
        self.note_built_in();
        let fleet = match self {
            ModelSource::File(path) => Fleet::open_with(path, &devices, profile)?,
            ModelSource::BuiltIn => Fleet::builtin_with(&devices, profile)?,
        };
        fleet.left_out().iter().for_each(|error| stdio::warn(&format!("not used: {error}")));
        Ok(fleet)
    }

    fn note_built_in(&self) {
        if let ModelSource::BuiltIn = self {
            stdio::note(
                "using the small built-in model; --model CHECKPOINT selects another, `cutout models` lists checkpoints on this machine",
            );
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
fn find_model(given: &Path) -> Result<PathBuf> {
    // Only a bare file name is searched for.
    let is_name = given.parent().is_some_and(|folder| folder.as_os_str().is_empty());
    let (Some(name), true, false) = (given.file_name(), is_name, given.exists()) else {
        return Ok(given.to_owned());
    };
    let environment = Environment::read();
    let published = name.to_str().and_then(Published::named);
    let fetched = || published.and_then(|published| published.wanted().here(&environment));
    match (checkpoints::named(name, &environment).or_else(fetched), published) {
        (Some(found), _) => {
            stdio::note(&format!("using {}", found.display()));
            Ok(found)
        }
        (None, Some(Published { name, bytes, .. })) => {
            bail!(
                "{name} is not on this machine: `cutout pull {name}` fetches it ({})",
                format::bytes(*bytes)
            )
        }
        (None, None) => bail!(
            "{}: no such file, here or in the usual places (`cutout models` lists checkpoints)",
            given.display()
        ),
    }
}
