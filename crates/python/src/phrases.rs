//! Every object of a phrase through a video.

use cutout::{ObjectId, PhraseFrame, PhraseOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::wrong;
use crate::find::exemplars;
use crate::image::{image_of, mask_of};
use crate::mask::Mask;
use crate::prompt::Prompt;
use crate::tracker::{Frame, Shared, direction, history};

/// Options of phrases in video: those of the model, changed by name.
pub(crate) fn phrase_options(
    mut options: PhraseOptions,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<PhraseOptions> {
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        match name.as_str() {
            "length" => options.length = value.extract()?,
            "latency" => options.latency = value.extract()?,
            "history" => options.history = history(value.extract()?),
            "goes_back" => options.goes_back = value.extract()?,
            "detection_threshold" => options.detection_threshold = value.extract()?,
            "duplicate_iou" => options.duplicate_iou = value.extract()?,
            "match_iou" => options.match_iou = value.extract()?,
            "unmatched_iou" => options.unmatched_iou = value.extract()?,
            "new_object_threshold" => options.new_object_threshold = value.extract()?,
            "delay" => options.delay = value.extract()?,
            "unmatched_frames" => options.unmatched_frames = value.extract()?,
            "duplicate_frames" => options.duplicate_frames = value.extract()?,
            "recondition_every" => options.recondition_every = value.extract()?,
            "recondition_score" => options.recondition_score = value.extract()?,
            "recondition_iou" => options.recondition_iou = value.extract()?,
            "recondition_logit" => options.recondition_logit = value.extract()?,
            "occlusion_iou" => options.occlusion_iou = value.extract()?,
            "fill_hole_area" => options.fill_hole_area = value.extract()?,
            "max_objects" => options.max_objects = value.extract()?,
            other => return Err(wrong(format!("track_phrases has no option {other:?}"))),
        }
    }
    Ok(options)
}

/// Every object of phrases through a video: found, followed and numbered from 1 on.
#[pyclass(frozen, module = "cutout")]
pub(crate) struct PhraseTracker {
    inner: Shared<cutout::PhraseTracker>,
}

impl PhraseTracker {
    pub(crate) fn new(tracker: cutout::PhraseTracker) -> Self {
        PhraseTracker { inner: Shared::new(tracker) }
    }
}

/// A settled frame, if there is one.
fn settled(py: Python<'_>, frame: Option<PhraseFrame>) -> PyResult<Option<Frame>> {
    frame.map(|frame| Frame::of_phrases(py, &frame)).transpose()
}

#[pymethods]
impl PhraseTracker {
    /// Finds and follows objects on the next frame. Returns a frame that is settled now, or None while answers are held back.
    fn push(&self, py: Python<'_>, image: &Bound<'_, PyAny>) -> PyResult<Option<Frame>> {
        let image = image_of(image)?;
        settled(py, self.inner.with(py, move |tracker| tracker.push(&image))?)
    }

    /// Finds and follows objects on any frame; `ready` has its answer, which `prompt` and `remove` can change before.
    #[pyo3(signature = (frame, image, *, backward=false))]
    fn step(
        &self,
        py: Python<'_>,
        frame: usize,
        image: &Bound<'_, PyAny>,
        backward: bool,
    ) -> PyResult<()> {
        let (image, way) = (image_of(image)?, direction(backward));
        self.inner.with(py, move |tracker| tracker.step(frame, &image, way))
    }

    /// The next frame that is settled, or None.
    fn ready(&self, py: Python<'_>) -> PyResult<Option<Frame>> {
        settled(py, self.inner.with(py, |tracker| tracker.ready())?)
    }

    /// The frames that are still held back, one at a time, oldest first; None after the last.
    fn finish(&self, py: Python<'_>) -> PyResult<Option<Frame>> {
        settled(py, self.inner.with(py, |tracker| tracker.finish())?)
    }

    /// Makes a frame the current one without following objects on it, so that it can take prompts.
    fn visit(&self, py: Python<'_>, frame: usize, image: &Bound<'_, PyAny>) -> PyResult<()> {
        let image = image_of(image)?;
        self.inner.with(py, move |tracker| tracker.visit(frame, &image))
    }

    /// Looks for one more phrase from the next frame on, and returns its position among the phrases.
    fn add_phrase(&self, py: Python<'_>, phrase: String) -> PyResult<usize> {
        self.inner.with(py, move |tracker| tracker.add_phrase(&phrase))
    }

    /// Shows what is meant on a frame that is still to come: `boxes`, `box_labels`, `points`, `point_labels` as in `Scene.find`,
    /// for the phrase at this position or for themselves. Returns the position of the phrase.
    #[pyo3(signature = (frame, phrase=None, **options))]
    fn add_exemplars(
        &self,
        py: Python<'_>,
        frame: usize,
        phrase: Option<usize>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<usize> {
        let shown = exemplars(options)?;
        self.inner.with(py, move |tracker| tracker.add_exemplars(frame, phrase, &shown))
    }

    /// Corrects an object on the current frame, or begins a new one, by a prompt or a mask `bool[height, width]`.
    fn prompt(
        &self,
        py: Python<'_>,
        frame: usize,
        object: ObjectId,
        prompt: &Bound<'_, PyAny>,
    ) -> PyResult<Mask> {
        let found = match prompt.cast::<Prompt>() {
            Ok(prompt) => {
                let prompt = prompt.get().inner.clone();
                self.inner.with(py, move |tracker| tracker.prompt(frame, object, &prompt))?
            }
            Err(_) => {
                let mask = mask_of(prompt)?;
                self.inner.with(py, move |tracker| tracker.prompt(frame, object, &mask))?
            }
        };
        Ok(Mask::of_phrase_object(&found, None))
    }

    /// Ends an object, whose number is not used again.
    fn remove(&self, py: Python<'_>, object: ObjectId) -> PyResult<()> {
        self.inner.with(py, move |tracker| tracker.remove(object))
    }

    /// Ids of the objects that are followed now.
    #[getter]
    fn objects(&self) -> PyResult<Vec<ObjectId>> {
        self.inner.get(|tracker| tracker.objects().collect())
    }

    /// The smallest id that a new object can have.
    #[getter]
    fn next_id(&self) -> PyResult<ObjectId> {
        self.inner.get(cutout::PhraseTracker::next_id)
    }

    /// Frames whose answers are held back.
    #[getter]
    fn held_back(&self) -> PyResult<usize> {
        self.inner.get(cutout::PhraseTracker::held_back)
    }
}
