"""The interface of Meta's `sam3`: same module names, arguments, types and shapes."""

from .model_builder import build_sam3_image_model, build_sam3_predictor

__all__ = ["build_sam3_image_model", "build_sam3_predictor"]
