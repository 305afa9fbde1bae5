//! Objects through a video.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use cutout::{Corrections, Direction, History, ObjectId, TrackError, TrackOptions, TrackedFrame};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{CutoutError, raise, wrong};
use crate::image::{image_of, mask_of};
use crate::interrupt::interruptible;
use crate::mask::Mask;
use crate::prompt::Prompt;

/// Options of the tracker, by name.
pub(crate) fn track_options(given: Option<&Bound<'_, PyDict>>) -> PyResult<TrackOptions> {
    let mut options = TrackOptions::default();
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        match name.as_str() {
            "length" => options.length = value.extract()?,
            "most_prompted_frames" => options.most_prompted_frames = value.extract()?,
            "memory_selection" => options.memory_selection = value.extract()?,
            "fill_hole_area" => options.fill_hole_area = value.extract()?,
            "history" => {
                let folder: Option<PathBuf> = value.extract()?;
                options.history = folder.map_or(History::Recent, History::Disk);
            }
            "corrections" => {
                let text: Option<String> = value.extract()?;
                options.corrections = match text.as_deref() {
                    None => None,
                    Some("pass") => Some(Corrections::Pass),
                    Some("condition") => Some(Corrections::Condition),
                    Some(other) => {
                        let text =
                            format!("corrections is \"pass\" or \"condition\", not {other:?}");
                        return Err(wrong(text));
                    }
                };
            }
            other => return Err(wrong(format!("a tracker has no option {other:?}"))),
        }
    }
    Ok(options)
}

/// The objects of one frame.
#[pyclass(frozen, module = "cutout")]
pub(crate) struct Frame {
    /// Number of the frame, from 0 on.
    #[pyo3(get)]
    frame: usize,
    objects: Vec<Py<Mask>>,
}

impl Frame {
    fn of(py: Python<'_>, tracked: &TrackedFrame) -> PyResult<Self> {
        let mask = |object: &cutout::TrackedObject| {
            Py::new(py, Mask::of_object(object.id, &object.segment))
        };
        let objects = tracked.objects.iter().map(mask).collect::<PyResult<_>>()?;
        Ok(Frame { frame: tracked.frame, objects })
    }
}

#[pymethods]
impl Frame {
    /// The objects in the order of their ids, each a `Mask` with an `id`.
    #[getter]
    fn objects(&self, py: Python<'_>) -> Vec<Py<Mask>> {
        self.objects.iter().map(|mask| mask.clone_ref(py)).collect()
    }

    fn __repr__(&self) -> String {
        format!("<cutout.Frame {} with {} objects>", self.frame, self.objects.len())
    }
}

/// Objects through a video, frame by frame, in memory that does not grow.
#[pyclass(frozen, module = "cutout")]
pub(crate) struct Tracker {
    inner: Arc<Mutex<cutout::Tracker>>,
}

impl Tracker {
    pub(crate) fn new(tracker: cutout::Tracker) -> Self {
        Tracker { inner: Arc::new(Mutex::new(tracker)) }
    }

    /// Runs `work` on the tracker so that Ctrl-C ends the call.
    fn with<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut cutout::Tracker) -> Result<T, TrackError> + Send + 'static,
    ) -> PyResult<T> {
        let inner = Arc::clone(&self.inner);
        interruptible(py, move || {
            let mut tracker = inner.lock().map_err(|_| broken())?;
            work(&mut tracker).map_err(raise)
        })?
    }
}

fn broken() -> PyErr {
    CutoutError::new_err("the tracker failed before; begin a new one")
}

#[pymethods]
impl Tracker {
    /// Tracks all objects on the next frame (frame 0 first).
    fn push(&self, py: Python<'_>, image: &Bound<'_, PyAny>) -> PyResult<Frame> {
        let image = image_of(image)?;
        Frame::of(py, &self.with(py, move |tracker| tracker.push(&image))?)
    }

    /// Tracks all objects on any frame, forwards or backwards.
    #[pyo3(signature = (frame, image, *, backward=false))]
    fn push_at(
        &self,
        py: Python<'_>,
        frame: usize,
        image: &Bound<'_, PyAny>,
        backward: bool,
    ) -> PyResult<Frame> {
        let image = image_of(image)?;
        let direction = if backward { Direction::Backward } else { Direction::Forward };
        let tracked = self.with(py, move |tracker| tracker.push_at(frame, &image, direction))?;
        Frame::of(py, &tracked)
    }

    /// Makes a frame the current one without tracking, so that it can take prompts.
    fn visit(&self, py: Python<'_>, frame: usize, image: &Bound<'_, PyAny>) -> PyResult<()> {
        let image = image_of(image)?;
        self.with(py, move |tracker| tracker.visit(frame, &image))
    }

    /// Adds a prompt, or a mask `bool[height, width]`, for a new or tracked object on the current frame.
    fn prompt(
        &self,
        py: Python<'_>,
        frame: usize,
        object: ObjectId,
        prompt: &Bound<'_, PyAny>,
    ) -> PyResult<Mask> {
        let tracked = match prompt.cast::<Prompt>() {
            Ok(prompt) => {
                let prompt = prompt.get().inner.clone();
                self.with(py, move |tracker| tracker.prompt(frame, object, &prompt))?
            }
            Err(_) => {
                let mask = mask_of(prompt)?;
                self.with(py, move |tracker| tracker.prompt(frame, object, &mask))?
            }
        };
        Ok(Mask::of_object(tracked.id, &tracked.segment))
    }

    /// Removes the prompts of an object on a frame.
    fn clear_prompts(&self, py: Python<'_>, frame: usize, object: ObjectId) -> PyResult<()> {
        self.with(py, move |tracker| tracker.clear_prompts(frame, object))
    }

    /// Forgets an object.
    fn remove(&self, py: Python<'_>, object: ObjectId) -> PyResult<()> {
        self.with(py, move |tracker| tracker.remove(object))
    }

    /// The masks on the current frame.
    fn masks(&self, py: Python<'_>) -> PyResult<Frame> {
        Frame::of(py, &self.with(py, |tracker| tracker.masks())?)
    }

    /// Ids of the objects.
    #[getter]
    fn objects(&self) -> PyResult<Vec<ObjectId>> {
        Ok(self.inner.lock().map_err(|_| broken())?.objects().collect())
    }

    /// The current frame.
    #[getter]
    fn frame(&self) -> PyResult<Option<usize>> {
        Ok(self.inner.lock().map_err(|_| broken())?.frame())
    }
}
