//! Masks.

use cutout::imaging::{self, MaskDepth, Rle, Size};
use cutout::{AutoMask, Detection, ObjectId, PhraseObject, Rect, Segment};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::exceptions::{PyIndexError, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyString};

use crate::errors::{raise, wrong};
use crate::image::mask_of;

/// What the pixels of a mask are computed from.
enum Pixels {
    /// Low-resolution logits.
    Logits(Box<Segment>),
    /// Run lengths.
    Runs(Rle),
}

/// One mask at the size of its picture. Pixels are computed when they are asked for.
#[pyclass(frozen, module = "cutout")]
pub(crate) struct Mask {
    pixels: Pixels,
    /// IoU predicted by the model.
    #[pyo3(get)]
    predicted_iou: Option<f32>,
    /// Logit of the object being visible.
    #[pyo3(get)]
    object_score: Option<f32>,
    /// Number of a tracked object.
    #[pyo3(get)]
    id: Option<ObjectId>,
    /// Score of a found object, between 0 and 1.
    #[pyo3(get)]
    score: Option<f32>,
    /// Probability that an object of a phrase is visible on this frame.
    #[pyo3(get)]
    probability: Option<f32>,
    /// Probability that the picture has any such object.
    #[pyo3(get)]
    presence: Option<f32>,
    /// The phrase that found it.
    #[pyo3(get)]
    phrase: Option<String>,
    /// Box of a found object: left, top, right, bottom.
    #[pyo3(get)]
    r#box: Option<(f64, f64, f64, f64)>,
    /// Position of a found object among the model's queries.
    #[pyo3(get)]
    query: Option<usize>,
    /// Stability of an automatic mask.
    #[pyo3(get)]
    stability_score: Option<f32>,
    /// The point that an automatic mask was found by.
    #[pyo3(get)]
    point: Option<(f64, f64)>,
    /// The crop that an automatic mask was found in: left, top, width, height.
    #[pyo3(get)]
    crop_box: Option<[usize; 4]>,
}

impl Mask {
    fn new(pixels: Pixels) -> Self {
        Mask {
            pixels,
            predicted_iou: None,
            object_score: None,
            id: None,
            score: None,
            probability: None,
            presence: None,
            phrase: None,
            r#box: None,
            query: None,
            stability_score: None,
            point: None,
            crop_box: None,
        }
    }

    /// A mask of the decoder.
    pub(crate) fn of_segment(segment: &Segment) -> Self {
        Mask {
            predicted_iou: Some(segment.iou()),
            object_score: segment.object_score(),
            ..Mask::new(Pixels::Logits(Box::new(segment.clone())))
        }
    }

    /// A tracked object.
    pub(crate) fn of_object(id: ObjectId, segment: &Segment) -> Self {
        Mask { id: Some(id), ..Mask::of_segment(segment) }
    }

    /// A found object.
    pub(crate) fn of_detection(detection: &Detection) -> Self {
        let Rect { x0, y0, x1, y1 } = detection.rect();
        Mask {
            score: Some(detection.score()),
            presence: Some(detection.presence()),
            phrase: detection.phrase().map(str::to_owned),
            r#box: Some((x0, y0, x1, y1)),
            query: Some(detection.query()),
            ..Mask::new(Pixels::Logits(Box::new(detection.segment().clone())))
        }
    }

    /// An object of a phrase on a frame.
    pub(crate) fn of_phrase_object(object: &PhraseObject, phrase: Option<&str>) -> Self {
        Mask {
            id: Some(object.id),
            score: Some(object.score),
            probability: Some(object.probability),
            presence: object.presence,
            phrase: phrase.map(str::to_owned),
            object_score: object.object_score,
            predicted_iou: object.iou,
            ..Mask::new(Pixels::Runs(object.mask.clone()))
        }
    }

    /// An automatic mask.
    pub(crate) fn of_auto(mask: AutoMask) -> Self {
        Mask {
            predicted_iou: Some(mask.predicted_iou),
            stability_score: Some(mask.stability_score),
            point: Some((mask.point_coords.x, mask.point_coords.y)),
            crop_box: Some(mask.crop_box.xywh()),
            ..Mask::new(Pixels::Runs(mask.rle))
        }
    }

    fn runs(&self) -> PyResult<Rle> {
        match &self.pixels {
            Pixels::Logits(segment) => segment.rle().map_err(raise),
            Pixels::Runs(rle) => Ok(rle.clone()),
        }
    }

    fn mask(&self) -> PyResult<imaging::Mask> {
        match &self.pixels {
            Pixels::Logits(segment) => segment.mask().map_err(raise),
            Pixels::Runs(rle) => rle.to_mask().map_err(raise),
        }
    }

    fn size(&self) -> Size {
        match &self.pixels {
            Pixels::Logits(segment) => segment.size(),
            Pixels::Runs(rle) => rle.size(),
        }
    }

    /// Outlines that leave the pixels' border by at most `tolerance` pixels.
    fn outlines(&self, tolerance: f64) -> PyResult<Vec<imaging::Polygon>> {
        if !(tolerance >= 0.0 && tolerance.is_finite()) {
            return Err(wrong(format!("simplify is a number of pixels, not {tolerance}")));
        }
        let polygons = imaging::polygons(&self.mask()?);
        let polygons = polygons.map_err(|error| PyMemoryError::new_err(error.to_string()))?;
        Ok(imaging::simplify(&polygons, tolerance))
    }

    fn segment(&self) -> PyResult<&Segment> {
        match &self.pixels {
            Pixels::Logits(segment) => Ok(segment),
            Pixels::Runs(_) => Err(wrong("this mask was kept as run lengths: it has no logits")),
        }
    }
}

#[pymethods]
impl Mask {
    /// Height and width.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        let Size { width, height } = self.size();
        (height, width)
    }

    /// Pixels set.
    #[getter]
    fn area(&self, py: Python<'_>) -> PyResult<usize> {
        py.detach(|| Ok(self.runs()?.area()))
    }

    /// Left, top, width and height of the box that `pycocotools` computes.
    #[getter]
    fn bbox(&self, py: Python<'_>) -> PyResult<[f64; 4]> {
        py.detach(|| Ok(self.runs()?.coco_box()))
    }

    /// The box as Meta's generators write it: left, top, and the differences of the first and the last pixel.
    #[getter]
    fn inclusive_box(&self, py: Python<'_>) -> PyResult<[usize; 4]> {
        let bounds = py.detach(|| Ok::<_, PyErr>(self.runs()?.bounds()))?;
        let around = |b: imaging::Bounds| [b.left, b.top, b.right - b.left, b.bottom - b.top];
        Ok(bounds.map_or([0; 4], around))
    }

    /// The pixels, `bool[height, width]`.
    fn array<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<bool>>> {
        let mask = py.detach(|| self.mask())?;
        let Size { width, height } = mask.size();
        let pixels = py.detach(|| mask.pixels().to_vec());
        pixels.into_pyarray(py).reshape([height, width])
    }

    /// The pixels for `numpy.asarray`.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            return Err(wrong("pixels of a mask are computed: they cannot be shared"));
        }
        let array = self.array(py)?.into_any();
        match dtype {
            Some(dtype) => array.call_method1("astype", (dtype,)),
            None => Ok(array),
        }
    }

    /// Low-resolution logits `float32[side, side]`, which a prompt takes to refine the mask.
    #[getter]
    fn logits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let logits = self.segment()?.logits();
        let shape = [logits.shape()[0], logits.shape()[1]];
        logits.to_vec::<f32>().map_err(raise)?.into_pyarray(py).reshape(shape)
    }

    /// Logits at the size of the picture, `float32[height, width]`.
    fn full_logits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let segment = self.segment()?;
        let Size { width, height } = segment.size();
        let values = py.detach(|| {
            let mut values = Vec::new();
            let reserved = values.try_reserve_exact(width * height);
            reserved.map_err(|_| PyMemoryError::new_err("no memory for logits"))?;
            segment.for_each_row(|_, row| values.extend_from_slice(row)).map_err(raise)?;
            Ok::<Vec<f32>, PyErr>(values)
        })?;
        values.into_pyarray(py).reshape([height, width])
    }

    /// Run lengths as `pycocotools` has them: `{"size": [height, width], "counts": str}`.
    fn rle<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let rle = py.detach(|| self.runs())?;
        coco_dict(py, &rle, PyString::new(py, &rle.to_coco_string()).into_any())
    }

    /// Run lengths as a list: `{"size": [height, width], "counts": [unset, set, unset, …]}`.
    fn uncompressed_rle<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let rle = py.detach(|| self.runs())?;
        coco_dict(py, &rle, PyList::new(py, rle.counts())?.into_any())
    }

    /// Outlines: a list of polygons, each a list of rings `float64[points, 2]`, the outer ring first. `simplify` is how far, in
    /// pixels, an outline may leave the pixels' border.
    #[pyo3(signature = (simplify=0.0))]
    fn polygons<'py>(
        &self,
        py: Python<'py>,
        simplify: f64,
    ) -> PyResult<Vec<Vec<Bound<'py, PyArray2<f64>>>>> {
        let polygons = py.detach(|| self.outlines(simplify))?;
        let ring = |points: &Vec<imaging::Point>| {
            let places: Vec<f64> = points.iter().flatten().copied().collect();
            places.into_pyarray(py).reshape([points.len(), 2])
        };
        polygons.iter().map(|polygon| polygon.rings().map(ring).collect()).collect()
    }

    /// The outlines as a `MultiPolygon` in well-known binary, which Shapely, PostGIS and GeoParquet read.
    #[pyo3(signature = (simplify=0.0))]
    fn wkb<'py>(&self, py: Python<'py>, simplify: f64) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| Ok::<_, PyErr>(imaging::to_wkb(&self.outlines(simplify)?)))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The mask as a PNG file: white on black.
    fn png<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes =
            py.detach(|| imaging::encode_mask(&self.mask()?, MaskDepth::Byte).map_err(raise))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The picture that a notebook shows.
    fn _repr_png_<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.png(py)
    }

    fn __repr__(&self) -> String {
        let Size { width, height } = self.size();
        let mut text = format!("<cutout.Mask {width}x{height}");
        for (name, value) in [("score", self.score), ("predicted_iou", self.predicted_iou)] {
            if let Some(value) = value {
                text.push_str(&format!(" {name}={value:.3}"));
            }
        }
        text + ">"
    }
}

fn coco_dict<'py>(
    py: Python<'py>,
    rle: &Rle,
    counts: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let Size { width, height } = rle.size();
    let dict = PyDict::new(py);
    dict.set_item("size", [height, width])?;
    dict.set_item("counts", counts)?;
    Ok(dict)
}

/// The masks of one prompt, in the model's order.
#[pyclass(frozen, sequence, module = "cutout")]
pub(crate) struct Masks {
    masks: Vec<Py<Mask>>,
    best: usize,
}

impl Masks {
    pub(crate) fn of(py: Python<'_>, masks: &cutout::Masks) -> PyResult<Self> {
        let best = masks.best_index();
        let masks = masks.iter().map(|segment| Py::new(py, Mask::of_segment(segment)));
        Ok(Masks { masks: masks.collect::<PyResult<_>>()?, best })
    }
}

#[pymethods]
impl Masks {
    /// The mask with the highest predicted IoU.
    #[getter]
    fn best(&self, py: Python<'_>) -> Py<Mask> {
        self.masks[self.best].clone_ref(py)
    }

    /// Its position.
    #[getter]
    fn best_index(&self) -> usize {
        self.best
    }

    fn __len__(&self) -> usize {
        self.masks.len()
    }

    fn __getitem__(&self, py: Python<'_>, index: isize) -> PyResult<Py<Mask>> {
        let place = if index < 0 { index + self.masks.len() as isize } else { index };
        let mask = usize::try_from(place).ok().and_then(|place| self.masks.get(place));
        mask.map(|mask| mask.clone_ref(py))
            .ok_or_else(|| PyIndexError::new_err(format!("mask {index} of {}", self.masks.len())))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, &self.masks)?.try_iter()
    }

    /// The best mask, for notebooks.
    fn _repr_png_<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.masks[self.best].get().png(py)
    }
}

/// The pixels `bool[height, width]` of run lengths as `pycocotools` has them.
#[pyfunction]
pub(crate) fn rle_to_mask<'py>(rle: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<bool>>> {
    let py = rle.py();
    let [height, width]: [usize; 2] = rle.get_item("size")?.extract()?;
    let (size, counts) = (Size { width, height }, rle.get_item("counts")?);
    let text = match counts.cast::<PyBytes>() {
        Ok(bytes) => Some(String::from_utf8_lossy(bytes.as_bytes()).into_owned()),
        Err(_) => counts.extract::<String>().ok(),
    };
    let rle = match text {
        Some(text) => Rle::from_coco_string(size, &text),
        None => Rle::from_counts(size, counts.extract()?),
    };
    let mask = rle.map_err(raise)?.to_mask().map_err(raise)?;
    let pixels: Vec<bool> = mask.pixels().to_vec();
    let flat: Bound<'py, PyArray1<bool>> = pixels.into_pyarray(py);
    flat.reshape([height, width])
}

/// The run lengths of `bool[height, width]` as `pycocotools` has them.
#[pyfunction]
pub(crate) fn mask_to_rle<'py>(mask: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let rle = mask_of(mask)?.to_rle().map_err(raise)?;
    let py = mask.py();
    coco_dict(py, &rle, PyString::new(py, &rle.to_coco_string()).into_any())
}
