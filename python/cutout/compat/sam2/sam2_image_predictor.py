"""Masks of prompts on one picture or on several, as `sam2.sam2_image_predictor.SAM2ImagePredictor` gives them."""

from __future__ import annotations

import numpy as np

from ..._arrays import tensor
from ..._inputs import array, pixels
from .._shared import Model, prompts, stacked


class SAM2ImagePredictor:
    """Pictures are set once; prompts are then answered as often as needed."""

    def __init__(
        self,
        sam_model: Model,
        mask_threshold=0.0,
        max_hole_area=0.0,
        max_sprinkle_area=0.0,
        **kwargs,
    ) -> None:
        if max_hole_area or max_sprinkle_area:
            raise NotImplementedError("max_hole_area and max_sprinkle_area are not built in: Meta's code needs a GPU for them")
        self.model = sam_model
        self.mask_threshold = mask_threshold
        self.reset_predictor()

    @classmethod
    def from_pretrained(cls, model_id: str, **kwargs) -> "SAM2ImagePredictor":
        """The predictor of a checkpoint that `cutout pull` or Hugging Face's tools have fetched."""
        from .build_sam import build_sam2_hf

        return cls(build_sam2_hf(model_id, **kwargs), **kwargs)

    def set_image(self, image) -> None:
        """Embeds a picture: uint8 [height, width, 3], or one of PIL."""
        self.reset_predictor()
        if not (hasattr(image, "convert") or hasattr(image, "__array__") or hasattr(image, "__dlpack__")):
            raise NotImplementedError("Image format not supported")
        self.hold([self.model.sam.embed(pixels(image))])

    def set_image_batch(self, image_list) -> None:
        """Embeds several pictures for `predict_batch`."""
        self.reset_predictor()
        if not isinstance(image_list, list):
            raise AssertionError("image_list must be a list of pictures")
        self.hold(self.model.sam.embed_all([pixels(image) for image in image_list]), is_batch=True)

    def hold(self, scenes: list, is_batch: bool = False) -> None:
        """Takes pictures that are embedded already."""
        self._scenes, self._is_batch = scenes, is_batch

    def predict_batch(
        self,
        point_coords_batch=None,
        point_labels_batch=None,
        box_batch=None,
        mask_input_batch=None,
        multimask_output: bool = True,
        return_logits: bool = False,
        normalize_coords=True,
    ) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        """`predict` for each picture, its prompts at the same place of the lists."""
        if not self._is_batch:
            raise AssertionError("This function should only be used when in batched mode")

        def of(batch, index):
            return None if batch is None else batch[index]

        answers = []
        for index, scene in enumerate(self._scenes):
            coords, labels = of(point_coords_batch, index), of(point_labels_batch, index)
            box, mask = of(box_batch, index), of(mask_input_batch, index)
            answers.append(
                self._answer(scene, coords, labels, box, mask, multimask_output, return_logits, normalize_coords)
            )
        masks, scores, low = zip(*answers)
        return list(masks), list(scores), list(low)

    def predict(
        self,
        point_coords: np.ndarray | None = None,
        point_labels: np.ndarray | None = None,
        box: np.ndarray | None = None,
        mask_input: np.ndarray | None = None,
        multimask_output: bool = True,
        return_logits: bool = False,
        normalize_coords=True,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Masks float32 of 0 and 1 [C, height, width], predicted IoU [C] and low-resolution logits. Several boxes, or points
        [B, N, 2], give answers with a first axis B. Coordinates are pixels of the picture, without `normalize_coords` shares of it."""
        scene = self._embedded("before mask prediction")
        return self._answer(
            scene, point_coords, point_labels, box, mask_input, multimask_output, return_logits, normalize_coords
        )

    def _answer(self, scene, coords, labels, box, mask, multimask, logits, normalized):
        if coords is not None and labels is None:
            raise AssertionError("point_labels must be supplied if point_coords is supplied.")
        height, width = scene.shape
        unit = np.array([1.0, 1.0] if normalized else [width, height])
        if coords is not None:
            # Meta's code reads coordinates in single precision.
            coords, labels = array(coords).astype(np.float32) * unit, array(labels)
            if coords.ndim == 2:
                coords, labels = coords[None], labels[None]
        if box is not None:
            box = array(box).astype(np.float32).reshape(-1, 4) * np.tile(unit, 2)
        if mask is not None:
            mask = array(mask)
            mask = mask[None] if mask.ndim == 3 else mask
        asked = prompts(coords, labels, box, mask, multimask)
        if not asked:
            raise ValueError("the prompt has no point, no box and no mask")
        masks, scores, low = stacked(scene.segment_all(asked), logits, self.mask_threshold)
        masks = masks.astype(np.float32)
        return (masks[0], scores[0], low[0]) if len(asked) == 1 else (masks, scores, low)

    def get_image_embedding(self):
        """The embedding of the picture, [1, C, rows, columns]."""
        return tensor(self._embedded("to generate an embedding").image_embedding())

    @property
    def _orig_hw(self):
        return [scene.shape for scene in self._scenes] or None

    @property
    def _is_image_set(self) -> bool:
        return bool(self._scenes)

    @property
    def device(self) -> str:
        return self.model.device

    def reset_predictor(self) -> None:
        """Forgets the pictures."""
        self.hold([])

    def _embedded(self, purpose: str):
        if not self._scenes:
            raise RuntimeError(f"An image must be set with .set_image(...) {purpose}.")
        return self._scenes[-1]
