"""What the interfaces of all families share: models, prompts as arrays, answers as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import Prompt, Sam
from .._inputs import array, pixels


class Model:
    """A model as Meta's programs hold it. Moving it does nothing: it runs on the device it was opened for."""

    mask_threshold = 0.0
    image_format = "RGB"

    def __init__(self, sam: Sam):
        self.sam = sam

    @property
    def device(self) -> str:
        return "cuda" if "cuda" in self.sam.device.lower() or "nvidia" in self.sam.device.lower() else "cpu"

    @property
    def image_size(self) -> int:
        return self.sam.input_side

    def to(self, *_args, **_kwargs) -> "Model":
        return self

    def cuda(self, *_args, **_kwargs) -> "Model":
        return self

    def cpu(self) -> "Model":
        return self

    def eval(self) -> "Model":
        return self

    def __repr__(self) -> str:
        return f"<cutout model: {self.sam.description}>"


def native_device(device) -> str | None:
    """The device of a `device=` argument as Meta's programs give it: "cuda" takes a GPU only if there is one that serves."""
    if device is None:
        return None
    name = str(device)
    return "auto" if name == "cuda" or name == "mps" else name


def open_model(checkpoint, device=None) -> Sam:
    """The checkpoint, or the built-in model where there is none: Meta's builders then give random weights, which help nobody."""
    return Sam(checkpoint, device=native_device(device))


def rgb(image, image_format: str = "RGB") -> np.ndarray:
    """The pixels of a picture in the order red, green, blue."""
    found = pixels(image)
    return found if image_format == "RGB" else found[..., ::-1]


def prompts(coords, labels, boxes, masks, multimask: bool) -> list[Prompt]:
    """Prompts of arrays [B, N, 2], [B, N], [B, 4] and [B, 1, side, side], any of which may be None."""
    arrays = {
        "point_coords": coords,
        "point_labels": labels,
        "boxes": boxes,
        "mask_input": masks,
    }
    given = {name: array(value) for name, value in arrays.items() if value is not None}
    counts = {len(value) for value in given.values()}
    if len(counts - {1}) > 1:
        raise ValueError(f"different numbers of prompts: { {name: len(value) for name, value in given.items()} }")
    count = max(counts, default=0)

    def row(name: str, index: int):
        value = given.get(name)
        return None if value is None else value[index if len(value) > 1 else 0]

    return [
        prompt(row("point_coords", i), row("point_labels", i), row("boxes", i), row("mask_input", i), multimask)
        for i in range(count)
    ]


def prompt(coords, labels, box, mask, multimask: bool) -> Prompt:
    """One prompt of arrays [N, 2], [N], [4] and [1, side, side]."""
    arguments: dict[str, Any] = {}
    if coords is not None:
        coords = np.asarray(coords, np.float64)
        if coords.ndim != 2 or coords.shape[1] != 2:
            raise ValueError(f"point_coords is [points, 2], not {list(coords.shape)}")
        arguments["points"] = [tuple(point) for point in coords.tolist()]
        arguments["labels"] = whole(labels, "point_labels")
    if box is not None:
        box = np.asarray(box, np.float64).reshape(-1)
        if box.shape != (4,):
            raise ValueError(f"a box is left, top, right, bottom, not {box.shape[0]} numbers")
        arguments["box"] = tuple(box.tolist())
    if mask is not None:
        mask = np.asarray(mask)
        if mask.dtype.kind not in "fiub":
            raise TypeError(f"mask_input is float32 [1, side, side], not {mask.dtype}")
        mask = np.ascontiguousarray(mask.reshape(mask.shape[-2:]) if mask.ndim > 2 else mask, np.float32)
        arguments["logits"] = mask
    return Prompt(candidates=3 if multimask else 1, **arguments)


def whole(numbers, name: str) -> list[int]:
    """Whole numbers of an array of labels."""
    found = np.asarray(numbers)
    if found.ndim != 1:
        raise ValueError(f"{name} is a list of numbers, not {list(found.shape)}")
    if found.dtype.kind == "f" and not np.array_equal(found, np.trunc(found)):
        raise ValueError(f"{name} are 1 or 0")
    return [int(number) for number in found]


def stacked(answers, logits: bool, threshold: float = 0.0):
    """Answers as arrays: masks [B, C, H, W] (bool, or float32 logits), predicted IoU [B, C], low-resolution logits [B, C, S, S]."""

    def picture(mask):
        if logits:
            return mask.full_logits()
        return mask.array() if threshold == 0.0 else mask.full_logits() > threshold

    masks = np.stack([np.stack([picture(mask) for mask in masks]) for masks in answers])
    scores = np.array([[mask.predicted_iou for mask in masks] for masks in answers], np.float32)
    low = np.stack([np.stack([mask.logits for mask in masks]) for masks in answers])
    return masks, scores, low


OUTPUT_MODES = ("binary_mask", "uncompressed_rle", "coco_rle")


def record(mask, output_mode: str) -> dict:
    """An automatic mask as Meta's generators give it."""
    x, y, width, height = mask.inclusive_box
    forms = {"binary_mask": mask.array, "uncompressed_rle": mask.uncompressed_rle, "coco_rle": mask.rle}
    segmentation = forms[output_mode]()
    if output_mode == "uncompressed_rle":
        segmentation = {"size": segmentation["size"], "counts": segmentation["counts"]}
    return {
        "segmentation": segmentation,
        "area": mask.area,
        "bbox": [x, y, width, height],
        "predicted_iou": mask.predicted_iou,
        "point_coords": [list(mask.point)],
        "stability_score": mask.stability_score,
        "crop_box": list(mask.crop_box),
    }
