//! Clips, frame by frame.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use cutout::imaging::{Image, Size};
use cutout::video::{self, FrameSource, IndexedFrames, OpenOptions, Tools};
use numpy::{IntoPyArray, PyArray3, PyArrayMethods};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use crate::errors::{raise, wrong};

/// The frames of a clip, `uint8[height, width, 3]` each: a folder of pictures, GIF, APNG, WebP, or with ffmpeg any video.
#[pyclass(frozen, module = "cutout")]
pub(crate) struct Frames {
    source: Mutex<Box<dyn FrameSource>>,
    indexed: Option<Arc<dyn IndexedFrames>>,
    /// Frames, if it is known.
    #[pyo3(get)]
    length: Option<usize>,
    /// Frames a second, if it is known.
    #[pyo3(get)]
    frame_rate: Option<f64>,
}

/// A picture as an array; the pixels are not copied.
fn array(py: Python<'_>, image: Image) -> PyResult<Bound<'_, PyArray3<u8>>> {
    let Size { width, height } = image.size();
    image.into_rgb().into_pyarray(py).reshape([height, width, 3])
}

#[pymethods]
impl Frames {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        // Of the environment, only where programs are.
        let search: std::ffi::OsString =
            py.import("os")?.getattr("environ")?.call_method1("get", ("PATH", ""))?.extract()?;
        let options = OpenOptions { tools: Tools::find(&search), ..OpenOptions::default() };
        let source = py.detach(|| video::open(path, &options)).map_err(raise)?;
        let (indexed, length, frame_rate) =
            (source.indexed(), source.length(), source.frame_rate());
        Ok(Frames { source: Mutex::new(source), indexed, length, frame_rate })
    }

    /// Whether `frame` can be called.
    #[getter]
    fn is_indexed(&self) -> bool {
        self.indexed.is_some()
    }

    /// Any frame, from 0 on, where the clip is a folder of pictures.
    fn frame<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyArray3<u8>>> {
        let Some(frames) = &self.indexed else {
            return Err(wrong("frames of this clip can only be read in their order"));
        };
        if index >= frames.length() {
            let text = format!("frame {index} of {}", frames.length());
            return Err(PyIndexError::new_err(text));
        }
        array(py, py.detach(|| frames.frame(index)).map_err(raise)?)
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArray3<u8>>>> {
        let next = py.detach(|| {
            let mut source = self.source.lock().map_err(|_| wrong("the clip failed before"))?;
            source.next().transpose().map_err(raise)
        })?;
        next.map(|image| array(py, image)).transpose()
    }
}
