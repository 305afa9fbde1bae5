"""The interface of Meta's `sam3` for pictures: same module names, arguments, types and shapes."""

from .model_builder import build_sam3_image_model

__all__ = ["build_sam3_image_model"]
