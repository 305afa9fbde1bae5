//! A model of the family: open it, and embed pictures.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use cutout_graph::explain::{Question, explain};
use cutout_graph::passes::Context;
use cutout_graph::{Profile, ProfileError, Weights};
use cutout_imaging::{Image, ImageError, Mapping, Size};
use cutout_parallel::Pool;
use cutout_tensor::Tensor;
use cutout_weights::layout::{Family, Identity, Model};
use cutout_weights::{Checkpoint, WeightsError};

use crate::checkpoint::{OpenError, load_sam1};
use crate::device::{self, DeviceError};
use crate::network::{Network, Sam1, Sam2, Sam3};
use crate::programs::ModelError;
use crate::prompt::Prompt;
use crate::scene::{Scene, SceneFileError, SegmentError};
use crate::{sam2, sam3};

/// Name of the profile that lies beside a checkpoint.
const PROFILE_FILE: &str = "cutout.toml";

/// Why a model cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SamError {
    /// The checkpoint cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The profile cannot be read.
    #[error("{}: {source}", path.display())]
    ProfileFile {
        /// The profile.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The profile is wrong.
    #[error("{}: {source}", path.display())]
    Profile {
        /// The profile.
        path: PathBuf,
        /// What is wrong.
        source: ProfileError,
    },
    /// The device cannot be had.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Why a part of a model cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// There is no such part.
    #[error("the model has no part {part:?}; its parts are {known}")]
    Part {
        /// The part asked for.
        part: String,
        /// The parts there are.
        known: String,
    },
    /// The device cannot be had.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The graph cannot be built or compiled.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl From<WeightsError> for SamError {
    fn from(error: WeightsError) -> Self {
        SamError::Open(error.into())
    }
}

/// A model, ready to embed pictures. Cloning it is cheap: clones share weights and programs.
#[derive(Clone)]
pub struct Sam {
    inner: Arc<Inner>,
}

struct Inner {
    identity: Identity,
    network: Network,
    fingerprint: OnceLock<u64>,
    /// Threads for work on the host.
    pool: Arc<Pool>,
}

impl Sam {
    /// Opens a checkpoint: any format and layout; family and size are read from its tensors. A `cutout.toml` beside it says
    /// how to run it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SamError> {
        let path = path.as_ref();
        Sam::open_with(path, profile_beside(path)?.unwrap_or_default())
    }

    /// Opens a checkpoint to be run as `profile` says.
    pub fn open_with(path: impl AsRef<Path>, profile: Profile) -> Result<Self, SamError> {
        Sam::from_checkpoint(&Checkpoint::open(path)?, profile)
    }

    /// The model in an open checkpoint.
    pub fn from_checkpoint(checkpoint: &Checkpoint, profile: Profile) -> Result<Self, SamError> {
        let (backend, pool) = device::open(&profile)?;
        let identity = Model::of(checkpoint)?.identity();
        let network = match identity.family {
            Family::Sam1 => {
                let loaded = load_sam1(checkpoint)?;
                Network::Sam1(Sam1::new(loaded.config, loaded.weights, backend, profile))
            }
            Family::Sam2 | Family::Sam2_1 | Family::Sam2Image => {
                let loaded = sam2::load(checkpoint)?;
                Network::Sam2(Sam2::new(loaded.config, loaded.weights, backend, profile))
            }
            Family::Sam3 | Family::Sam3_1 => {
                let loaded = sam3::load(checkpoint)?;
                let sam = Sam3::new(loaded.config, loaded.weights, backend, profile);
                Network::Sam3(Box::new(sam))
            }
        };
        let fingerprint = OnceLock::new();
        Ok(Sam { inner: Arc::new(Inner { identity, network, fingerprint, pool }) })
    }

    /// Family and size.
    pub fn identity(&self) -> Identity {
        self.inner.identity
    }

    /// Family and size in words.
    pub fn description(&self) -> String {
        self.identity().to_string()
    }

    /// What the model runs on, in words.
    pub fn device(&self) -> String {
        self.network().backend().name()
    }

    /// How the model is run.
    pub fn profile(&self) -> &Profile {
        self.network().profile()
    }

    /// Whether it finds objects by phrase and exemplar.
    pub fn finds(&self) -> bool {
        self.network().finds()
    }

    /// Whether it answers points, boxes and masks. All models do but files of SAM 3's detector alone.
    pub fn answers_clicks(&self) -> bool {
        self.network().answers_clicks()
    }

    /// Compiles what one click needs now instead of when it is first asked for.
    pub fn prepare(&self) -> Result<(), ModelError> {
        self.network().prepare()
    }

    /// What the compiler makes of a part of the model: the graph after the pass `after` or after all, what fused, cost and
    /// memory plan.
    pub fn explain(&self, part: &str, after: Option<&str>) -> Result<String, ExplainError> {
        let graphs = self.network().graphs().map_err(ModelError::from)?;
        let Some((_, graph)) = graphs.iter().find(|(name, _)| *name == part) else {
            let known: Vec<&str> = graphs.iter().map(|(name, _)| *name).collect();
            return Err(ExplainError::Part { part: part.to_owned(), known: known.join(", ") });
        };
        let question = Question { graph, rules: device::rules(self.profile())?, after };
        let context = Context::new(Some(self.network().weights()), self.profile());
        Ok(explain(&question, &context).map_err(ModelError::from)?)
    }

    /// The model's input, `f32[1, side, side, 3]`, and where the picture lies in it.
    pub fn preprocess(&self, image: &Image) -> Result<(Tensor, Mapping), ImageError> {
        self.network().preprocess().run(image, self.pool())
    }

    /// Embeds a picture: the long part, once per picture.
    pub fn embed(&self, image: &Image) -> Result<Scene, SegmentError> {
        let (pixels, mapping) = self.preprocess(image)?;
        let embedding = self.network().encode(&pixels)?;
        Ok(Scene::new(self.clone(), embedding, mapping)?)
    }

    /// Whether a prompt can be answered on a picture of this size: all that can be wrong with it is known before the picture
    /// is embedded.
    pub fn check_prompt(&self, prompt: &Prompt, size: Size) -> Result<(), SegmentError> {
        if !self.answers_clicks() {
            return Err(ModelError::NoInteractiveHead.into());
        }
        Ok(prompt.check(size, self.network().mask_side())?)
    }

    /// Reads a scene that this model made and [`Scene::save`] wrote.
    pub fn load_scene(&self, path: impl AsRef<Path>) -> Result<Scene, SceneFileError> {
        Scene::load(self, path.as_ref())
    }

    pub(crate) fn network(&self) -> &Network {
        &self.inner.network
    }

    /// Threads for work on the host.
    pub(crate) fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// A number that two models share only if their weights do, as far as samples of every tensor can tell.
    pub(crate) fn fingerprint(&self) -> u64 {
        *self.inner.fingerprint.get_or_init(|| fingerprint(self.network().weights()))
    }
}

/// The profile beside a checkpoint, if there is one.
pub fn profile_beside(checkpoint: &Path) -> Result<Option<Profile>, SamError> {
    let path = checkpoint.with_file_name(PROFILE_FILE);
    if path.is_file() { read_profile(&path).map(Some) } else { Ok(None) }
}

/// Reads a profile from its file.
pub fn read_profile(path: &Path) -> Result<Profile, SamError> {
    let path = path.to_owned();
    match std::fs::read_to_string(&path) {
        Err(source) => Err(SamError::ProfileFile { path, source }),
        Ok(text) => Profile::parse(&text).map_err(|source| SamError::Profile { path, source }),
    }
}

/// FNV-1a over names, types and the first bytes of all tensors, in the order of their names.
fn fingerprint(weights: &Weights) -> u64 {
    /// Bytes of each tensor that are looked at.
    const SAMPLE: usize = 64;
    let mut paths: Vec<&str> = weights.paths().collect();
    paths.sort_unstable();
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for path in paths {
        add(path.as_bytes());
        let Some(weight) = weights.get(path) else { continue };
        add(weight.ty().to_string().as_bytes());
        if let Ok(tensor) = weight.tensor()
            && let Ok(bytes) = tensor.as_bytes()
        {
            add(&bytes[..bytes.len().min(SAMPLE)]);
        }
    }
    hash
}
