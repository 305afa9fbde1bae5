"""The interface of Meta's `segment_anything`: same names, arguments, types and shapes."""

from .automatic_mask_generator import SamAutomaticMaskGenerator
from .build_sam import build_sam, build_sam_vit_b, build_sam_vit_h, build_sam_vit_l, sam_model_registry
from .predictor import SamPredictor

__all__ = [
    "SamAutomaticMaskGenerator",
    "SamPredictor",
    "build_sam",
    "build_sam_vit_b",
    "build_sam_vit_h",
    "build_sam_vit_l",
    "sam_model_registry",
]
