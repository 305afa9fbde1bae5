"""Masks of prompts on one picture, as `segment_anything.SamPredictor` gives them."""

from __future__ import annotations

import numpy as np

from ..._arrays import tensor
from ..._inputs import array
from .._shared import Model, prompt, prompts, rgb, stacked
from .utils.transforms import ResizeLongestSide


class SamPredictor:
    """A picture is set once; prompts are then answered as often as needed."""

    def __init__(self, sam_model: Model) -> None:
        self.model = sam_model
        self.transform = ResizeLongestSide(sam_model.image_size)
        self.reset_image()

    def set_image(self, image: np.ndarray, image_format: str = "RGB") -> None:
        """Embeds a picture, uint8 [height, width, 3]."""
        if image_format not in ("RGB", "BGR"):
            raise AssertionError(f"image_format must be in ['RGB', 'BGR'], is {image_format}.")
        found = rgb(image, image_format)
        self.reset_image()
        self._remember(self.model.sam.embed(found), found.shape[:2])

    def set_torch_image(self, transformed_image, original_image_size) -> None:
        """Embeds a picture [1, 3, height, width] that `transform` has scaled; its values are those of bytes."""
        found = array(transformed_image)
        side = self.model.image_size
        if found.ndim != 4 or found.shape[:2] != (1, 3) or max(found.shape[2:]) != side:
            raise AssertionError(f"set_torch_image input must be BCHW with long side {side}.")
        as_bytes = found.astype(np.uint8)
        if not np.array_equal(as_bytes, found):
            raise ValueError("values of the picture must be whole numbers from 0 to 255")
        self.reset_image()
        height, width = (int(length) for length in original_image_size)
        size = (height, width)
        picture = np.ascontiguousarray(as_bytes[0].transpose(1, 2, 0))
        self._remember(self.model.sam.embed_resized(picture, size), size)

    def _remember(self, scene, original_size) -> None:
        self._scene = scene
        height, width = original_size
        self.original_size: tuple[int, int] | None = (height, width)
        self.input_size: tuple[int, int] | None = self.transform.get_preprocess_shape(height, width, self.model.image_size)
        self.is_image_set = True

    def predict(
        self,
        point_coords: np.ndarray | None = None,
        point_labels: np.ndarray | None = None,
        box: np.ndarray | None = None,
        mask_input: np.ndarray | None = None,
        multimask_output: bool = True,
        return_logits: bool = False,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Masks bool [C, height, width] (float32 with `return_logits`), predicted IoU [C] and low-resolution logits of a prompt in
        pixels of the picture."""
        scene = self._embedded("before mask prediction")
        if point_coords is not None and point_labels is None:
            raise AssertionError("point_labels must be supplied if point_coords is supplied.")
        asked = prompt(point_coords, point_labels, box, mask_input, multimask_output)
        masks, scores, low = stacked([scene.segment(asked)], return_logits)
        return masks[0], scores[0], low[0]

    def predict_torch(
        self,
        point_coords,
        point_labels,
        boxes=None,
        mask_input=None,
        multimask_output: bool = True,
        return_logits: bool = False,
    ):
        """As `predict` for B prompts in the scaled frame: points [B, N, 2], boxes [B, 4], masks [B, 1, side, side]."""
        scene = self._embedded("before mask prediction")
        scale = np.array(self.transform._scale(self.original_size))
        if point_coords is not None:
            point_coords = array(point_coords).astype(np.float64) / scale
        if boxes is not None:
            boxes = array(boxes).astype(np.float64).reshape(-1, 4) / np.tile(scale, 2)
        asked = prompts(point_coords, point_labels, boxes, mask_input, multimask_output)
        return tuple(tensor(part) for part in stacked(scene.segment_all(asked), return_logits))

    def get_image_embedding(self):
        """The embedding of the picture, [1, C, rows, columns]."""
        return tensor(self._embedded("to generate an embedding").image_embedding())

    @property
    def features(self):
        """The embedding, or None."""
        return self.get_image_embedding() if self.is_image_set else None

    @property
    def device(self) -> str:
        return self.model.device

    def reset_image(self) -> None:
        """Forgets the picture."""
        self.is_image_set = False
        self._scene = None
        self.original_size = None
        self.input_size = None

    def _embedded(self, purpose: str):
        if self._scene is None:
            raise RuntimeError(f"An image must be set with .set_image(...) {purpose}.")
        return self._scene
