//! Pictures from Python.

use std::path::PathBuf;

use cutout::imaging::{self, DecodeLimits, Image, Mask, Size};
use numpy::{PyReadonlyArray2, PyReadonlyArray3, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{raise, wrong};

/// A picture: a path, the bytes of a file, or anything with pixels (`cutout._inputs.pixels` says what).
pub(crate) fn image_of(object: &Bound<'_, PyAny>) -> PyResult<Image> {
    let py = object.py();
    let limits = DecodeLimits::default();
    if let Ok(bytes) = object.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        return py.detach(|| imaging::decode(bytes, "bytes", &limits)).map_err(raise);
    }
    if let Ok(path) = object.extract::<PathBuf>() {
        return py.detach(|| imaging::open(path, &limits)).map_err(raise);
    }
    let pixels = py.import("cutout._inputs")?.call_method1("pixels", (object,))?;
    image_of_pixels(&pixels.extract()?)
}

/// The picture of `uint8[height, width, 3]`, in any layout.
fn image_of_pixels(pixels: &PyReadonlyArray3<'_, u8>) -> PyResult<Image> {
    let &[height, width, channels] = pixels.shape() else { return Err(wrong("no picture")) };
    if channels != 3 {
        return Err(wrong(format!("a picture has 3 channels, not {channels}")));
    }
    let values = match pixels.as_slice() {
        Ok(values) if pixels.is_c_contiguous() => values.to_vec(),
        Ok(_) | Err(_) => pixels.as_array().iter().copied().collect(),
    };
    Image::from_rgb(Size { width, height }, values).map_err(raise)
}

/// The mask of `bool[height, width]`, in any layout.
pub(crate) fn mask_of(object: &Bound<'_, PyAny>) -> PyResult<Mask> {
    let pixels = object.py().import("cutout._inputs")?.call_method1("truth", (object,))?;
    let pixels: PyReadonlyArray2<'_, bool> = pixels.extract()?;
    let &[height, width] = pixels.shape() else { return Err(wrong("no mask")) };
    let values: Vec<bool> = pixels.as_array().iter().copied().collect();
    Mask::from_pixels(Size { width, height }, values).map_err(raise)
}
