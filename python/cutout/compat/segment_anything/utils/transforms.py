"""The frame that `predict_torch` takes coordinates in."""

from __future__ import annotations

from copy import deepcopy

import numpy as np


class ResizeLongestSide:
    """Pictures and coordinates scaled so that the longer side has `target_length` pixels."""

    def __init__(self, target_length: int) -> None:
        self.target_length = target_length

    @staticmethod
    def get_preprocess_shape(oldh: int, oldw: int, long_side_length: int) -> tuple[int, int]:
        """Height and width after scaling."""
        scale = long_side_length / max(oldh, oldw)
        return int(oldh * scale + 0.5), int(oldw * scale + 0.5)

    def _scale(self, original_size) -> tuple[float, float]:
        height, width = original_size
        new_height, new_width = self.get_preprocess_shape(height, width, self.target_length)
        return new_width / width, new_height / height

    def apply_image(self, image: np.ndarray) -> np.ndarray:
        """The scaled picture, uint8 [height, width, 3]. Needs Pillow, whose resize Meta's code uses too."""
        from PIL import Image

        height, width = self.get_preprocess_shape(image.shape[0], image.shape[1], self.target_length)
        return np.array(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))

    def apply_coords(self, coords: np.ndarray, original_size) -> np.ndarray:
        """Coordinates [..., 2] of the picture in the scaled frame."""
        coords = deepcopy(coords).astype(float)
        coords[..., 0], coords[..., 1] = (coords[..., i] * scale for i, scale in enumerate(self._scale(original_size)))
        return coords

    def apply_boxes(self, boxes: np.ndarray, original_size) -> np.ndarray:
        """Boxes [N, 4] of the picture in the scaled frame."""
        return self.apply_coords(boxes.reshape(-1, 2, 2), original_size).reshape(-1, 4)

    def apply_coords_torch(self, coords, original_size):
        """`apply_coords` for tensors."""
        coords = deepcopy(coords).float()
        across, down = self._scale(original_size)
        coords[..., 0] = coords[..., 0] * across
        coords[..., 1] = coords[..., 1] * down
        return coords

    def apply_boxes_torch(self, boxes, original_size):
        """`apply_boxes` for tensors."""
        return self.apply_coords_torch(boxes.reshape(-1, 2, 2), original_size).reshape(-1, 4)
