"""Every mask of a picture, as `segment_anything.SamAutomaticMaskGenerator` gives them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._generator import MaskGenerator
from .._shared import Model
from .predictor import SamPredictor


class SamAutomaticMaskGenerator(MaskGenerator):
    """Options are those of Meta's generator, with its defaults."""

    def __init__(
        self,
        model: Model,
        points_per_side: int | None = 32,
        points_per_batch: int = 64,
        pred_iou_thresh: float = 0.88,
        stability_score_thresh: float = 0.95,
        stability_score_offset: float = 1.0,
        box_nms_thresh: float = 0.7,
        crop_n_layers: int = 0,
        crop_nms_thresh: float = 0.7,
        crop_overlap_ratio: float = 512 / 1500,
        crop_n_points_downscale_factor: int = 1,
        point_grids: list[np.ndarray] | None = None,
        min_mask_region_area: int = 0,
        output_mode: str = "binary_mask",
    ) -> None:
        options = {name: value for name, value in locals().items() if name in self.OPTIONS}
        self.predictor = SamPredictor(model)
        super().__init__(model, output_mode, options)

    def generate(self, image: np.ndarray) -> list[dict[str, Any]]:
        """The masks of a picture, uint8 [height, width, 3]."""
        return self._generate(image)
