"""Masks in the forms of other packages."""

from __future__ import annotations

from typing import Iterable

import numpy as np

from ._cutout import Mask


def boxes_of(masks: Iterable[Mask]) -> np.ndarray:
    """Boxes around the pixels of masks, float32 [masks, 4]: left, top, right, bottom."""
    corners = [(x, y, x + width, y + height) for x, y, width, height in (mask.bbox for mask in masks)]
    return np.array(corners, np.float32).reshape(-1, 4)


def to_supervision(masks: Iterable[Mask]):
    """`supervision.Detections` of masks, with their scores, ids and phrases where they have them."""
    import supervision

    masks = list(masks)
    if not masks:
        return supervision.Detections.empty()

    def all_of(name: str, kind):
        values = [getattr(mask, name) for mask in masks]
        return None if any(value is None for value in values) else np.array(values, kind)

    scores = all_of("score", np.float32)
    data = {}
    phrases = [mask.phrase for mask in masks]
    if any(phrases):
        data["class_name"] = np.array([phrase or "" for phrase in phrases])
    return supervision.Detections(
        xyxy=boxes_of(masks),
        mask=np.stack([mask.array() for mask in masks]),
        confidence=all_of("predicted_iou", np.float32) if scores is None else scores,
        tracker_id=all_of("id", np.int64),
        data=data,
    )
