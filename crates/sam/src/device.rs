//! Opens the device of a profile. Only this module names a backend.

use std::num::NonZeroUsize;
use std::sync::Arc;

use cutout_cpu::Cpu;
use cutout_graph::{Backend, Device, MAX_THREADS, Precision, Profile, StoredProfile};
use cutout_parallel::Pool;

mod check;

pub use check::{SelfCheck, self_check};
pub use cutout_cpu::{ByteUnit, HalfUnit, Isa, strassen_rule};

/// Why a device cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A GPU that cannot be used.
    #[error("device cuda:{number}: {reason}")]
    Cuda {
        /// Number of the card.
        number: usize,
        /// Why not.
        reason: String,
    },
    /// Cards were asked for, and none can be used.
    #[error("no card can be used: {reason}")]
    NoCards {
        /// Why not.
        reason: String,
    },
    /// A name that is no device.
    #[error("{0}")]
    Name(String),
    /// No device was given.
    #[error("there is no device to run on")]
    None,
    /// More threads than allowed.
    #[error("{0} threads are more than the {MAX_THREADS} allowed")]
    Threads(usize),
}

/// Parts of the models that a GPU computes in half precision unless the profile says otherwise, by prefix of weight paths: the
/// image encoders, what attends to whole pictures, and convolutions of whole pictures. Decoders stay in single precision.
const HALF_PARTS: &[&str] = &[
    "image_encoder",
    "detector.backbone.vision_backbone",
    "memory_attention",
    "memory_encoder",
    "tracker.transformer",
    "tracker.maskmem_backbone",
    "tracker.model.transformer",
    "tracker.model.maskmem_backbone",
    "detector.transformer.encoder",
    "detector.segmentation_head.pixel_decoder",
];

/// Parts that stay in single precision where a profile asks for less and names neither them nor what contains them: pixels enter
/// through patch embeddings, and prompts, scores and outlines through prompt encoders and decoders. They take a twentieth of the
/// time and, in lower precision, would cause most of the loss (`docs/performance.md`).
const SINGLE_PARTS: &[&str] = &[
    "image_encoder.patch_embed",
    "image_encoder.trunk.patch_embed",
    "detector.backbone.vision_backbone.trunk.patch_embed",
    "prompt_encoder",
    "mask_decoder",
    "sam_prompt_encoder",
    "sam_mask_decoder",
    "tracker.sam_prompt_encoder",
    "tracker.sam_mask_decoder",
    "tracker.model.interactive_sam_prompt_encoder",
    "tracker.model.interactive_sam_mask_decoder",
    "tracker.model.sam_mask_decoder",
    "detector.geometry_encoder",
    "detector.transformer.decoder",
    "detector.dot_prod_scoring",
    "detector.segmentation_head.mask_predictor",
];

/// A device that was opened.
pub(crate) struct Opened {
    pub(crate) backend: Arc<dyn Backend>,
    /// Threads for work on the host. The CPU backend runs on the same threads.
    pub(crate) pool: Arc<Pool>,
    /// The profile, with what was left to the device settled.
    pub(crate) profile: Profile,
}

/// The device that a profile asks for. `auto` is the first GPU that can be used, else the CPU.
pub(crate) fn open(profile: Profile) -> Result<Opened, DeviceError> {
    let wanted = threads(&profile);
    if wanted > MAX_THREADS {
        return Err(DeviceError::Threads(wanted));
    }
    let pool = Arc::new(Pool::new(wanted));
    let gpu = match profile.device {
        Device::Cpu => None,
        Device::Auto => gpu(0, profile.vram_limit).ok(),
        Device::Cuda(number) => {
            let opened = gpu(number, profile.vram_limit);
            Some(opened.map_err(|reason| DeviceError::Cuda { number, reason })?)
        }
    };
    let profile = settled_profile(profile, gpu.is_some());
    let backend = gpu.unwrap_or_else(|| Arc::new(Cpu::on(Arc::clone(&pool))));
    Ok(Opened { backend, pool, profile })
}

/// The profile with what it leaves open settled: on a GPU, half precision in image encoders; where less than single precision is
/// asked for, the parts that stay in it.
pub fn settled_profile(mut profile: Profile, on_gpu: bool) -> Profile {
    let (parts, precision) = match profile.precision {
        Precision::Auto if on_gpu => (HALF_PARTS, Precision::F16),
        Precision::Auto | Precision::F32 => return profile,
        Precision::F16 | Precision::Bf16 | Precision::Int8 => (SINGLE_PARTS, Precision::F32),
    };
    let open: Vec<&str> = parts.iter().copied().filter(|part| !profile.names(part)).collect();
    profile.parts.extend(open.into_iter().map(|part| (part.to_owned(), precision)));
    profile
}

/// The fastest precision of a profile's device that costs little. On processors it is int8 for a file whose stored profile was
/// measured to cost little; else bf16 where that is multiplied faster than `f32`: its masks have an IoU of more than 0.995 with those
/// of `f32` (built-in model, mean: `docs/performance.md`); else `f32`. A GPU keeps its own choice.
pub fn fast_precision(profile: &Profile, stored: Option<&StoredProfile>) -> Precision {
    let on_gpu = match profile.device {
        Device::Cpu => false,
        Device::Auto => usable_gpu().is_ok(),
        Device::Cuda(_) => true,
    };
    if on_gpu {
        Precision::Auto
    } else if let Some(stored) = stored {
        stored.precision
    } else if HalfUnit::detect(Isa::detect()).is_faster_than_single() {
        Precision::Bf16
    } else {
        Precision::F32
    }
}

#[cfg(feature = "cuda")]
fn gpu(number: usize, limit: Option<usize>) -> Result<Arc<dyn Backend>, String> {
    match cutout_cuda::Cuda::open_limited(number, limit.unwrap_or(usize::MAX)) {
        Ok(cuda) => Ok(Arc::new(cuda)),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(not(feature = "cuda"))]
fn gpu(_: usize, _: Option<usize>) -> Result<Arc<dyn Backend>, String> {
    Err("this build of cutout has no code for GPUs".to_owned())
}

/// An NVIDIA GPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardFacts {
    /// Its name.
    pub name: String,
    /// Bytes of memory.
    pub memory: usize,
    /// Why it cannot be used; `None` if it can.
    pub problem: Option<String>,
}

/// The GPUs that the driver sees, in the order of their numbers; or why there is none.
#[cfg(feature = "cuda")]
pub fn cards() -> Result<Vec<CardFacts>, String> {
    let cards = cutout_cuda::cards().map_err(|error| error.to_string())?;
    if cards.is_empty() {
        return Err("the driver sees no card".to_owned());
    }
    let facts = |card: cutout_cuda::Card| {
        let (major, minor) = card.capability;
        let is_old = card.family().is_none();
        let problem =
            is_old.then(|| format!("has compute capability {major}.{minor}, 8.0 is needed"));
        CardFacts { name: card.name, memory: card.memory, problem }
    };
    Ok(cards.into_iter().map(facts).collect())
}

/// The GPUs that the driver sees, in the order of their numbers; or why there is none.
#[cfg(not(feature = "cuda"))]
pub fn cards() -> Result<Vec<CardFacts>, String> {
    Err("this build of cutout has no code for GPUs".to_owned())
}

/// A GPU that `auto` would use: its name and memory in bytes; or why there is none.
pub fn usable_gpu() -> Result<(String, usize), String> {
    match cards()?.into_iter().next() {
        Some(CardFacts { name, memory, problem: None }) => Ok((name, memory)),
        Some(CardFacts { name, problem: Some(problem), .. }) => Err(format!("{name} {problem}")),
        None => Err("the driver sees no card".to_owned()),
    }
}

/// Why `auto` runs on the processor although a driver is installed; `None` where a GPU is used, was not asked for, or there is no driver.
pub fn fallback_reason(profile: &Profile) -> Option<String> {
    if profile.device != Device::Auto || !has_driver() {
        return None;
    }
    gpu(0, None).err()
}

#[cfg(feature = "cuda")]
fn has_driver() -> bool {
    !matches!(cutout_cuda::cards(), Err(cutout_cuda::DeviceError::NoDriver))
}

#[cfg(not(feature = "cuda"))]
fn has_driver() -> bool {
    false
}

/// Number of threads of a profile; the number of cores unless set.
pub fn threads(profile: &Profile) -> usize {
    let cores = || {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        cores.min(MAX_THREADS)
    };
    profile.threads.map_or_else(cores, NonZeroUsize::get)
}

/// Every backend that this machine has, on `threads` threads each: tests of models run on all of them.
pub fn backends(threads: usize) -> Vec<Arc<dyn Backend>> {
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new(threads));
    std::iter::once(cpu).chain(gpu(0, None)).collect()
}
