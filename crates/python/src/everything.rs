//! Automatic masks: options by Meta's names, and progress.

use std::ops::ControlFlow;

use cutout::{Everything, EverythingError, Progress};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{raise, wrong};
use crate::mask::Mask;

/// The options of a model, changed by keyword arguments.
pub(crate) fn options(
    mut options: Everything,
    changes: Option<&Bound<'_, PyDict>>,
) -> PyResult<Everything> {
    for (name, value) in changes.into_iter().flatten() {
        let name: String = name.extract()?;
        match name.as_str() {
            "points_per_side" => options.points_per_side = value.extract()?,
            "points_per_batch" => options.points_per_batch = value.extract()?,
            "pred_iou_thresh" => options.pred_iou_thresh = value.extract()?,
            "stability_score_thresh" => options.stability_score_thresh = value.extract()?,
            "stability_score_offset" => options.stability_score_offset = value.extract()?,
            "box_nms_thresh" => options.box_nms_thresh = value.extract()?,
            "crop_n_layers" => options.crop_n_layers = value.extract()?,
            "crop_nms_thresh" => options.crop_nms_thresh = value.extract()?,
            "crop_overlap_ratio" => options.crop_overlap_ratio = value.extract()?,
            "crop_n_points_downscale_factor" => {
                options.crop_n_points_downscale_factor = value.extract()?;
            }
            "point_grids" => options.point_grids = value.extract()?,
            "min_mask_region_area" => options.min_mask_region_area = value.extract()?,
            "use_m2m" => options.use_m2m = value.extract()?,
            other => return Err(wrong(format!("automatic masks have no option {other:?}"))),
        }
    }
    Ok(options)
}

/// The options as a dictionary.
pub(crate) fn as_dict<'py>(py: Python<'py>, options: &Everything) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("points_per_side", options.points_per_side)?;
    dict.set_item("points_per_batch", options.points_per_batch)?;
    dict.set_item("pred_iou_thresh", options.pred_iou_thresh)?;
    dict.set_item("stability_score_thresh", options.stability_score_thresh)?;
    dict.set_item("stability_score_offset", options.stability_score_offset)?;
    dict.set_item("box_nms_thresh", options.box_nms_thresh)?;
    dict.set_item("crop_n_layers", options.crop_n_layers)?;
    dict.set_item("crop_nms_thresh", options.crop_nms_thresh)?;
    dict.set_item("crop_overlap_ratio", options.crop_overlap_ratio)?;
    dict.set_item("crop_n_points_downscale_factor", options.crop_n_points_downscale_factor)?;
    dict.set_item("point_grids", options.point_grids.clone())?;
    dict.set_item("min_mask_region_area", options.min_mask_region_area)?;
    dict.set_item("use_m2m", options.use_m2m)?;
    Ok(dict)
}

/// Runs the generator without the interpreter's lock. `report` is called with (points done, points); Ctrl-C and an
/// exception of `report` stop the work.
pub(crate) fn run(
    py: Python<'_>,
    report: Option<Py<PyAny>>,
    generate: impl FnOnce(
        &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Vec<cutout::AutoMask>, EverythingError>
    + Send,
) -> PyResult<Vec<Mask>> {
    let mut stopped: Option<PyErr> = None;
    let answer = py.detach(|| {
        generate(&mut |progress| {
            let asked = Python::attach(|py| {
                py.check_signals()?;
                let Some(report) = &report else { return Ok(()) };
                report.call1(py, (progress.points_done, progress.points)).map(drop)
            });
            match asked {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    stopped = Some(error);
                    ControlFlow::Break(())
                }
            }
        })
    });
    match (stopped, answer) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(raise(error)),
        (None, Ok(masks)) => Ok(masks.into_iter().map(Mask::of_auto).collect()),
    }
}
