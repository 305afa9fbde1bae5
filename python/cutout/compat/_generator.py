"""What Meta's two automatic mask generators share."""

from __future__ import annotations

import numpy as np

from .._inputs import pixels
from ._shared import OUTPUT_MODES, Model, record


class MaskGenerator:
    """Runs the native generator with Meta's options."""

    OPTIONS = (
        "points_per_side",
        "points_per_batch",
        "pred_iou_thresh",
        "stability_score_thresh",
        "stability_score_offset",
        "box_nms_thresh",
        "crop_n_layers",
        "crop_nms_thresh",
        "crop_overlap_ratio",
        "crop_n_points_downscale_factor",
        "point_grids",
        "min_mask_region_area",
        "use_m2m",
    )

    def __init__(self, model: Model, output_mode: str, options: dict) -> None:
        if (options["points_per_side"] is None) == (options["point_grids"] is None):
            raise AssertionError("Exactly one of points_per_side or point_grid must be provided.")
        if output_mode not in OUTPUT_MODES:
            raise AssertionError(f"Unknown output_mode {output_mode}.")
        self.model = model
        self.output_mode = output_mode
        for name, value in options.items():
            setattr(self, name, value)
        self._options = dict(options)

    def _generate(self, image) -> list[dict]:
        options = dict(self._options)
        if options["point_grids"] is None:
            del options["point_grids"]
        else:
            del options["points_per_side"]
            options["point_grids"] = [np.asarray(grid, np.float64).tolist() for grid in options["point_grids"]]
        masks = self.model.sam.everything(pixels(image), **options)
        return [record(mask, self.output_mode) for mask in masks]
