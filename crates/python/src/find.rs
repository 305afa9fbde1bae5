//! Phrases and exemplars.

use cutout::{Find, Label, Point, Rect};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList};

use crate::errors::wrong;
use crate::mask::Mask;

/// A label of an exemplar.
fn label(number: i64) -> Label {
    if number > 0 { Label::Positive } else { Label::Negative }
}

/// Labels for `count` exemplars: those given, else all positive.
fn labels(given: Option<Vec<i64>>, count: usize, what: &str) -> PyResult<Vec<Label>> {
    let given = given.unwrap_or_else(|| vec![1; count]);
    if given.len() != count {
        return Err(wrong(format!("{count} {what} have {} labels", given.len())));
    }
    Ok(given.into_iter().map(label).collect())
}

/// Options of a query, by name.
#[derive(Default)]
struct Options {
    boxes: Vec<(f64, f64, f64, f64)>,
    box_labels: Option<Vec<i64>>,
    points: Vec<(f64, f64)>,
    point_labels: Option<Vec<i64>>,
    threshold: Option<f32>,
    overlap: Option<f32>,
}

impl Options {
    fn read(given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut options = Options::default();
        for (name, value) in given.into_iter().flatten() {
            let name: String = name.extract()?;
            match name.as_str() {
                "boxes" => options.boxes = value.extract()?,
                "box_labels" => options.box_labels = value.extract()?,
                "points" => options.points = value.extract()?,
                "point_labels" => options.point_labels = value.extract()?,
                "threshold" => options.threshold = value.extract()?,
                "overlap" => options.overlap = value.extract()?,
                other => return Err(wrong(format!("find has no option {other:?}"))),
            }
        }
        Ok(options)
    }
}

/// Phrases: one, a list of them, or none.
pub(crate) fn phrases_of(given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<String>> {
    let Some(given) = given else { return Ok(Vec::new()) };
    let one = given.extract::<String>().map(|phrase| vec![phrase]);
    one.or_else(|_| given.extract::<Vec<String>>())
}

/// Boxes and points without a phrase.
pub(crate) fn exemplars(options: Option<&Bound<'_, PyDict>>) -> PyResult<Find> {
    for name in ["threshold", "overlap"] {
        if options.is_some_and(|options| options.contains(name).unwrap_or(false)) {
            return Err(wrong(format!(
                "exemplars have no option {name:?}: it is one of the tracker"
            )));
        }
    }
    query(None, options)
}

/// The query of phrases (one or a list) and options.
pub(crate) fn query(
    phrases: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Find> {
    let options = Options::read(options)?;
    let mut find = Find::default();
    for phrase in phrases_of(phrases)? {
        find = find.and(phrase);
    }
    let box_labels = labels(options.box_labels, options.boxes.len(), "boxes")?;
    for (&(x0, y0, x1, y1), label) in options.boxes.iter().zip(box_labels) {
        find = find.with_rect(Rect { x0, y0, x1, y1 }, label);
    }
    let point_labels = labels(options.point_labels, options.points.len(), "points")?;
    for (&(x, y), label) in options.points.iter().zip(point_labels) {
        find = find.with_point(Point { x, y }, label);
    }
    if let Some(threshold) = options.threshold {
        find = find.threshold(threshold);
    }
    if let Some(overlap) = options.overlap {
        find = find.without_overlap(overlap);
    }
    Ok(find)
}

/// The objects of one phrase, the best first.
#[pyclass(frozen, sequence, module = "cutout")]
pub(crate) struct Detections {
    masks: Vec<Py<Mask>>,
    /// The phrase; `None` for exemplars without one.
    #[pyo3(get)]
    phrase: Option<String>,
    /// Probability that the picture has any such object.
    #[pyo3(get)]
    presence: f32,
    /// The highest score of all queries, whether or not it was high enough.
    #[pyo3(get)]
    best_score: f32,
}

impl Detections {
    pub(crate) fn of(py: Python<'_>, detections: &cutout::Detections) -> PyResult<Self> {
        let masks = detections.iter().map(|detection| Py::new(py, Mask::of_detection(detection)));
        Ok(Detections {
            masks: masks.collect::<PyResult<_>>()?,
            phrase: detections.phrase().map(str::to_owned),
            presence: detections.presence(),
            best_score: detections.best_score(),
        })
    }
}

#[pymethods]
impl Detections {
    fn __len__(&self) -> usize {
        self.masks.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, &self.masks)?.try_iter()
    }

    fn __getitem__(&self, py: Python<'_>, index: isize) -> PyResult<Py<Mask>> {
        let place = if index < 0 { index + self.masks.len() as isize } else { index };
        let mask = usize::try_from(place).ok().and_then(|place| self.masks.get(place));
        let missing = || PyIndexError::new_err(format!("object {index} of {}", self.masks.len()));
        mask.map(|mask| mask.clone_ref(py)).ok_or_else(missing)
    }
}
