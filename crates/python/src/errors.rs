//! Errors as Python exceptions.
//!
//! | what is wrong | exception |
//! |---|---|
//! | an argument: a prompt, an option, an array, a file that is no picture or no model | `ValueError` |
//! | a file that is not there, or may not be read | `FileNotFoundError`, `PermissionError`, `OSError` |
//! | memory | `MemoryError` |
//! | the model while it runs | `CutoutError`, a `RuntimeError` |

use std::error::Error;
use std::io;

use cutout::imaging::{DecodeError, EncodeError, ImageError, RleError};
use cutout::video::VideoError;
use cutout::{
    DeviceError, EverythingError, FindError, ModelError, OpenError, PhraseTrackError, ProfileError,
    SamError, SceneFileError, SegmentError, TensorError, TrackError,
};
use pyo3::exceptions::{
    PyFileNotFoundError, PyMemoryError, PyOSError, PyPermissionError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;

pyo3::create_exception!(
    _cutout,
    CutoutError,
    PyRuntimeError,
    "A model that fails while it runs, or a device that cannot be used."
);

/// Whose fault an error is, if the system is not to blame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The caller: `ValueError`.
    Argument,
    /// The model or the device: `CutoutError`.
    Model,
}

/// An error that can be raised.
pub(crate) trait Failure: Error + Sized + 'static {
    fn blame(&self) -> Blame;
}

/// The exception for an error.
pub(crate) fn raise(error: impl Failure) -> PyErr {
    let text = error.to_string();
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(system) = inner.downcast_ref::<io::Error>() {
            return system_error(system, text);
        }
        if is_memory(inner) {
            return PyMemoryError::new_err(text);
        }
        cause = inner.source();
    }
    match error.blame() {
        Blame::Argument => PyValueError::new_err(text),
        Blame::Model => CutoutError::new_err(text),
    }
}

fn system_error(error: &io::Error, text: String) -> PyErr {
    let kind = error.kind();
    if kind == io::ErrorKind::NotFound {
        PyFileNotFoundError::new_err(text)
    } else if kind == io::ErrorKind::PermissionDenied {
        PyPermissionError::new_err(text)
    } else if kind == io::ErrorKind::OutOfMemory {
        PyMemoryError::new_err(text)
    } else {
        PyOSError::new_err(text)
    }
}

fn is_memory(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(ImageError::Memory(_)))
        || matches!(error.downcast_ref(), Some(TensorError::OutOfMemory(_)))
}

/// An argument that is wrong.
pub(crate) fn wrong(text: impl Into<String>) -> PyErr {
    PyValueError::new_err(text.into())
}

macro_rules! blame {
    ($($error:ty => $blame:ident),+ $(,)?) => {
        $(impl Failure for $error {
            fn blame(&self) -> Blame {
                Blame::$blame
            }
        })+
    };
}

blame! {
    DecodeError => Argument,
    DeviceError => Model,
    EncodeError => Argument,
    ImageError => Argument,
    ModelError => Model,
    OpenError => Argument,
    ProfileError => Argument,
    RleError => Argument,
    TensorError => Argument,
    VideoError => Argument,
}

impl Failure for SamError {
    fn blame(&self) -> Blame {
        if matches!(self, SamError::Device(_)) { Blame::Model } else { Blame::Argument }
    }
}

impl Failure for SegmentError {
    fn blame(&self) -> Blame {
        if matches!(self, SegmentError::Model(_)) { Blame::Model } else { Blame::Argument }
    }
}

impl Failure for SceneFileError {
    fn blame(&self) -> Blame {
        if matches!(self, SceneFileError::Model(_)) { Blame::Model } else { Blame::Argument }
    }
}

impl Failure for EverythingError {
    fn blame(&self) -> Blame {
        match self {
            EverythingError::Segment(error) => error.blame(),
            EverythingError::Option(_)
            | EverythingError::CropsNeedThePicture(_)
            | EverythingError::Stopped => Blame::Argument,
        }
    }
}

impl Failure for FindError {
    fn blame(&self) -> Blame {
        if matches!(self, FindError::Model(_)) { Blame::Model } else { Blame::Argument }
    }
}

impl Failure for TrackError {
    fn blame(&self) -> Blame {
        if matches!(self, TrackError::Model(_)) { Blame::Model } else { Blame::Argument }
    }
}

impl Failure for PhraseTrackError {
    fn blame(&self) -> Blame {
        match self {
            PhraseTrackError::Find(error) => error.blame(),
            PhraseTrackError::Track(error) => error.blame(),
            PhraseTrackError::Beyond { .. }
            | PhraseTrackError::Ended { .. }
            | PhraseTrackError::Full { .. }
            | PhraseTrackError::UnknownPhrase { .. }
            | PhraseTrackError::PhraseAmongExemplars
            | PhraseTrackError::OutOfRange { .. }
            | PhraseTrackError::Image(_) => Blame::Argument,
        }
    }
}
