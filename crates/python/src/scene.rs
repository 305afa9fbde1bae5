//! Embedded pictures.

use std::path::PathBuf;

use cutout::imaging::Size;
use numpy::{IntoPyArray, PyArray4, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{raise, wrong};
use crate::everything;
use crate::find::{Detections, query};
use crate::interrupt::interruptible;
use crate::mask::{Mask, Masks};
use crate::prompt::Prompt;

/// An embedded picture, which answers any number of prompts.
#[pyclass(frozen, module = "cutout")]
pub(crate) struct Scene {
    pub(crate) inner: cutout::Scene,
}

#[pymethods]
impl Scene {
    /// Height and width of the picture.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        let Size { width, height } = self.inner.size();
        (height, width)
    }

    /// The masks of a prompt.
    fn segment(&self, py: Python<'_>, prompt: &Prompt) -> PyResult<Masks> {
        let masks = py.detach(|| self.inner.segment(&prompt.inner)).map_err(raise)?;
        Masks::of(py, &masks)
    }

    /// The masks of many prompts, decoded in batches.
    fn segment_all(&self, py: Python<'_>, prompts: Vec<PyRef<'_, Prompt>>) -> PyResult<Vec<Masks>> {
        let prompts: Vec<_> = prompts.iter().map(|prompt| prompt.inner.clone()).collect();
        let scene = self.inner.clone();
        let answers = interruptible(py, move || scene.segment_all(&prompts))?.map_err(raise)?;
        answers.iter().map(|masks| Masks::of(py, masks)).collect()
    }

    /// Every object of the phrases and exemplars (SAM 3): one `Detections` for each phrase.
    ///
    /// `boxes` are (left, top, right, bottom) and `points` (x, y), with labels 1 or 0. `overlap` drops objects that overlap
    /// a better one by more than this IoU.
    #[pyo3(signature = (phrases=None, **options))]
    fn find(
        &self,
        py: Python<'_>,
        phrases: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Detections>> {
        let (scene, find) = (self.inner.clone(), query(phrases, options)?);
        let found = interruptible(py, move || scene.find(find))?.map_err(raise)?;
        found.phrases().iter().map(|detections| Detections::of(py, detections)).collect()
    }

    /// Every mask of the picture. Options have Meta's names; `progress` is called with (points done, points).
    #[pyo3(signature = (*, progress=None, **options))]
    fn everything(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Mask>> {
        let options = everything::options(self.inner.sam().everything_options(), options)?;
        everything::run(py, progress, |report| self.inner.everything_with(&options, report))
    }

    /// The features that the mask decoder starts from, `float32[1, channels, rows, columns]` as in Meta's code.
    fn image_embedding<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray4<f32>>> {
        let embedding = py.detach(|| self.inner.image_embedding()).map_err(raise)?;
        let &[batch, channels, rows, columns] = &embedding.shape()[..] else {
            return Err(wrong("the embedding has no four axes"));
        };
        let values = embedding.to_vec::<f32>().map_err(raise)?;
        values.into_pyarray(py).reshape([batch, channels, rows, columns])
    }

    /// Writes the features to a file that `Sam.load_scene` reads.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.inner.save(path)).map_err(raise)
    }

    fn __repr__(&self) -> String {
        let Size { width, height } = self.inner.size();
        format!("<cutout.Scene {width}x{height} of {}>", self.inner.sam().description())
    }
}
