//! Prompts.

use cutout::{Candidates, Label, Point, Rect, Tensor};
use numpy::{PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::errors::{raise, wrong};

/// Points, a box and the logits of an earlier mask, in pixels of the picture.
#[pyclass(frozen, module = "cutout")]
pub(crate) struct Prompt {
    pub(crate) inner: cutout::Prompt,
}

/// A label of Meta's code.
fn label(number: i64) -> PyResult<Label> {
    match number {
        1 => Ok(Label::Positive),
        0 => Ok(Label::Negative),
        other => Err(wrong(format!("a label is 1 (on the object) or 0 (not), not {other}"))),
    }
}

#[pymethods]
impl Prompt {
    /// `points` are (x, y), `labels` 1 or 0 (all 1 if absent), `box` is (left, top, right, bottom), `logits` is
    /// `float32[side, side]`, `candidates` 1 or 3.
    #[new]
    #[pyo3(signature = (points=Vec::new(), labels=None, r#box=None, logits=None, candidates=None))]
    fn new(
        points: Vec<(f64, f64)>,
        labels: Option<Vec<i64>>,
        r#box: Option<(f64, f64, f64, f64)>,
        logits: Option<PyReadonlyArray2<'_, f32>>,
        candidates: Option<usize>,
    ) -> PyResult<Self> {
        let labels = labels.unwrap_or_else(|| vec![1; points.len()]);
        if labels.len() != points.len() {
            let (points, labels) = (points.len(), labels.len());
            return Err(wrong(format!("{points} points have {labels} labels")));
        }
        let mut inner = cutout::Prompt::default();
        for (&(x, y), number) in points.iter().zip(labels) {
            inner = inner.with_point(Point { x, y }, label(number)?);
        }
        if let Some((x0, y0, x1, y1)) = r#box {
            inner = inner.with_rect(Rect { x0, y0, x1, y1 });
        }
        if let Some(logits) = logits {
            inner = inner.with_logits(low_logits(&logits)?);
        }
        let clear = points.len() != 1;
        inner = inner.candidates(match candidates {
            Some(1) => Candidates::One,
            Some(3) => Candidates::Three,
            None if clear => Candidates::One,
            None => Candidates::Three,
            Some(other) => return Err(wrong(format!("candidates is 1 or 3, not {other}"))),
        });
        Ok(Prompt { inner })
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.inner)
    }
}

/// Low-resolution logits.
fn low_logits(logits: &PyReadonlyArray2<'_, f32>) -> PyResult<Tensor> {
    let shape = logits.shape().to_vec();
    let values: Vec<f32> = logits.as_array().iter().copied().collect();
    Tensor::from_vec(shape, values).map_err(raise)
}
