"""Meta's interfaces with the built-in model: types, shapes, and agreement with the native API."""

import numpy as np
import pytest

import cutout
from cutout._arrays import Array, tensor
from cutout.compat.sam2.automatic_mask_generator import SAM2AutomaticMaskGenerator
from cutout.compat.sam2.build_sam import build_sam2, build_sam2_video_predictor
from cutout.compat.sam2.sam2_image_predictor import SAM2ImagePredictor
from cutout.compat.segment_anything import SamAutomaticMaskGenerator, SamPredictor, sam_model_registry

POINTS, LABELS = np.array([[200, 280]]), np.array([1])


def test_sam1_predictor(scene, picture):
    model = sam_model_registry["vit_b"](checkpoint=None).to("cpu")
    predictor = SamPredictor(model)
    predictor.set_image(np.ascontiguousarray(picture[..., ::-1]), image_format="BGR")
    assert predictor.is_image_set and predictor.original_size == picture.shape[:2]
    masks, scores, low = predictor.predict(POINTS, LABELS)
    wanted = scene.segment(cutout.Prompt(points=[(200, 280)]))
    assert masks.dtype == np.bool_ and masks.shape == (3, *picture.shape[:2])
    assert scores.dtype == np.float32 and scores.shape == (3,) and low.shape == (3, 160, 160)
    assert np.array_equal(low, [mask.logits for mask in wanted])
    logits, _, _ = predictor.predict(POINTS, LABELS, multimask_output=False, return_logits=True)
    assert logits.dtype == np.float32 and logits.shape == (1, *picture.shape[:2])
    refined, _, _ = predictor.predict(POINTS, LABELS, mask_input=low[scores.argmax()][None], multimask_output=False)
    assert refined.shape == (1, *picture.shape[:2])
    boxes = predictor.transform.apply_boxes(np.array([[100, 100, 300, 300], [50, 50, 200, 200]]), picture.shape[:2])
    batch, batch_scores, batch_low = predictor.predict_torch(None, None, boxes=boxes, multimask_output=False)
    assert tuple(batch.shape) == (2, 1, *picture.shape[:2]) and tuple(batch_low.shape) == (2, 1, 160, 160)
    alone, _, _ = predictor.predict(box=np.array([50, 50, 200, 200]), multimask_output=False)
    assert np.mean(np.asarray(batch)[1] != alone) < 1e-4
    assert tuple(predictor.get_image_embedding().shape)[0] == 1
    predictor.reset_image()
    assert not predictor.is_image_set and predictor.features is None


def test_generators_give_records(picture):
    for generator, model in [
        (SamAutomaticMaskGenerator, sam_model_registry["default"]()),
        (SAM2AutomaticMaskGenerator, build_sam2("any.yaml", device="cpu")),
    ]:
        options = dict(points_per_side=4, pred_iou_thresh=0.5, stability_score_thresh=0.5)
        records = generator(model, **options).generate(picture)
        assert records
        assert list(records[0]) == [
            "segmentation", "area", "bbox", "predicted_iou", "point_coords", "stability_score", "crop_box",
        ]
        assert records[0]["segmentation"].dtype == np.bool_
        assert records[0]["area"] == records[0]["segmentation"].sum()
        compressed = generator(model, output_mode="coco_rle", **options).generate(picture)
        assert np.array_equal(cutout.rle_to_mask(compressed[0]["segmentation"]), records[0]["segmentation"])
        runs = generator(model, output_mode="uncompressed_rle", **options).generate(picture)
        assert sum(runs[0]["segmentation"]["counts"]) == picture.shape[0] * picture.shape[1]
        grid = [np.array([[0.5, 0.5]])]
        single = generator(model, points_per_side=None, point_grids=grid, pred_iou_thresh=0, stability_score_thresh=0)
        assert all(found["point_coords"] == [[picture.shape[1] / 2, picture.shape[0] / 2]] for found in single.generate(picture))


def test_sam2_image_predictor(picture):
    from PIL import Image

    predictor = SAM2ImagePredictor(build_sam2("sam2.1_hiera_t.yaml", None, device="cpu"))
    predictor.set_image(Image.fromarray(picture))
    masks, scores, low = predictor.predict(POINTS, LABELS)
    assert masks.dtype == np.float32 and set(np.unique(masks)) <= {0.0, 1.0} and masks.shape == (3, *picture.shape[:2])
    assert np.abs(low).max() <= 32
    height, width = picture.shape[:2]
    shares, _, _ = predictor.predict(POINTS / [width, height], LABELS, normalize_coords=False)
    assert np.mean(shares != masks) < 1e-4
    boxes = np.array([[100, 100, 300, 300], [50, 50, 200, 200]])
    several, several_scores, several_low = predictor.predict(box=boxes, multimask_output=False)
    assert several.shape == (2, 1, height, width) and several_scores.shape == (2, 1) and several_low.shape == (2, 1, 160, 160)
    lowered = SAM2ImagePredictor(predictor.model, mask_threshold=-1.0)
    lowered.set_image(picture)
    assert lowered.predict(POINTS, LABELS)[0].sum() > masks.sum()


def test_sam2_batches(picture):
    predictor = SAM2ImagePredictor(build_sam2(None, device="cpu"))
    small = np.ascontiguousarray(picture[::2, ::2])
    predictor.set_image_batch([picture, small])
    masks, scores, _ = predictor.predict_batch([POINTS, POINTS // 2], [LABELS, LABELS])
    assert [mask.shape for mask in masks] == [(3, *picture.shape[:2]), (3, *small.shape[:2])]
    with pytest.raises(AssertionError):
        alone = SAM2ImagePredictor(predictor.model)
        alone.set_image(picture)
        alone.predict_batch()


def test_sam2_video(clip):
    predictor = build_sam2_video_predictor(None, device="cpu")
    state = predictor.init_state(str(clip))
    assert (state["num_frames"], state["video_height"], state["video_width"]) == (7, 120, 160)
    frame, ids, logits = predictor.add_new_points_or_box(state, 3, 9, points=[[64, 60]], labels=[1])
    assert (frame, ids) == (3, [9]) and tuple(logits.shape) == (1, 1, 120, 160)
    forward = {frame: np.asarray(logits) for frame, _, logits in predictor.propagate_in_video(state)}
    assert list(forward) == [3, 4, 5, 6]
    backward = [frame for frame, _, _ in predictor.propagate_in_video(state, reverse=True)]
    assert backward == [3, 2, 1, 0]
    few = [f for f, _, _ in predictor.propagate_in_video(state, start_frame_idx=4, max_frame_num_to_track=1)]
    assert few == [4, 5]
    rows, columns = np.mgrid[0:120, 0:160]
    for frame, logits in forward.items():
        disc = (rows - 60) ** 2 + (columns - 40 - 8 * frame) ** 2 < 24**2
        found = logits[0, 0] > 0
        assert (found & disc).sum() / (found | disc).sum() > 0.8
    mask = np.zeros((120, 160), bool)
    mask[10:30, 100:130] = True
    _, ids, logits = predictor.add_new_mask(state, 3, 2, mask)
    assert ids == [9, 2] and ((np.asarray(logits)[1, 0] > 0) == mask).mean() > 0.98
    left, updated = predictor.remove_object(state, 9)
    assert left == [2] and [frame for frame, _ in updated] == [3]
    predictor.clear_all_prompts_in_frame(state, 3, 2, need_output=False)
    predictor.reset_state(state)
    assert state["obj_ids"] == []


def test_arrays_answer_like_tensors():
    values = np.arange(4, dtype=np.float32).reshape(2, 2)
    found = tensor(values)
    assert np.array_equal((found > 1.0).cpu().numpy(), values > 1)
    if isinstance(found, Array):
        assert type(found.detach().to("cpu").float().numpy()) is np.ndarray
