"""Objects of phrases and exemplars on a picture, as `sam3.model.sam3_image_processor.Sam3Processor` gives them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...._arrays import tensor
from ...._inputs import array, pixels
from ..._shared import Model

_PROMPTS = ("prompt", "boxes_asked", "labels_asked")
_RESULTS = ("masks", "masks_logits", "boxes", "scores")


class Sam3Processor:
    """A state holds a picture, its prompts and their results."""

    def __init__(self, model: Model, resolution=1008, device="cuda", confidence_threshold=0.5):
        if resolution != model.image_size:
            raise ValueError(f"this checkpoint reads pictures of {model.image_size} pixels, not {resolution}")
        self.model = model
        self.resolution = resolution
        self.device = device
        self.confidence_threshold = confidence_threshold

    def set_image(self, image, state=None) -> dict:
        """Embeds a picture: one of PIL, or bytes [3, height, width] or [height, width, 3]."""
        state = {} if state is None else state
        scene = self.model.sam.embed(_picture(image))
        self.reset_all_prompts(state)
        state["original_height"], state["original_width"] = scene.shape
        state["scene"] = scene
        return state

    def set_image_batch(self, images, state=None) -> dict:
        """Embeds several pictures of PIL, whose clicks `predict_inst_batch` of the model answers. As with Meta's processor,
        phrases are asked of one picture."""
        state = {} if state is None else state
        if not isinstance(images, list):
            raise ValueError("Images must be a list of PIL images or tensors")
        if not images:
            raise AssertionError("Images list must not be empty")
        if not all(hasattr(image, "convert") for image in images):
            raise AssertionError("Images must be a list of PIL images")
        scenes = self.model.sam.embed_all([pixels(image) for image in images])
        self.reset_all_prompts(state)
        state.pop("scene", None)
        state["original_heights"] = [scene.shape[0] for scene in scenes]
        state["original_widths"] = [scene.shape[1] for scene in scenes]
        state["scenes"] = scenes
        return state

    def set_text_prompt(self, prompt: str, state: dict) -> dict:
        """Finds all objects of a phrase."""
        self._check(state)
        state["prompt"] = prompt
        return self._find(state)

    def add_geometric_prompt(self, box: list, label: bool, state: dict) -> dict:
        """Adds an exemplar, wanted or not: centre, width and height as shares of the picture."""
        self._check(state)
        given = array(box).astype(np.float64).reshape(-1)
        if given.shape != (4,):
            raise ValueError(f"a box is centre x, centre y, width, height, not {given.shape[0]} numbers")
        state.setdefault("boxes_asked", []).append(given)
        state.setdefault("labels_asked", []).append(1 if label else 0)
        return self._find(state)

    def reset_all_prompts(self, state: dict) -> None:
        """Removes all prompts and results."""
        for key in _PROMPTS + _RESULTS:
            state.pop(key, None)

    def set_confidence_threshold(self, threshold: float, state=None):
        """The score above which objects are kept."""
        self.confidence_threshold = threshold
        return self._find(state) if state is not None and "boxes" in state else state

    @staticmethod
    def _check(state: dict) -> None:
        if "scenes" in state and "scene" not in state:
            raise ValueError("phrases are asked of one picture: call set_image for each")
        if "scene" not in state:
            raise ValueError("You must call set_image before set_text_prompt")

    def _find(self, state: dict) -> dict:
        height, width = state["original_height"], state["original_width"]
        scale = np.array([width, height, width, height], np.float64)
        corners = [_corners(box) * scale for box in state.get("boxes_asked", [])]
        options: dict[str, Any] = {"threshold": float(self.confidence_threshold)}
        if corners:
            options["boxes"] = [tuple(box.tolist()) for box in corners]
            options["box_labels"] = state["labels_asked"]
        (found,) = state["scene"].find(state.get("prompt"), **options)
        # Meta's order is that of the queries.
        masks = sorted(found, key=lambda mask: mask.query)
        logits = [mask.full_logits() for mask in masks]
        shape = (len(masks), 1, height, width)
        probabilities = 1.0 / (1.0 + np.exp(-np.array(logits, np.float32).reshape(shape)))
        state["masks_logits"] = tensor(probabilities)
        state["masks"] = tensor(probabilities > 0.5)
        state["boxes"] = tensor(np.array([mask.box for mask in masks], np.float32).reshape(-1, 4))
        state["scores"] = tensor(np.array([mask.score for mask in masks], np.float32))
        return state


def _picture(image) -> np.ndarray:
    if hasattr(image, "convert"):
        return pixels(image)
    found = array(image)
    if found.ndim == 3 and found.shape[0] == 3 and found.shape[2] != 3:
        found = found.transpose(1, 2, 0)
    return pixels(found)


def _corners(box: np.ndarray) -> np.ndarray:
    """Left, top, right, bottom of a box given by its centre, within 0 and 1."""
    x, y, width, height = box
    return np.clip(np.array([x - width / 2, y - height / 2, x + width / 2, y + height / 2]), 0.0, 1.0)
