"""Every mask of a picture, as `sam2.automatic_mask_generator.SAM2AutomaticMaskGenerator` gives them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._generator import MaskGenerator
from .._shared import Model
from .sam2_image_predictor import SAM2ImagePredictor


class SAM2AutomaticMaskGenerator(MaskGenerator):
    """Options are those of Meta's generator, with its defaults."""

    def __init__(
        self,
        model: Model,
        points_per_side: int | None = 32,
        points_per_batch: int = 64,
        pred_iou_thresh: float = 0.8,
        stability_score_thresh: float = 0.95,
        stability_score_offset: float = 1.0,
        mask_threshold: float = 0.0,
        box_nms_thresh: float = 0.7,
        crop_n_layers: int = 0,
        crop_nms_thresh: float = 0.7,
        crop_overlap_ratio: float = 512 / 1500,
        crop_n_points_downscale_factor: int = 1,
        point_grids: list[np.ndarray] | None = None,
        min_mask_region_area: int = 0,
        output_mode: str = "binary_mask",
        use_m2m: bool = False,
        multimask_output: bool = True,
        **kwargs,
    ) -> None:
        options = {name: value for name, value in locals().items() if name in self.OPTIONS}
        if mask_threshold != 0.0:
            raise NotImplementedError("automatic masks are cut at 0; another mask_threshold is not built in")
        if not multimask_output:
            raise NotImplementedError("automatic masks take three masks of each point; multimask_output=False is not built in")
        self.predictor = SAM2ImagePredictor(model)
        super().__init__(model, output_mode, options)

    @classmethod
    def from_pretrained(cls, model_id: str, **kwargs) -> "SAM2AutomaticMaskGenerator":
        """The generator of a checkpoint that `cutout pull` or Hugging Face's tools have fetched."""
        from .build_sam import build_sam2_hf

        return cls(build_sam2_hf(model_id, **kwargs), **kwargs)

    def generate(self, image: np.ndarray) -> list[dict[str, Any]]:
        """The masks of a picture, uint8 [height, width, 3]."""
        return self._generate(image)
