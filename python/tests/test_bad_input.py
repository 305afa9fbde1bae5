"""Wrong arguments raise exceptions of the right kind, and leave what was there."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import cutout
from cutout.compat.sam2.sam2_image_predictor import SAM2ImagePredictor
from cutout.compat.sam2.sam2_video_predictor import SAM2VideoPredictor
from cutout.compat.segment_anything import SamAutomaticMaskGenerator, SamPredictor, sam_model_registry


@pytest.mark.parametrize(
    "make, exception, words",
    [
        (lambda p: p.astype(np.float32), TypeError, "float32"),
        (lambda p: p[:, :, :2], ValueError, "[height, width, 3]"),
        (lambda p: np.dstack([p, p[:, :, :1]]), ValueError, "[height, width, 3]"),
        (lambda p: p[None], ValueError, "[height, width, 3]"),
        (lambda p: p[:0], ValueError, "at least one pixel"),
        (lambda p: "nowhere.jpg", FileNotFoundError, "nowhere.jpg"),
        (lambda p: b"no picture", ValueError, "not a picture"),
        (lambda p: None, TypeError, ""),
    ],
)
def test_pictures(sam, picture, make, exception, words):
    with pytest.raises(exception) as raised:
        sam.embed(make(picture))
    assert words in str(raised.value)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({}, "no point, no box and no mask"),
        ({"points": [(9999, 5)]}, "outside"),
        ({"points": [(float("nan"), 5)]}, "outside"),
        ({"box": (300, 300, 100, 100)}, "no area"),
        ({"points": [(5, 5)], "logits": np.zeros((8, 8), np.float32)}, "160"),
        ({"points": [(5, 5)], "logits": np.full((160, 160), np.nan, np.float32)}, "NaN"),
    ],
)
def test_prompts(scene, arguments, words):
    with pytest.raises(ValueError, match=words):
        scene.segment(cutout.Prompt(**arguments))


def test_prompts_that_cannot_be_made():
    for arguments in [
        {"points": [(1, 2)], "labels": [1, 0]},
        {"points": [(1, 2)], "labels": [7]},
        {"points": [(1, 2)], "candidates": 2},
    ]:
        with pytest.raises(ValueError):
            cutout.Prompt(**arguments)
    with pytest.raises(TypeError):
        cutout.Prompt(points=[(1, 2)], logits=np.zeros((256, 256)))


def test_models(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.pt"):
        cutout.Sam("nowhere.pt")
    junk = tmp_path / "junk.pt"
    junk.write_bytes(b"junk")
    with pytest.raises(ValueError, match="junk.pt"):
        cutout.Sam(junk)
    for options in [{"device": "toaster"}, {"precision": "f64"}, {"threads": 0}, {"threads": 10**6}]:
        with pytest.raises(ValueError):
            cutout.Sam(**options)


def test_options(sam, scene, picture):
    with pytest.raises(ValueError, match="points_per_sied"):
        scene.everything(points_per_sied=3)
    with pytest.raises(ValueError, match="points_per_side"):
        scene.everything(points_per_side=0)
    with pytest.raises(ValueError, match="crop_n_layers"):
        scene.everything(crop_n_layers=1)
    with pytest.raises(ValueError, match="corrections"):
        sam.track(corrections="maybe")
    with pytest.raises(ValueError, match="SAM 3"):
        scene.find("cat")


def test_trackers(sam, picture):
    tracker = sam.track()
    with pytest.raises(ValueError, match="no frame"):
        tracker.prompt(0, 1, cutout.Prompt(points=[(5, 5)]))
    tracker.visit(0, picture)
    with pytest.raises(ValueError, match="not the current frame"):
        tracker.prompt(3, 1, cutout.Prompt(points=[(5, 5)]))
    with pytest.raises(ValueError, match="the video has"):
        tracker.prompt(0, 1, np.ones((8, 8), bool))
    with pytest.raises(ValueError, match="not tracked"):
        tracker.remove(4)
    with pytest.raises(ValueError, match="the video has"):
        tracker.push(np.zeros((8, 8, 3), np.uint8))


def test_rle():
    with pytest.raises(ValueError):
        cutout.rle_to_mask({"size": [4, 4], "counts": [3, 3]})
    with pytest.raises(KeyError):
        cutout.rle_to_mask({"counts": [16]})
    with pytest.raises(ValueError):
        cutout.mask_to_rle(np.zeros((2, 2, 2), bool))


def test_clips(tmp_path):
    with pytest.raises(FileNotFoundError):
        cutout.Frames(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no pictures"):
        cutout.Frames(tmp_path)


def test_predictors(sam, picture, clip):
    model = sam_model_registry["vit_b"]()
    predictor = SamPredictor(model)
    with pytest.raises(RuntimeError, match="set_image"):
        predictor.predict(point_coords=np.array([[1, 1]]), point_labels=np.array([1]))
    with pytest.raises(RuntimeError, match="set_image"):
        predictor.get_image_embedding()
    with pytest.raises(AssertionError):
        predictor.set_image(picture, image_format="HSV")
    predictor.set_image(picture)
    with pytest.raises(AssertionError, match="point_labels"):
        predictor.predict(point_coords=np.array([[1, 1]]))
    with pytest.raises(ValueError):
        predictor.predict(point_coords=np.array([1, 1]), point_labels=np.array([1]))
    with pytest.raises(ValueError):
        predictor.predict()
    # A picture that cannot be set leaves the one before.
    with pytest.raises(TypeError):
        predictor.set_image(picture.astype(float))
    assert predictor.is_image_set
    with pytest.raises(AssertionError, match="output_mode"):
        SamAutomaticMaskGenerator(model, output_mode="png")
    with pytest.raises(AssertionError, match="Exactly one"):
        SamAutomaticMaskGenerator(model, points_per_side=None)
    with pytest.raises(NotImplementedError):
        SAM2ImagePredictor(model).set_image("picture.jpg")

    video = SAM2VideoPredictor(sam)
    state = video.init_state(str(clip))
    with pytest.raises(RuntimeError, match="please add inputs first"):
        next(video.propagate_in_video(state))
    with pytest.raises(ValueError, match="together"):
        video.add_new_points_or_box(state, 0, 1, points=[[5, 5]])
    with pytest.raises(ValueError, match="at least one"):
        video.add_new_points_or_box(state, 0, 1)
    with pytest.raises(ValueError, match="clear"):
        video.add_new_points_or_box(state, 0, 1, box=[1, 1, 9, 9], clear_old_points=False)
    with pytest.raises(IndexError):
        video.add_new_points_or_box(state, 99, 1, box=[1, 1, 9, 9])
    assert video.remove_object(state, 4) == ([], [])
    with pytest.raises(RuntimeError, match="doesn't exist"):
        video.remove_object(state, 4, strict=True)
    with pytest.raises(RuntimeError, match="init_state"):
        video.reset_state({})


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupt_ends_a_call():
    """Ctrl-C while the encoder runs raises KeyboardInterrupt before the work is over."""
    program = """
        import signal, sys, time
        import numpy as np
        import cutout

        # Processes that were started in the background ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sam = cutout.Sam(device="cpu", threads=1)
        picture = np.zeros((64, 64, 3), np.uint8)
        try:
            print("ready", flush=True)
            while True:
                sam.embed_all([picture] * 200)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        # The work of the call takes many times as long.
        time.sleep(1.0)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60)[0] == "interrupted\n"
        assert child.returncode == 0
    finally:
        child.kill()
