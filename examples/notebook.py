"""A tour in cells, for a notebook (VS Code, Jupytext) or a terminal: `python examples/notebook.py [OUT]`."""

# %% A picture, and the model that is built in. `cutout.Sam("sam2.1_hiera_tiny.pt")` opens a checkpoint of Meta's.
import pathlib
import sys

import numpy as np

import cutout

here = pathlib.Path(__file__).resolve().parent
out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "notebook-out")
out.mkdir(parents=True, exist_ok=True)
sam = cutout.Sam()
scene = sam.embed(here / "still-life.jpg")  # slow, once per picture
print(sam, scene)

# %% A click. A notebook shows the mask as a picture.
click = scene.segment(cutout.Prompt(points=[(200, 280)], candidates=3))
click.best

# %% A click that is wanted, one that is not, and the mask from before.
better = scene.segment(cutout.Prompt(points=[(200, 280), (40, 40)], labels=[1, 0], logits=click.best.logits)).best
print(f"{better.area} pixels, predicted IoU {better.predicted_iou:.2f}, box {better.bbox}")
(out / "mask.png").write_bytes(better.png())

# %% The mask as an array, as run lengths for pycocotools, as outlines.
pixels = np.asarray(better)
assert np.array_equal(cutout.rle_to_mask(better.rle()), pixels) and pixels.sum() == better.area
print(f"{len(better.polygons(simplify=1.0))} outlines, {len(better.rle()['counts'])} characters of run lengths")

# %% Every object of the picture.
objects = scene.everything(points_per_side=8)
print(f"{len(objects)} objects, the largest has {max(mask.area for mask in objects)} pixels")

# %% An object through a clip: prompt it on the first frame, push the others.
tracker = sam.track()
areas = {}
for index, frame in enumerate(cutout.Frames(here / "ball.gif")):
    if index == 0:
        tracker.visit(0, frame)
        areas[0] = tracker.prompt(0, 1, cutout.Prompt(points=[(45, 160)])).area
    elif index < 5:
        areas[index] = tracker.push(frame).objects[0].area
print(f"pixels of the ball: {areas}")

# %% A program for Meta's `segment_anything`, with one import changed.
from cutout.compat.segment_anything import SamPredictor, sam_model_registry

predictor = SamPredictor(sam_model_registry["vit_b"]())
predictor.set_image(next(iter(cutout.Frames(here / "still-life.jpg"))))
masks, scores, logits = predictor.predict(point_coords=np.array([[200, 280]]), point_labels=np.array([1]))
assert np.array_equal(masks[np.argmax(scores)], click.best.array())
print(f"masks {masks.dtype}{list(masks.shape)}, scores {scores.round(2)}")
