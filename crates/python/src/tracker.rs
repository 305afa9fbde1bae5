//! Objects through a video.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use cutout::{
    Corrections, Direction, History, ObjectId, PhraseFrame, PhraseObject, TrackOptions,
    TrackedFrame,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{CutoutError, Failure, raise, wrong};
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
            "history" => options.history = history(value.extract()?),
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
    /// Objects of earlier answers that turned out to be none: (id, first frame, last frame).
    #[pyo3(get)]
    taken_back: Vec<(ObjectId, usize, usize)>,
}

impl Frame {
    fn of(py: Python<'_>, tracked: &TrackedFrame) -> PyResult<Self> {
        let mask = |object: &cutout::TrackedObject| {
            Py::new(py, Mask::of_object(object.id, &object.segment))
        };
        let objects = tracked.objects.iter().map(mask).collect::<PyResult<_>>()?;
        Ok(Frame { frame: tracked.frame, objects, taken_back: Vec::new() })
    }

    /// A frame that was searched for phrases.
    pub(crate) fn of_phrases(py: Python<'_>, found: &PhraseFrame) -> PyResult<Self> {
        let mask = |object: &PhraseObject| {
            Py::new(py, Mask::of_phrase_object(object, found.phrase_of(object)))
        };
        let objects = found.objects.iter().map(mask).collect::<PyResult<_>>()?;
        let taken_back = found.taken_back.iter().map(|it| (it.id, it.first, it.last)).collect();
        Ok(Frame { frame: found.frame, objects, taken_back })
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

/// A tracker that one call at a time works on.
pub(crate) struct Shared<T>(Arc<Mutex<T>>);

impl<T: Send + 'static> Shared<T> {
    pub(crate) fn new(tracker: T) -> Self {
        Shared(Arc::new(Mutex::new(tracker)))
    }

    /// Runs `work` on the tracker so that Ctrl-C ends the call.
    pub(crate) fn with<R: Send + 'static, E: Failure>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut T) -> Result<R, E> + Send + 'static,
    ) -> PyResult<R> {
        let tracker = Arc::clone(&self.0);
        interruptible(py, move || {
            let mut tracker = tracker.lock().map_err(|_| broken())?;
            work(&mut tracker).map_err(raise)
        })?
    }

    /// What `read` sees of the tracker.
    pub(crate) fn get<R>(&self, read: impl FnOnce(&T) -> R) -> PyResult<R> {
        Ok(read(&*self.0.lock().map_err(|_| broken())?))
    }
}

fn broken() -> PyErr {
    CutoutError::new_err("the tracker failed before; begin a new one")
}

/// The direction of a step.
pub(crate) fn direction(backward: bool) -> Direction {
    if backward { Direction::Backward } else { Direction::Forward }
}

/// The history of a tracker whose memories out of reach wait in `folder`, if there is one.
pub(crate) fn history(folder: Option<PathBuf>) -> History {
    folder.map_or(History::Recent, History::Disk)
}

/// Objects through a video, frame by frame, in memory that does not grow.
#[pyclass(frozen, module = "cutout")]
pub(crate) struct Tracker {
    inner: Shared<cutout::Tracker>,
}

impl Tracker {
    pub(crate) fn new(tracker: cutout::Tracker) -> Self {
        Tracker { inner: Shared::new(tracker) }
    }
}

#[pymethods]
impl Tracker {
    /// Tracks all objects on the next frame (frame 0 first).
    fn push(&self, py: Python<'_>, image: &Bound<'_, PyAny>) -> PyResult<Frame> {
        let image = image_of(image)?;
        Frame::of(py, &self.inner.with(py, move |tracker| tracker.push(&image))?)
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
        let way = direction(backward);
        let tracked = self.inner.with(py, move |tracker| tracker.push_at(frame, &image, way))?;
        Frame::of(py, &tracked)
    }

    /// Makes a frame the current one without tracking, so that it can take prompts.
    fn visit(&self, py: Python<'_>, frame: usize, image: &Bound<'_, PyAny>) -> PyResult<()> {
        let image = image_of(image)?;
        self.inner.with(py, move |tracker| tracker.visit(frame, &image))
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
                self.inner.with(py, move |tracker| tracker.prompt(frame, object, &prompt))?
            }
            Err(_) => {
                let mask = mask_of(prompt)?;
                self.inner.with(py, move |tracker| tracker.prompt(frame, object, &mask))?
            }
        };
        Ok(Mask::of_object(tracked.id, &tracked.segment))
    }

    /// Removes the prompts of an object on a frame.
    fn clear_prompts(&self, py: Python<'_>, frame: usize, object: ObjectId) -> PyResult<()> {
        self.inner.with(py, move |tracker| tracker.clear_prompts(frame, object))
    }

    /// Forgets an object.
    fn remove(&self, py: Python<'_>, object: ObjectId) -> PyResult<()> {
        self.inner.with(py, move |tracker| tracker.remove(object))
    }

    /// The masks on the current frame.
    fn masks(&self, py: Python<'_>) -> PyResult<Frame> {
        Frame::of(py, &self.inner.with(py, |tracker| tracker.masks())?)
    }

    /// Ids of the objects.
    #[getter]
    fn objects(&self) -> PyResult<Vec<ObjectId>> {
        self.inner.get(|tracker| tracker.objects().collect())
    }

    /// The current frame.
    #[getter]
    fn frame(&self) -> PyResult<Option<usize>> {
        self.inner.get(|tracker| tracker.frame())
    }
}
