//! Models.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use cutout::{Family, Precision, Profile, TrackOptions};
use pyo3::exceptions::PyFileNotFoundError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{raise, wrong};
use crate::everything;
use crate::find::phrases_of;
use crate::image::image_of;
use crate::interrupt::interruptible;
use crate::mask::Mask;
use crate::phrases::{PhraseTracker, phrase_options};
use crate::scene::Scene;
use crate::tracker::{Tracker, track_options};

/// A model: a published checkpoint of SAM 1, 2 or 3, or the built-in one.
#[pyclass(frozen, module = "cutout")]
pub(crate) struct Sam {
    pub(crate) inner: cutout::Sam,
}

/// The profile of a checkpoint, changed by arguments.
fn profile(
    mut profile: Profile,
    device: Option<&str>,
    precision: Option<&str>,
    threads: Option<usize>,
) -> PyResult<Profile> {
    if let Some(device) = device {
        profile.device = cutout::Device::try_from(device.to_owned()).map_err(wrong)?;
    }
    if let Some(precision) = precision {
        profile.precision = match precision {
            "auto" => Precision::Auto,
            "f32" | "float32" => Precision::F32,
            "f16" | "float16" => Precision::F16,
            "bf16" | "bfloat16" => Precision::Bf16,
            "int8" => Precision::Int8,
            other => {
                let known = "auto, f32, f16, bf16, int8";
                return Err(wrong(format!("precision {other:?} is none of {known}")));
            }
        };
    }
    if let Some(threads) = threads {
        let most = cutout::MAX_THREADS;
        let number = NonZeroUsize::new(threads).filter(|threads| threads.get() <= most);
        let message = || wrong(format!("threads is from 1 to {most}, not {threads}"));
        profile.threads = Some(number.ok_or_else(message)?);
    }
    Ok(profile)
}

#[pymethods]
impl Sam {
    /// Opens a checkpoint of any family, format and layout; without a path, the built-in model.
    #[new]
    #[pyo3(signature = (path=None, *, device=None, precision=None, threads=None))]
    fn new(
        py: Python<'_>,
        path: Option<PathBuf>,
        device: Option<&str>,
        precision: Option<&str>,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let beside = match &path {
            Some(path) if !path.exists() => {
                let text = format!("{}: no such file", path.display());
                return Err(PyFileNotFoundError::new_err(text));
            }
            Some(path) => cutout::profile_beside(path).map_err(raise)?.unwrap_or_default(),
            None => Profile::default(),
        };
        let profile = profile(beside, device, precision, threads)?;
        let opened = py.detach(|| match path {
            Some(path) => cutout::Sam::open_with(path, profile),
            None => cutout::Sam::builtin_with(profile),
        });
        Ok(Sam { inner: opened.map_err(raise)? })
    }

    /// Family and size, for people.
    #[getter]
    fn description(&self) -> String {
        self.inner.description()
    }

    /// `sam1`, `sam2`, `sam2.1`, `sam3` or `sam3.1`.
    #[getter]
    fn family(&self) -> &'static str {
        match self.inner.identity().family {
            Family::Sam1 => "sam1",
            Family::Sam2 | Family::Sam2Image => "sam2",
            Family::Sam2_1 => "sam2.1",
            Family::Sam3 => "sam3",
            Family::Sam3_1 => "sam3.1",
        }
    }

    /// The device, for people.
    #[getter]
    fn device(&self) -> String {
        self.inner.device()
    }

    /// Side of the square that the encoder reads, in pixels.
    #[getter]
    fn input_side(&self) -> usize {
        self.inner.input_side()
    }

    /// Side of low-resolution masks.
    #[getter]
    fn mask_side(&self) -> usize {
        self.inner.mask_side()
    }

    /// Whether the model finds objects by phrase and exemplar.
    #[getter]
    fn finds(&self) -> bool {
        self.inner.finds()
    }

    /// Whether the model follows objects through a video.
    #[getter]
    fn tracks(&self) -> bool {
        self.inner.tracks()
    }

    /// The options for automatic masks that suit this model, by Meta's names.
    fn everything_options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        everything::as_dict(py, &self.inner.everything_options())
    }

    /// Embeds a picture: the slow step, once per picture.
    fn embed(&self, py: Python<'_>, image: &Bound<'_, PyAny>) -> PyResult<Scene> {
        let (sam, image) = (self.inner.clone(), image_of(image)?);
        let scene = interruptible(py, move || sam.embed(&image))?;
        Ok(Scene { inner: scene.map_err(raise)? })
    }

    /// Embeds a picture that was brought to the encoder's frame already (its longer side is `input_side`); answers have the
    /// size (height, width) of the picture that it was made from.
    fn embed_resized(
        &self,
        py: Python<'_>,
        image: &Bound<'_, PyAny>,
        original_size: (usize, usize),
    ) -> PyResult<Scene> {
        let (height, width) = original_size;
        let original = cutout::imaging::Size { width, height };
        let (sam, image) = (self.inner.clone(), image_of(image)?);
        let scene = interruptible(py, move || sam.embed_resized(&image, original))?;
        Ok(Scene { inner: scene.map_err(raise)? })
    }

    /// Embeds several pictures; on a GPU in batches.
    fn embed_all(&self, py: Python<'_>, images: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<Scene>> {
        let images = images.iter().map(image_of).collect::<PyResult<Vec<_>>>()?;
        let sam = self.inner.clone();
        let scenes = interruptible(py, move || sam.embed_all(&images))?.map_err(raise)?;
        Ok(scenes.into_iter().map(|inner| Scene { inner }).collect())
    }

    /// Reads a scene that this model made and `Scene.save` wrote.
    fn load_scene(&self, py: Python<'_>, path: PathBuf) -> PyResult<Scene> {
        let scene = py.detach(|| self.inner.load_scene(path));
        Ok(Scene { inner: scene.map_err(raise)? })
    }

    /// Every mask of a picture. Options have Meta's names; `progress` is called with (points done, points).
    #[pyo3(signature = (image, *, progress=None, **options))]
    fn everything(
        &self,
        py: Python<'_>,
        image: &Bound<'_, PyAny>,
        progress: Option<Py<PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Mask>> {
        let options = everything::options(self.inner.everything_options(), options)?;
        let image = image_of(image)?;
        everything::run(py, progress, |report| self.inner.everything(&image, &options, report))
    }

    /// Begins to track objects through a video.
    #[pyo3(signature = (**options))]
    fn track(&self, options: Option<&Bound<'_, PyDict>>) -> PyResult<Tracker> {
        let options: TrackOptions = track_options(options)?;
        Ok(Tracker::new(self.inner.track(options).map_err(raise)?))
    }

    /// Begins to find and follow every object of phrases, one or a list, through a video (SAM 3).
    #[pyo3(signature = (phrases=None, **options))]
    fn track_phrases(
        &self,
        phrases: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PhraseTracker> {
        let options = phrase_options(self.inner.phrase_options(), options)?;
        let phrases = phrases_of(phrases)?;
        let phrases: Vec<&str> = phrases.iter().map(String::as_str).collect();
        let tracker = self.inner.track_phrases(&phrases, options).map_err(raise)?;
        Ok(PhraseTracker::new(tracker))
    }

    fn __repr__(&self) -> String {
        format!("<cutout.Sam {} on {}>", self.inner.description(), self.inner.device())
    }
}
