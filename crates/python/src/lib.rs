//! The native module `cutout._cutout` of the Python package: the API of the `cutout` crate with NumPy arrays.
//!
//! The package in `python/cutout` re-exports these classes and builds Meta's interfaces on them. Work runs without the
//! interpreter's lock, and Ctrl-C ends a call at once ([`interrupt`]).

mod errors;
mod everything;
mod find;
mod frames;
mod image;
mod interrupt;
mod mask;
mod phrases;
mod prompt;
mod sam;
mod scene;
mod tracker;

use pyo3::prelude::*;

/// The classes of the module.
#[pymodule]
mod _cutout {
    #[pymodule_export]
    use crate::errors::CutoutError;
    #[pymodule_export]
    use crate::find::Detections;
    #[pymodule_export]
    use crate::frames::Frames;
    #[pymodule_export]
    use crate::mask::{Mask, Masks, mask_to_rle, rle_to_mask};
    #[pymodule_export]
    use crate::phrases::PhraseTracker;
    #[pymodule_export]
    use crate::prompt::Prompt;
    #[pymodule_export]
    use crate::sam::Sam;
    #[pymodule_export]
    use crate::scene::Scene;
    #[pymodule_export]
    use crate::tracker::{Frame, Tracker};

    use std::ffi::OsString;

    use pyo3::prelude::*;

    /// Runs the command line `cutout` with these arguments, the program's name first, and returns the exit code.
    #[pyfunction]
    fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
        py.detach(|| cutout_cli::run(arguments))
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
