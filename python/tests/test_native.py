"""The native API."""

import pickle
import threading

import numpy as np
import pytest

import cutout

CLICK = cutout.Prompt(points=[(200, 280)])


def test_a_click_gives_three_masks(scene):
    masks = scene.segment(CLICK)
    assert len(masks) == 3
    scores = [mask.predicted_iou for mask in masks]
    assert masks.best_index == int(np.argmax(scores))
    best = masks.best
    pixels = best.array()
    assert pixels.dtype == np.bool_ and pixels.shape == scene.shape == best.shape
    assert pixels[280, 200] and best.area == pixels.sum()
    assert best.logits.shape == (160, 160) and best.logits.dtype == np.float32
    assert np.array_equal(best.full_logits() > 0, pixels)
    assert np.array_equal(np.asarray(best), pixels)
    assert np.asarray(best, dtype=np.float32).dtype == np.float32
    with pytest.raises(IndexError):
        masks[3]
    assert masks[-1].predicted_iou == masks[2].predicted_iou


def test_candidates_follow_the_prompt(scene):
    assert len(scene.segment(cutout.Prompt(box=(100, 100, 300, 300)))) == 1
    assert len(scene.segment(cutout.Prompt(points=[(200, 280), (210, 300)], labels=[1, 1]))) == 1
    assert len(scene.segment(cutout.Prompt(points=[(200, 280)], candidates=1))) == 1
    assert len(scene.segment(cutout.Prompt(box=(100, 100, 300, 300), candidates=3))) == 3


def test_logits_refine(scene):
    first = scene.segment(CLICK).best
    refined = scene.segment(cutout.Prompt(points=[(200, 280)], logits=first.logits, candidates=1)).best
    pixels, before = refined.array(), first.array()
    assert (pixels & before).sum() / (pixels | before).sum() > 0.8
    assert not np.array_equal(refined.logits, first.logits)


def test_batches_answer_as_single_prompts_do(scene):
    asked = [CLICK, cutout.Prompt(points=[(100, 100)]), cutout.Prompt(box=(100, 100, 300, 300))]
    for alone, together in zip([scene.segment(prompt) for prompt in asked], scene.segment_all(asked)):
        np.testing.assert_allclose(alone.best.logits, together.best.logits, atol=1e-4)


def test_pictures_come_in_many_forms(sam, picture, tmp_path):
    from PIL import Image

    file = tmp_path / "picture.png"
    Image.fromarray(picture).save(file)
    wanted = sam.embed(picture).image_embedding()
    reversed_view = np.ascontiguousarray(picture[:, ::-1])[:, ::-1]
    assert not reversed_view.flags.c_contiguous
    with_alpha = np.dstack([picture, np.full(picture.shape[:2], 255, np.uint8)])
    forms = {
        "path": file,
        "text": str(file),
        "bytes": file.read_bytes(),
        "PIL": Image.open(file),
        "negative strides": reversed_view,
        "channels of a larger array": with_alpha[:, :, :3],
        "fortran": np.asfortranarray(picture),
    }
    for name, form in forms.items():
        assert np.array_equal(sam.embed(form).image_embedding(), wanted), name


def test_dlpack_is_read(sam, picture):
    class Exported:
        """An array that speaks DLPack alone."""

        def __dlpack__(self, **options):
            return picture.__dlpack__(**options)

        def __dlpack_device__(self):
            return picture.__dlpack_device__()

    assert sam.embed(Exported()).shape == picture.shape[:2]


def test_scenes_are_kept_in_files(sam, scene, tmp_path):
    scene.save(tmp_path / "scene.safetensors")
    again = sam.load_scene(tmp_path / "scene.safetensors")
    assert np.array_equal(again.segment(CLICK).best.logits, scene.segment(CLICK).best.logits)


def test_everything_finds_masks_and_reports(scene):
    seen = []
    masks = scene.everything(points_per_side=6, progress=lambda done, all: seen.append((done, all)))
    assert masks and seen[-1] == (36, 36)
    for mask in masks:
        assert mask.area == mask.array().sum()
        x, y, width, height = mask.bbox
        rows, columns = np.nonzero(mask.array())
        assert (x, y, x + width, y + height) == (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        left, top, across, down = mask.inclusive_box
        assert (left, top, across, down) == (x, y, width - 1, height - 1)


def test_an_exception_of_progress_stops(scene):
    def stop(done, all):
        raise KeyError("enough")

    with pytest.raises(KeyError):
        scene.everything(points_per_side=6, progress=stop)


def test_rle_is_that_of_coco(scene):
    mask = scene.segment(CLICK).best
    rle = mask.rle()
    assert rle["size"] == list(scene.shape)
    assert np.array_equal(cutout.rle_to_mask(rle), mask.array())
    assert np.array_equal(cutout.rle_to_mask(mask.uncompressed_rle()), mask.array())
    as_bytes = {"size": rle["size"], "counts": rle["counts"].encode()}
    assert np.array_equal(cutout.rle_to_mask(as_bytes), mask.array())
    assert cutout.mask_to_rle(mask.array()) == rle
    try:
        from pycocotools import mask as coco
    except ImportError:
        return
    assert np.array_equal(coco.decode(rle).astype(bool), mask.array())


def test_polygons_enclose_the_area(scene):
    mask = scene.segment(CLICK).best

    def area(ring):
        x, y = ring[:, 0], ring[:, 1]
        return abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2

    total = sum(area(rings[0]) - sum(map(area, rings[1:])) for rings in mask.polygons())
    assert total == mask.area
    coarse = mask.polygons(simplify=2.0)
    assert sum(map(len, map(lambda rings: rings[0], coarse))) < sum(len(rings[0]) for rings in mask.polygons())


def test_notebooks_show_masks(scene):
    import io

    from PIL import Image

    mask = scene.segment(CLICK).best
    shown = np.array(Image.open(io.BytesIO(mask._repr_png_())).convert("L")) > 0
    assert np.array_equal(shown, mask.array())


def test_supervision_takes_masks(scene):
    supervision = pytest.importorskip("supervision")
    masks = scene.everything(points_per_side=4)
    detections = cutout.to_supervision(masks)
    assert isinstance(detections, supervision.Detections) and len(detections) == len(masks)
    assert np.array_equal(detections.mask[0], masks[0].array())
    assert len(cutout.to_supervision([])) == 0


def test_objects_are_tracked(sam, clip):
    tracker = sam.track()
    frames = list(cutout.Frames(clip))
    assert cutout.Frames(clip).length == len(frames) == 7
    tracker.visit(0, frames[0])
    tracker.prompt(0, 5, cutout.Prompt(points=[(40, 60)]))
    for index, frame in enumerate(frames):
        tracked = tracker.push(frame) if index else tracker.push_at(0, frame)
        (mask,) = tracked.objects
        assert (tracked.frame, mask.id) == (index, 5)
        rows, columns = np.mgrid[0:120, 0:160]
        disc = (rows - 60) ** 2 + (columns - 40 - 8 * index) ** 2 < 24**2
        assert (mask.array() & disc).sum() / (mask.array() | disc).sum() > 0.8
    tracker.remove(5)
    assert tracker.objects == []


def test_frames_can_be_read_by_number(clip):
    frames = cutout.Frames(clip)
    assert frames.is_indexed
    assert np.array_equal(frames.frame(3), list(cutout.Frames(clip))[3])
    with pytest.raises(IndexError):
        frames.frame(7)


def test_threads_work_at_the_same_time(scene):
    answers = [None] * 4

    def work(place):
        answers[place] = scene.segment(CLICK).best.logits

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all(np.array_equal(answer, answers[0]) for answer in answers)


def test_native_objects_refuse_to_be_pickled(sam):
    with pytest.raises(TypeError):
        pickle.dumps(sam)
