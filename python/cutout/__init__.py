"""The Segment Anything models (SAM 1, 2 and 3): masks from clicks, boxes, earlier masks and phrases, in pictures and video.

    import cutout

    scene = cutout.Sam().embed("photo.jpg")
    mask = scene.segment(cutout.Prompt(points=[(200, 280)])).best

`cutout.compat` has the interfaces of Meta's packages, `cutout.batch` the work over many pictures.
"""

from ._cutout import (
    CutoutError,
    Detections,
    Frame,
    Frames,
    Mask,
    Masks,
    PhraseTracker,
    Prompt,
    Sam,
    Scene,
    Tracker,
    __version__,
    mask_to_rle,
    rle_to_mask,
)
from ._exports import to_supervision

__all__ = [
    "CutoutError",
    "Detections",
    "Frame",
    "Frames",
    "Mask",
    "Masks",
    "PhraseTracker",
    "Prompt",
    "Sam",
    "Scene",
    "Tracker",
    "__version__",
    "mask_to_rle",
    "rle_to_mask",
    "to_supervision",
]
