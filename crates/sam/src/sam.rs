//! `Sam`: an opened model that embeds pictures.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cutout_graph::explain::{Question, explain};
use cutout_graph::passes::Context;
use cutout_graph::{
    Backend, DeviceValue, Graph, Profile, ProfileError, StoredProfile, TransferCounts, Weights,
};
use cutout_imaging::{Image, ImageError, Mapping, Preprocess, Size, Upsampler};
use cutout_parallel::Pool;
use cutout_tensor::Tensor;
use cutout_weights::layout::{Identity, Model as StoredModel};
use cutout_weights::{Checkpoint, WeightsError};

use crate::device::{self, DeviceError};
use crate::everything::Everything;
use crate::model::config::{FamilyProcessing, ModelConfig, Upsampling};
use crate::model::load::{OpenError, load};
use crate::model::part::{Of, Part};
use crate::model::{Model, ModelError};
use crate::parts::{self, Encode, Pixels, Selection};
use crate::pictures::KnownSizes;
use crate::profiles::{completed, profile_beside};
use crate::prompt::Prompt;
use crate::scene::{Scene, SceneFileError, SegmentError, SourcePicture};

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
    /// The profile inside a checkpoint is wrong.
    #[error("{file}: {key} in its metadata: {source}", key = StoredProfile::KEY)]
    StoredProfile {
        /// The checkpoint.
        file: String,
        /// What is wrong.
        source: ProfileError,
    },
    /// The device cannot be used.
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
    model: Model,
    /// Options for automatic masks.
    everything: Everything,
    fingerprint: OnceLock<u64>,
    known_sizes: KnownSizes,
    /// Threads for work on the host.
    pool: Arc<Pool>,
}

impl Sam {
    /// Opens a checkpoint: any format and layout; family and size are read from its tensors. A `cutout.toml` in the
    /// same folder, if present, sets the profile.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SamError> {
        let path = path.as_ref();
        Sam::open_with(path, profile_beside(path)?.unwrap_or_default())
    }

    /// Opens a checkpoint with the given profile.
    pub fn open_with(path: impl AsRef<Path>, profile: Profile) -> Result<Self, SamError> {
        Sam::from_checkpoint(&Checkpoint::open(path)?, profile)
    }

    /// The model in an open checkpoint. Where the profile asks for 8-bit integers, the profile in the metadata of the file, if there
    /// is one, says which parts that the given one does not name stay in higher precision.
    pub fn from_checkpoint(checkpoint: &Checkpoint, profile: Profile) -> Result<Self, SamError> {
        let profile = completed(checkpoint, profile)?;
        let device::Opened { backend, pool, profile } = device::open(profile)?;
        Sam::on(checkpoint, profile, backend, pool)
    }

    /// The model in an open checkpoint, on a given backend; work on the host runs on the threads of `pool`.
    pub fn on(
        checkpoint: &Checkpoint,
        profile: Profile,
        backend: Arc<dyn Backend>,
        pool: Arc<Pool>,
    ) -> Result<Self, SamError> {
        let (config, weights) = load(checkpoint)?;
        let opened = device::Opened { backend, pool, profile };
        Sam::member(checkpoint, &config, &Arc::new(weights), opened)
    }

    /// The model of a configuration and weights that were read from `checkpoint`, on a device.
    pub(crate) fn member(
        checkpoint: &Checkpoint,
        config: &ModelConfig,
        weights: &Arc<Weights>,
        opened: device::Opened,
    ) -> Result<Self, SamError> {
        let device::Opened { backend, pool, profile } = opened;
        let identity = StoredModel::of(checkpoint)?.identity();
        let everything = Everything::for_checkpoint(checkpoint, identity)?;
        let model = Model::new(config.clone(), Arc::clone(weights), backend, profile);
        let (fingerprint, known_sizes) = (OnceLock::new(), KnownSizes::default());
        let inner = Inner { identity, model, everything, fingerprint, known_sizes, pool };
        Ok(Sam { inner: Arc::new(inner) })
    }

    /// Family and size.
    pub fn identity(&self) -> Identity {
        self.inner.identity
    }

    /// The options for automatic masks that suit this model: those in the metadata of its file, else Meta's for its family.
    pub fn everything_options(&self) -> Everything {
        self.inner.everything.clone()
    }

    /// Family and size as text.
    pub fn description(&self) -> String {
        self.identity().to_string()
    }

    /// Device name for people.
    pub fn device(&self) -> String {
        self.model().backend().name()
    }

    /// The profile: device, threads and precision.
    pub fn profile(&self) -> &Profile {
        self.model().profile()
    }

    /// Whether the model finds objects by phrase and exemplar (SAM 3).
    pub fn finds(&self) -> bool {
        self.model().config().finder.is_some()
    }

    /// Whether the model answers points, boxes and masks. Only checkpoints with nothing but SAM 3's detector do not.
    pub fn answers_clicks(&self) -> bool {
        self.model().config().decoder.is_some()
    }

    /// Whether the model follows objects through a video: its checkpoint has a memory.
    pub fn tracks(&self) -> bool {
        self.model().config().memory.is_some()
    }

    /// Side of the square that the image encoder reads, in pixels.
    pub fn input_side(&self) -> usize {
        self.model().config().encoder.image_size()
    }

    /// Side of low-resolution masks, which are square.
    pub fn mask_side(&self) -> usize {
        self.model().config().mask_side()
    }

    /// Whether the device computes while the host goes on, as GPUs do: [`Tracker::look_ahead`](crate::Tracker::look_ahead) gains there.
    pub fn computes_beside_host(&self) -> bool {
        !self.model().backend().values_are_on_host()
    }

    /// Bytes of memory that weights take, without the pages of mapped files.
    pub fn weight_bytes(&self) -> usize {
        let memory = self.model().weights().memory();
        memory.packed + memory.plain + memory.folded
    }

    /// Compiles the programs of a first prompt now instead of on first use.
    pub fn prepare(&self) -> Result<(), ModelError> {
        struct Prepare<'a>(&'a Model);
        impl parts::Visitor for Prepare<'_> {
            fn visit<P: Part + 'static>(
                &mut self,
                _: &'static str,
                part: &P,
            ) -> Result<(), ModelError>
            where
                Of<P::Outputs, usize>: Send + Sync,
            {
                self.0.prepare(part)
            }
        }
        let model = self.model();
        parts::visit(model.config(), Selection::FirstAnswer, &mut Prepare(model))
    }

    /// Drops compiled programs and packed weights. They are rebuilt on the next use.
    pub fn release_memory(&self) {
        self.inner.known_sizes.clear();
        self.model().evict();
    }

    /// Values that crossed between host and device so far.
    pub fn transfers(&self) -> TransferCounts {
        self.model().transfers()
    }

    /// Text report about one part of the model: its graph after pass `after` (or after all passes), the fused ops, the
    /// cost and the memory plan.
    pub fn explain(&self, part: &str, after: Option<&str>) -> Result<String, ExplainError> {
        let graphs = self.graphs()?;
        let Some((_, graph)) = graphs.iter().find(|(name, _)| *name == part) else {
            let known: Vec<&str> = graphs.iter().map(|(name, _)| *name).collect();
            return Err(ExplainError::Part { part: part.to_owned(), known: known.join(", ") });
        };
        let backend = self.model().backend();
        let (rules, passes) = (backend.rules(self.profile()), backend.passes());
        let context = Context::new(Some(self.model().weights()), self.profile());
        let explained = explain(&Question { graph, rules: &*rules, passes, after }, &context);
        Ok(explained.map_err(ModelError::from)?)
    }

    /// The graphs of the model in their usual shapes, by name.
    fn graphs(&self) -> Result<Vec<(&'static str, Graph)>, ModelError> {
        struct Collect<'a>(&'a Model, Vec<(&'static str, Graph)>);
        impl parts::Visitor for Collect<'_> {
            fn visit<P: Part + 'static>(
                &mut self,
                name: &'static str,
                part: &P,
            ) -> Result<(), ModelError>
            where
                Of<P::Outputs, usize>: Send + Sync,
            {
                self.1.push((name, self.0.graph(part)?));
                Ok(())
            }
        }
        let mut collect = Collect(self.model(), Vec::new());
        parts::visit(self.model().config(), Selection::All, &mut collect)?;
        Ok(collect.1)
    }

    /// The model's input, `f32[1, side, side, 3]`, and the mapping between its pixels and the picture's, made on the host.
    pub fn preprocess(&self, image: &Image) -> Result<(Tensor, Mapping), ImageError> {
        self.preprocessing().run(image, self.pool())
    }

    /// Preprocessing of a picture: size, normalisation and fit.
    pub(crate) fn preprocessing(&self) -> Preprocess {
        let config = self.model().config();
        let &FamilyProcessing { mean, std, fit, .. } = config.processing();
        Preprocess { side: config.encoder.image_size(), mean, std, fit }
    }

    /// Upsampler from low-resolution masks to the size of a picture.
    pub(crate) fn upsampler(&self, mapping: &Mapping) -> Result<Upsampler, ImageError> {
        let low = Size::square(self.model().config().mask_side());
        match self.model().config().processing().upsampling {
            Upsampling::ThroughInput => Upsampler::through_model(low, mapping),
            Upsampling::Direct => Upsampler::direct(low, mapping.original),
        }
    }

    /// Waits until everything that the device was given is done. Only clocks need it: results are waited for when they are read.
    pub fn synchronize(&self) -> Result<(), SegmentError> {
        Ok(self.model().backend().synchronize().map_err(ModelError::from)?)
    }

    /// Runs the image encoder alone, `repeat` times on one picture that is on the device already, and returns the time of each run.
    pub fn time_encoder(&self, image: &Image, repeat: u32) -> Result<Vec<Duration>, SegmentError> {
        let (pixels, _) = self.input::<SegmentError>(&self.preprocessing(), image)?;
        self.synchronize()?;
        let part = Encode { pictures: 1 };
        let mut times = Vec::new();
        for _ in 0..repeat {
            let start = Instant::now();
            self.model().run(&part, Pixels { pixels: pixels.clone() })?;
            self.synchronize()?;
            times.push(start.elapsed());
        }
        Ok(times)
    }

    /// Embeds a picture. This is the slow step; it runs once per picture.
    pub fn embed(&self, image: &Image) -> Result<Scene, SegmentError> {
        let mut scenes = self.embed_all(std::slice::from_ref(image))?;
        Ok(scenes.pop().expect("one picture has one scene"))
    }

    /// Embeds several pictures, in batches of the device's batch limit.
    pub fn embed_all(&self, images: &[Image]) -> Result<Vec<Scene>, SegmentError> {
        let mut scenes = Vec::with_capacity(images.len());
        for batch in images.chunks(self.model().backend().batch_limit()) {
            scenes.extend(self.embed_batch(batch)?);
        }
        Ok(scenes)
    }

    /// Embeds a picture that was brought to the size of the model's input before, as [`Sam::preprocess`] brings one of size
    /// `original` there. Answers have that size.
    pub fn embed_resized(&self, image: &Image, original: Size) -> Result<Scene, SegmentError> {
        let mapping = self.preprocessing().mapping(original)?;
        if mapping.content != image.size() {
            let (expected, found) = (mapping.content, image.size());
            return Err(ImageError::Mismatch { expected, found }.into());
        }
        let (pixels, _) = self.input::<SegmentError>(&self.preprocessing(), image)?;
        let mut scenes = self.embed_inputs(&[image], (pixels, vec![mapping]))?;
        Ok(scenes.pop().expect("one picture has one scene"))
    }

    fn embed_batch(&self, images: &[Image]) -> Result<Vec<Scene>, SegmentError> {
        let inputs = self.inputs::<SegmentError>(images)?;
        self.embed_inputs(&images.iter().collect::<Vec<_>>(), inputs)
    }

    /// The scenes of pictures whose inputs are made.
    fn embed_inputs(
        &self,
        images: &[&Image],
        (pixels, mappings): (DeviceValue, Vec<Mapping>),
    ) -> Result<Vec<Scene>, SegmentError> {
        let part = Encode { pictures: images.len() };
        let encoded = self.model().run(&part, Pixels { pixels })?;
        let sources = images
            .iter()
            .zip(mappings)
            .map(|(image, mapping)| SourcePicture { mapping, fingerprint: image.fingerprint() });
        let scene = |(features, source)| Ok(Scene::new(self.clone(), features, source)?);
        encoded.pictures.into_iter().zip(sources).map(scene).collect()
    }

    /// Checks a prompt against a picture of this size, before the picture is embedded.
    pub fn check_prompt(&self, prompt: &Prompt, size: Size) -> Result<(), SegmentError> {
        let config = self.model().config();
        config.decoder()?;
        Ok(prompt.check(size, config.mask_side())?)
    }

    /// Reads a scene that this model made and [`Scene::save`] wrote.
    pub fn load_scene(&self, path: impl AsRef<Path>) -> Result<Scene, SceneFileError> {
        self.scene_in(&Checkpoint::open(path)?)
    }

    /// The scene in an open file; see [`Sam::load_scene`].
    pub fn scene_in(&self, file: &Checkpoint) -> Result<Scene, SceneFileError> {
        Scene::load(self, file)
    }

    pub(crate) fn model(&self) -> &Model {
        &self.inner.model
    }

    /// Most prompts in one decoder batch. Each prompt holds its own copy of the image features: on a processor, larger batches cost
    /// memory and are not faster; a GPU needs them to be busy.
    pub(crate) fn prompt_limit(&self) -> usize {
        4 * self.model().backend().batch_limit()
    }

    /// Threads for work on the host.
    pub(crate) fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// What is known of the sizes of recent pictures.
    pub(crate) fn known_sizes(&self) -> &KnownSizes {
        &self.inner.known_sizes
    }

    /// Hash of the weights, computed from a sample of every tensor.
    pub(crate) fn fingerprint(&self) -> u64 {
        *self.inner.fingerprint.get_or_init(|| fingerprint(self.model().weights()))
    }
}

/// FNV-1a over names, types and the first bytes of all tensors, in the order of their names.
fn fingerprint(weights: &Weights) -> u64 {
    /// Bytes hashed of each tensor.
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
        // A tensor of the file is not read as a whole for the sake of its first bytes.
        let tensor = weight.ready().cloned().or_else(|| weight.tensor().ok());
        if let Some(bytes) = tensor.as_ref().and_then(|tensor| tensor.as_bytes().ok()) {
            add(&bytes[..bytes.len().min(SAMPLE)]);
        }
    }
    hash
}
