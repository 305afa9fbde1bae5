"""A program for Meta's video predictor of SAM 3, with Meta's code and with ours on the same small random weights.

Needs PyTorch and a clone of Meta's `sam3` on the path; skipped, and said so, where they are not installed.
"""

import importlib.util
import pathlib
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from cutout.compat.sam3.model_builder import build_sam3_predictor

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures"
PHRASE = "yellow school bus"
NUMBERS = dict(score_threshold_detection=0.3, det_nms_thresh=0.5, assoc_iou_thresh=0.1, trk_assoc_iou_thresh=0.5, new_det_thresh=0.3,
               hotstart_delay=3, hotstart_unmatch_thresh=2, hotstart_dup_thresh=2, suppress_unmatched_only_within_hotstart=True,
               init_trk_keep_alive=30, max_trk_keep_alive=30, min_trk_keep_alive=-1, recondition_every_nth_frame=2,
               suppress_overlapping_based_on_recent_occlusion_threshold=0.7, fill_hole_area=0)
OURS = {"detection_threshold": 0.3, "duplicate_iou": 0.5, "match_iou": 0.1, "unmatched_iou": 0.5, "new_object_threshold": 0.3,
        "delay": 3, "unmatched_frames": 2, "duplicate_frames": 2, "recondition_every": 2, "occlusion_iou": 0.7, "fill_hole_area": 0}


@pytest.fixture(scope="module")
def meta(tmp_path_factory):
    """Meta's predictor with a small random model, and the file of its weights."""
    found = importlib.util.find_spec("sam3")
    if found is None:
        pytest.skip("Meta's sam3 is not on the path")
    sys.path.insert(0, str(FIXTURES))
    import bench_sam3_video as bench

    bench.import_video(pathlib.Path(list(found.submodule_search_locations)[0]).parent)
    from make_sam3_memory import MEMORY
    from make_sam3_predictor import CONFIG

    bench.PUBLISHED, bench.TRACKER, bench.OPTIONS = CONFIG, {**CONFIG, **MEMORY}, NUMBERS
    model = bench.meta_model()
    # Scores worth a threshold, and objects of which it is clear whether they are hidden.
    with torch.no_grad():
        model.detector.transformer.decoder.presence_token_head.layers[-1].bias.fill_(3.0)
        model.tracker.sam_mask_decoder.pred_obj_score_head.layers[-1].bias += 1.0
    file = tmp_path_factory.mktemp("sam3") / "sam3.pt"
    bench.write(model, file)
    from sam3.model.sam3_video_predictor import Sam3VideoPredictor

    predictor = object.__new__(Sam3VideoPredictor)
    predictor.model, predictor._all_inference_states = model, {}
    return predictor, file


@pytest.fixture(params=[1, 2, 3, 5])
def pictures(request):
    """Stripes that move by so many pixels."""
    from PIL import Image

    places = [np.arange(30 * 40) + request.param * shift for shift in range(6)]
    stripes = [np.stack([i * 7 % 251, i // 3 % 256, i * i % 239], axis=1) for i in places]
    return [Image.fromarray(frame.reshape(30, 40, 3).astype(np.uint8)) for frame in stripes]


def program(predictor, pictures):
    """What a program for Meta's predictor does."""
    session = predictor.handle_request({"type": "start_session", "resource_path": pictures})["session_id"]
    asked = {"type": "add_prompt", "session_id": session, "frame_index": 2, "text": PHRASE}
    yield predictor.handle_request(asked)
    yield from predictor.handle_stream_request({"type": "propagate_in_video", "session_id": session})
    predictor.handle_request({"type": "close_session", "session_id": session, "run_gc_collect": False})


def test_a_program_for_sam3_video(meta, pictures):
    theirs, file = meta
    ours = build_sam3_predictor(checkpoint_path=str(file), version="sam3")
    ours.options.update(OURS)
    found, wanted = list(program(ours, pictures)), list(program(theirs, pictures))
    assert [answer["frame_index"] for answer in found] == [answer["frame_index"] for answer in wanted]
    seen = 0
    for our, their in zip(found, wanted):
        our, their = our["outputs"], their["outputs"]
        assert list(our) == list(their)
        for name in ("out_obj_ids", "out_probs", "out_boxes_xywh", "out_binary_masks"):
            assert (our[name].dtype, our[name].shape) == (their[name].dtype, their[name].shape), name
        assert our["out_obj_ids"].tolist() == their["out_obj_ids"].tolist()
        np.testing.assert_allclose(our["out_probs"], their["out_probs"], rtol=1e-3, atol=1e-4)
        if len(our["out_obj_ids"]) == 1:
            # Of several, Meta's boxes are those before pixels that they share are given to one.
            np.testing.assert_allclose(our["out_boxes_xywh"], their["out_boxes_xywh"], atol=0.04)
        assert np.count_nonzero(our["out_binary_masks"] != their["out_binary_masks"]) <= 0.005 * our["out_binary_masks"].size
        seen += len(our["out_obj_ids"])
    assert seen > len(pictures)
