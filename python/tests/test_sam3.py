"""SAM 3: Meta's processor and video predictor in `cutout.compat`, and phrases in video."""

import json
import subprocess
import sys

import numpy as np
import pytest
import small_sam3

import cutout
from cutout.compat.sam3.model.sam3_image_processor import Sam3Processor
from cutout.compat.sam3.model.sam3_video_predictor import Sam3VideoPredictor
from cutout.compat.sam3.model_builder import build_sam3_image_model, build_sam3_predictor

PHRASE = "yellow school bus"
# Random weights find nothing with a score worth a threshold, and small islands.
LOW = {"detection_threshold": 1e-6, "new_object_threshold": 1e-6, "fill_hole_area": 0}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The model's file, and what Meta's code answers with it."""
    file = tmp_path_factory.mktemp("sam3") / "small.safetensors"
    tensors, notes = small_sam3.make(file)
    return file, tensors, json.loads(notes["phrases"])


@pytest.fixture(scope="module")
def model(small):
    return build_sam3_image_model(checkpoint_path=str(small[0]), device="cpu")


@pytest.fixture(scope="module")
def frames():
    """Five small frames of stripes that move."""
    places = [np.arange(30 * 40) + shift for shift in range(5)]
    stripes = [np.stack([i * 7 % 251, i // 3 % 256, i * i % 239], axis=1) for i in places]
    return [frame.reshape(30, 40, 3).astype(np.uint8) for frame in stripes]


def processor_of(model):
    return Sam3Processor(model, resolution=model.image_size, device="cpu")


@pytest.mark.parametrize("picture", ["landscape", "portrait"])
@pytest.mark.parametrize("run", ["text", "other_text", "text_box", "negative_box", "boxes"])
def test_the_processor_finds_what_metas_finds(small, model, picture, run):
    from PIL import Image

    _, tensors, phrases = small
    place = f"{picture}/find/{run}/"
    wanted = {name.removeprefix(place): value for name, value in tensors.items() if name.startswith(place)}
    pixels = tensors[f"{picture}/pixels"]
    height, width = pixels.shape[:2]
    processor = processor_of(model)
    state = processor.set_image(Image.fromarray(pixels))
    processor.set_confidence_threshold(float(wanted["threshold"][0]), state)
    if phrases[run] is not None:
        processor.set_text_prompt(phrases[run], state)
    for box, label in zip(wanted.get("boxes", []), wanted.get("box_labels", [])):
        x0, y0, x1, y1 = box / np.array([width, height] * 2)
        processor.add_geometric_prompt([(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0], bool(label), state)
    count = len(wanted["found/scores"])
    assert count > 0
    masks, chances, boxes, scores = (np.asarray(state[name]) for name in ("masks", "masks_logits", "boxes", "scores"))
    assert masks.dtype == np.bool_ and masks.shape == (count, 1, height, width)
    assert chances.dtype == boxes.dtype == scores.dtype == np.float32
    np.testing.assert_allclose(scores, wanted["found/scores"], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(boxes, wanted["found/boxes"], atol=0.02)
    assert np.mean(masks[:, 0] != wanted["found/masks"].astype(bool)) < 1e-3
    np.testing.assert_array_equal(chances > 0.5, masks)


def test_clicks_on_one_picture_and_on_several(small, model):
    from PIL import Image

    _, tensors, _ = small
    names = ["landscape", "portrait"]
    pictures = [Image.fromarray(tensors[f"{name}/pixels"]) for name in names]
    processor = processor_of(model)
    batch = processor.set_image_batch(pictures)
    assert batch["original_heights"] == [picture.height for picture in pictures]
    points = [tensors[f"{name}/point/points"] for name in names]
    labels = [tensors[f"{name}/point/labels"] for name in names]
    answers = model.predict_inst_batch(batch, points, labels)
    for place, name in enumerate(names):
        masks, scores, low = (part[place] for part in answers)
        assert masks.dtype == np.float32 and masks.shape == (3, pictures[place].height, pictures[place].width)
        np.testing.assert_allclose(scores, tensors[f"{name}/point/three/iou"].reshape(-1), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(low, tensors[f"{name}/point/three/low_res"].reshape(low.shape), rtol=1e-3, atol=5e-3)
        alone = processor.set_image(pictures[place])
        for one, other in zip(model.predict_inst(alone, point_coords=points[place], point_labels=labels[place]), (masks, scores, low)):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="one picture"):
        processor.set_text_prompt("cat", batch)
    for wrong, exception in [(pictures[0], ValueError), ([], AssertionError), ([np.asarray(pictures[0])], AssertionError)]:
        with pytest.raises(exception):
            processor.set_image_batch(wrong)
    with pytest.raises(ValueError, match="set_image"):
        model.predict_inst({}, point_coords=points[0], point_labels=labels[0])


def followed(tracker, frames):
    """The answers of a tracker, frame by frame."""
    answers = [answer for frame in frames if (answer := tracker.push(frame)) is not None]
    while (answer := tracker.finish()) is not None:
        answers.append(answer)
    return answers


def test_phrases_are_followed_as_by_the_command(small, frames, tmp_path):
    from PIL import Image

    clip = tmp_path / "clip"
    clip.mkdir()
    for number, frame in enumerate(frames):
        Image.fromarray(frame).save(clip / f"{number:05}.png")
    sam = cutout.Sam(small[0], device="cpu")
    answers = followed(sam.track_phrases([PHRASE, "cat"], length=len(frames), **LOW), frames)
    assert [answer.frame for answer in answers] == list(range(len(frames)))
    arguments = ["track", clip, "--text", PHRASE, "--text", "cat", "--model", small[0], "-o", tmp_path / "masks.jsonl", "--device", "cpu"]
    arguments += ["--detection-threshold", "1e-6", "--new-object-threshold", "1e-6", "--fill-hole-area", "0"]
    done = subprocess.run([sys.executable, "-m", "cutout", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "masks.jsonl").read_text().splitlines()]
    wanted = {(line["frame"], one["id"]): one for line in lines for one in line["objects"]}
    found = {(answer.frame, mask.id): mask for answer in answers for mask in answer.objects}
    assert found.keys() == wanted.keys() and len(found) > len(frames)
    for key, mask in found.items():
        assert mask.rle()["counts"] == wanted[key]["segmentation"]["counts"]
        assert mask.phrase == wanted[key]["phrase"] and mask.area == wanted[key]["area"]
        assert mask.score == np.float32(wanted[key]["detection_score"])
        assert mask.probability == np.float32(wanted[key]["probability"])


def test_a_phrase_tracker_takes_prompts(small, frames):
    sam = cutout.Sam(small[0], device="cpu")
    tracker = sam.track_phrases(PHRASE, length=len(frames), delay=0, unmatched_frames=0, duplicate_frames=0, **LOW)
    first = tracker.push(frames[0])
    assert first is not None and tracker.held_back == 0 and tracker.objects == [mask.id for mask in first.objects]
    removed, new = tracker.objects[0], tracker.next_id
    tracker.remove(removed)
    mask = tracker.prompt(0, new, cutout.Prompt(points=[(20, 15)]))
    assert (mask.id, mask.score, mask.shape) == (new, 1.0, (30, 40))
    assert tracker.add_phrase("cat") == 1
    tracker.step(1, frames[1])
    second = tracker.ready()
    assert removed not in [mask.id for mask in second.objects] and new in tracker.objects
    assert {mask.phrase for mask in second.objects} - {PHRASE, "cat", None} == set()

    assert sam.track_phrases().add_exemplars(0, boxes=[(5, 5, 20, 20)], box_labels=[1]) == 0
    for call, words in [
        (lambda: tracker.step(9, frames[0]), "5 frames"),
        (lambda: tracker.prompt(1, removed, cutout.Prompt(points=[(1, 1)])), "not used again"),
        (lambda: tracker.add_exemplars(2, threshold=0.5, boxes=[(1, 1, 2, 2)]), "threshold"),
        (lambda: tracker.add_exemplars(2, 7, boxes=[(1, 1, 2, 2)]), "no phrase 7"),
        (lambda: sam.track_phrases(PHRASE, detection_threshold=2), "between 0 and 1"),
        (lambda: sam.track_phrases(PHRASE, latenzy=2), "latenzy"),
        (lambda: cutout.Sam(device="cpu").track_phrases(PHRASE), "SAM 3"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()


@pytest.fixture
def video(small, frames):
    """The video predictor with a session on the frames."""
    predictor = build_sam3_predictor(checkpoint_path=str(small[0]), version="sam3")
    predictor.options.update(LOW)
    session = predictor.handle_request({"type": "start_session", "resource_path": frames})
    return predictor, session["session_id"]


def test_a_program_for_metas_video_predictor(small, video, frames):
    predictor, session = video
    request = {"type": "add_prompt", "session_id": session, "frame_index": 2, "text": PHRASE}
    answer = predictor.handle_request(request)
    outputs = answer["outputs"]
    count = len(outputs["out_obj_ids"])
    assert answer["frame_index"] == 2 and count > 0 and outputs["out_obj_ids"][0] == 0
    assert {name: (value.dtype, value.shape) for name, value in outputs.items() if value is not None} == {
        "out_obj_ids": (np.int64, (count,)),
        "out_probs": (np.float32, (count,)),
        "out_boxes_xywh": (np.float32, (count, 4)),
        "out_binary_masks": (np.bool_, (count, 30, 40)),
    }
    stream = {"type": "propagate_in_video", "session_id": session}
    answers = list(predictor.handle_stream_request(stream))
    assert [answer["frame_index"] for answer in answers] == [2, 3, 4, 1, 0]

    # The same by hand: the prompted frame is searched twice, as in Meta's code, then the others, then those before it.
    tracker = cutout.Sam(small[0]).track_phrases(PHRASE, length=len(frames), goes_back=True, **LOW)
    tracker.step(2, frames[2], backward=True)
    wanted = {mask.id: mask for mask in tracker.finish().objects}
    assert [number + 1 for number in outputs["out_obj_ids"]] == sorted(wanted)
    by_hand = []
    for order, backward in [([2, 3, 4], False), ([1, 0], True)]:
        for number in order:
            tracker.step(number, frames[number], backward=backward)
        while (found := tracker.finish()) is not None:
            by_hand.append(found)
    for answer, found in zip(answers, by_hand, strict=True):
        masks = {mask.id - 1: mask for mask in found.objects}
        assert answer["frame_index"] == found.frame and list(answer["outputs"]["out_obj_ids"]) == sorted(masks)
        for place, known in enumerate(answer["outputs"]["out_obj_ids"]):
            assert np.array_equal(answer["outputs"]["out_binary_masks"][place], masks[known].array())
            assert answer["outputs"]["out_probs"][place] == np.float32(masks[known].score)

    # What is known is not computed again.
    again = list(predictor.handle_stream_request(stream))
    for one, other in zip(again, answers, strict=True):
        assert np.array_equal(one["outputs"]["out_binary_masks"], other["outputs"]["out_binary_masks"])
    assert predictor.handle_request({"type": "remove_object", "session_id": session, "obj_id": 0}) == {"is_success": True}
    assert all(0 not in answer["outputs"]["out_obj_ids"] for answer in predictor.handle_stream_request(stream))


def test_points_in_metas_video_predictor(video, frames):
    predictor, session = video
    prompt = {"type": "add_prompt", "session_id": session, "frame_index": 1, "obj_id": 7, "points": [[0.5, 0.5]], "point_labels": [1]}
    outputs = predictor.handle_request(prompt)["outputs"]
    tracker = predictor.model.sam.track(length=len(frames))
    tracker.visit(1, frames[1])
    wanted = tracker.prompt(1, 7, cutout.Prompt(points=[(20, 15)]))
    if wanted.area:
        assert list(outputs["out_obj_ids"]) == [7] and outputs["out_probs"][0] == 1.0
        assert np.array_equal(outputs["out_binary_masks"][0], wanted.array())
    stream = {"type": "propagate_in_video", "session_id": session, "propagation_direction": "forward", "max_frame_num_to_track": 2}
    answers = list(predictor.handle_stream_request(stream))
    assert [answer["frame_index"] for answer in answers] == [1, 2, 3]
    # The same point in pixels, and with a phrase before it: both kinds of objects are in the answers.
    predictor.handle_request({"type": "add_prompt", "session_id": session, "frame_index": 0, "text": PHRASE})
    predictor.handle_request({**prompt, "points": [[20, 15]], "rel_coordinates": False})
    known = {number for answer in predictor.handle_stream_request({**stream, "propagation_direction": "both"})
             for number in answer["outputs"]["out_obj_ids"].tolist()}
    assert 0 in known and (7 in known or not wanted.area)


def test_boxes_in_metas_video_predictor(video):
    predictor, session = video
    prompt = {"type": "add_prompt", "session_id": session, "frame_index": 0, "bounding_boxes": [[0.2, 0.2, 0.5, 0.5]],
              "bounding_box_labels": [1]}
    assert len(predictor.handle_request(prompt)["outputs"]["out_obj_ids"]) > 0
    assert len(predictor.handle_request({**prompt, "text": "cat"})["outputs"]["out_obj_ids"]) > 0


def test_wrong_requests(small, video, frames):
    predictor, session = video
    base = {"type": "add_prompt", "session_id": session, "frame_index": 0}
    for request, exception, words in [
        ({"type": "paint"}, RuntimeError, "invalid request type: paint"),
        (base, AssertionError, "at least one type"),
        ({**base, "text": "cat", "frame_index": 9}, AssertionError, "out of range"),
        ({**base, "session_id": "none", "text": "cat"}, RuntimeError, "Cannot find session none"),
        ({**base, "points": [[0.5, 0.5]], "point_labels": [1]}, AssertionError, "obj_id"),
        ({**base, "points": [[0.5, 0.5]], "point_labels": [1], "obj_id": 1, "text": "cat"}, AssertionError, "must be None"),
        ({**base, "bounding_boxes": [[0.1, 0.1, 0.2, 0.2]]}, AssertionError, "together"),
        ({**base, "bounding_boxes": [[1, 1, 9, 9]], "bounding_box_labels": [1]}, AssertionError, "0 to 1"),
        ({**base, "bounding_boxes": [[0, 0, 1, 1]] * 2, "bounding_box_labels": [1, 1]}, RuntimeError, "only have one box"),
        ({"type": "remove_object", "session_id": session, "obj_id": 3}, AssertionError, "not found"),
    ]:
        with pytest.raises(exception, match=words):
            predictor.handle_request(request)
    with pytest.raises(RuntimeError, match="No prompts"):
        next(predictor.handle_stream_request({"type": "propagate_in_video", "session_id": session}))
    for kind in ("reset_session", "cancel_propagation", "close_session", "close_session"):
        assert predictor.handle_request({"type": kind, "session_id": session}) == {"is_success": True}
    with pytest.raises(RuntimeError, match="expired"):
        predictor.handle_request({"type": "reset_session", "session_id": session})
    with pytest.raises(ValueError, match="checkpoint_path"):
        Sam3VideoPredictor()
    with pytest.raises(ValueError, match="Unknown version"):
        build_sam3_predictor(checkpoint_path=str(small[0]), version="sam4")
