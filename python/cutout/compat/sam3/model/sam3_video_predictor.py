"""Objects of phrases, boxes and clicks through a video, as `sam3.model.sam3_video_predictor` gives them."""

from __future__ import annotations

import pathlib
import tempfile
import uuid
from collections.abc import Callable

import numpy as np

from .... import Frame, Mask, PhraseTracker, Prompt, Sam, Tracker
from ...._inputs import array
from ..._clip import Clip
from ..._shared import whole
from ..model_builder import checkpoint_of_sam3

# Meta counts objects from 0, the tracker from 1.
_FIRST_ID = 1


class _Session:
    """A clip, the prompts given on it, and what is known of its frames."""

    def __init__(self, sam: Sam, source, options: dict):
        self.sam = sam
        self.clip = Clip(source)
        self.options = {**options, "length": self.clip.length, "goes_back": True}
        self.folder = tempfile.TemporaryDirectory(prefix="cutout-track-")
        self.reset()

    def reset(self) -> None:
        """Forgets all prompts and objects."""
        self.phrases: PhraseTracker | None = None
        self.clicks: Tracker | None = None
        # Frame of the prompt that began the phrases; frames of clicks.
        self.begun: int | None = None
        self.clicked: set[int] = set()
        self.removed: set[int] = set()
        # The answer to the prompt that began the phrases: id -> mask.
        self.shown: dict[int, Mask] = {}
        # Frame -> id -> mask: of phrases, and of objects that were pointed at.
        self.found: dict[int, dict[int, Mask]] = {}
        self.pointed: dict[int, dict[int, Mask]] = {}

    def _history(self, name: str) -> str:
        folder = pathlib.Path(self.folder.name) / name
        folder.mkdir(exist_ok=True)
        return str(folder)

    def find(self, frame: int, text, boxes, labels) -> None:
        """Begins anew with a phrase, a box or both, and looks for them on a frame."""
        self.reset()
        phrases = self.sam.track_phrases(text, history=self._history("phrases"), **self.options)
        if boxes is not None:
            corners = [tuple(box) for box in boxes.tolist()]
            phrases.add_exemplars(frame, None if text is None else 0, boxes=corners, box_labels=labels)
        # Meta's code searches the frame once for the answer to the prompt, and again when the video is followed. A step forward
        # on the frame of a new phrase does both.
        phrases.step(frame, self.clip.frame(frame), backward=True)
        self.phrases, self.begun = phrases, frame
        self.keep(phrases.finish())
        self.shown = self.found.pop(frame)

    def click(self, frame: int, object_id: int, prompt: Prompt) -> None:
        """Begins or corrects an object by points. From here on its masks are those of the points."""
        if self.clicks is None:
            self.clicks = self.sam.track(length=self.clip.length, history=self._history("clicks"))
        self.clicks.visit(frame, self.clip.frame(frame))
        self.clicks.prompt(frame, object_id, prompt)
        self.removed.discard(object_id)
        self.clicked.add(frame)
        # What was followed before the click is followed again.
        self.pointed = {frame: self._numbered(self.clicks.masks(), 0)}

    def remove(self, object_id: int) -> None:
        """Ends an object."""
        if self.clicks is not None and object_id in self.clicks.objects:
            self.clicks.remove(object_id)
        if self.phrases is not None and object_id + _FIRST_ID in self.phrases.objects:
            self.phrases.remove(object_id + _FIRST_ID)
        self.removed.add(object_id)

    def knows(self, object_id: int) -> bool:
        seen = [self.shown, *self.found.values(), *self.pointed.values()]
        return object_id not in self.removed and any(object_id in masks for masks in seen)

    def keep(self, answer: Frame | None) -> None:
        """Notes a settled frame of the phrases, and forgets objects that turned out to be none."""
        if answer is None:
            return
        self.found[answer.frame] = self._numbered(answer, _FIRST_ID)
        for object_id, first, last in answer.taken_back:
            for frame in range(first, last + 1):
                self.found.get(frame, {}).pop(object_id - _FIRST_ID, None)

    @staticmethod
    def _numbered(answer: Frame, first: int) -> dict[int, Mask]:
        return {mask.id - first: mask for mask in answer.objects if mask.id is not None}

    def follow(self, order: range, reverse: bool):
        """Yields the numbers of the frames whose answers are settled, in their order."""
        waiting: list[int] = []
        for frame in order:
            image = None
            if self.clicks is not None and frame not in self.pointed:
                image = self.clip.frame(frame)
                self.pointed[frame] = self._numbered(self.clicks.push_at(frame, image, backward=reverse), 0)
            if self.phrases is not None and frame not in self.found:
                self.phrases.step(frame, self.clip.frame(frame) if image is None else image, backward=reverse)
                self.keep(self.phrases.ready())
            waiting.append(frame)
            while waiting and (self.phrases is None or waiting[0] in self.found):
                yield waiting.pop(0)
        while self.phrases is not None and (answer := self.phrases.finish()) is not None:
            self.keep(answer)
        yield from waiting

    def outputs(self, found: dict[int, Mask], frame: int) -> dict:
        """The objects of a frame as arrays. Where they share pixels, the most probable has them."""
        visible = {known: mask for known, mask in self.pointed.get(frame, {}).items() if mask.area}
        others = {known: mask for known, mask in found.items() if self.clicks is None or known not in self.clicks.objects}
        masks = {known: mask for known, mask in sorted({**others, **visible}.items()) if known not in self.removed}
        pixels = np.zeros((len(masks), self.clip.height, self.clip.width), np.bool_)
        taken = np.zeros((self.clip.height, self.clip.width), np.bool_)
        ranks = [_probability(mask) for mask in masks.values()]
        for place in sorted(range(len(masks)), key=lambda place: -ranks[place]):
            pixels[place] = list(masks.values())[place].array() & ~taken
            taken |= pixels[place]
        size = np.array([self.clip.width, self.clip.height] * 2, np.float32)
        boxes = np.array([mask.inclusive_box for mask in masks.values()], np.float32).reshape(-1, 4) / size
        scores = [1.0 if mask.score is None else mask.score for mask in masks.values()]
        return {
            "out_obj_ids": np.array(list(masks), np.int64),
            "out_probs": np.array(scores, np.float32),
            "out_boxes_xywh": boxes,
            "out_binary_masks": pixels,
            "frame_stats": None,
        }


def _probability(mask: Mask) -> float:
    """How probable it is that an object is visible."""
    if mask.probability is not None:
        return mask.probability
    return 1.0 if mask.object_score is None else float(1.0 / (1.0 + np.exp(-mask.object_score)))


class Sam3VideoPredictor:
    """Sessions over clips, driven by requests. Nothing expires; memory does not grow with the clip but for the masks of its frames."""

    def __init__(
        self,
        checkpoint_path=None,
        bpe_path=None,
        has_presence_token=True,
        geo_encoder_use_img_cross_attn=True,
        strict_state_dict_loading=True,
        async_loading_frames=False,
        video_loader_type="cv2",
        apply_temporal_disambiguation: bool = True,
        compile: bool = False,
    ):
        self.model = checkpoint_of_sam3(checkpoint_path, "cuda")
        if not self.model.sam.tracks:
            raise ValueError(f"{checkpoint_path}: {self.model.sam.description} cannot track: it has no memory")
        heuristics = ("delay", "unmatched_frames", "duplicate_frames", "recondition_every")
        self.options = {} if apply_temporal_disambiguation else dict.fromkeys(heuristics, 0)
        self._sessions: dict[str, _Session] = {}

    def handle_request(self, request: dict) -> dict:
        """Answers a request by its type: start_session, add_prompt, remove_object, reset_session, cancel_propagation or
        close_session."""
        kind, given = request["type"], {key: value for key, value in request.items() if key != "type"}
        handlers: dict[str, Callable[..., dict]] = {
            "start_session": self.start_session,
            "add_prompt": self.add_prompt,
            "remove_object": self.remove_object,
            "reset_session": self.reset_session,
            "cancel_propagation": self.cancel_propagation,
            "close_session": self.close_session,
        }
        if kind not in handlers:
            raise RuntimeError(f"invalid request type: {kind}")
        if "frame_index" in given:
            given["frame_idx"] = given.pop("frame_index")
        return handlers[kind](**given)

    def handle_stream_request(self, request: dict):
        """Yields the answers to a request of the type propagate_in_video."""
        kind, given = request["type"], {key: value for key, value in request.items() if key != "type"}
        if kind != "propagate_in_video":
            raise RuntimeError(f"invalid request type: {kind}")
        if "start_frame_index" in given:
            given["start_frame_idx"] = given.pop("start_frame_index")
        yield from self.propagate_in_video(**given)

    def start_session(self, resource_path, session_id=None, offload_video_to_cpu=False, offload_state_to_cpu=False) -> dict:
        """Opens a clip: a folder of frames, an animation, with ffmpeg any video, or a list of pictures."""
        session_id = session_id or str(uuid.uuid4())
        self._sessions[session_id] = _Session(self.model.sam, resource_path, self.options)
        return {"session_id": session_id}

    def add_prompt(
        self,
        session_id: str,
        frame_idx: int,
        text: str | None = None,
        points=None,
        point_labels=None,
        clear_old_points: bool = True,
        bounding_boxes=None,
        bounding_box_labels=None,
        clear_old_boxes: bool = True,
        output_prob_thresh: float = 0.5,
        obj_id: int | None = None,
        rel_coordinates: bool = True,
    ) -> dict:
        """A phrase, a box (left, top, width, height as shares of the frame) or both begin anew; points begin or correct an object.
        Gives the objects of the frame."""
        session = self._session(session_id)
        clip = session.clip
        if not 0 <= frame_idx < clip.length:
            raise AssertionError(f"frame_idx={frame_idx} is out of range for a total of {clip.length} frames")
        size = np.array([clip.width, clip.height], np.float64)
        if points is not None:
            if text is not None or bounding_boxes is not None:
                raise AssertionError("When points are provided, text_str and boxes_xywh must be None.")
            if obj_id is None:
                raise AssertionError("When points are provided, obj_id must be provided.")
            places = array(points).astype(np.float64).reshape(-1, 2) * (size if rel_coordinates else 1.0)
            labels = whole(array(point_labels).reshape(-1), "point_labels")
            session.click(frame_idx, obj_id, Prompt(points=[tuple(place) for place in places.tolist()], labels=labels))
            return self._answer(session, session.found.get(frame_idx, {}), frame_idx)
        if text is None and bounding_boxes is None:
            raise AssertionError("at least one type of prompt (text, boxes) must be provided")
        boxes, labels = _boxes(bounding_boxes, bounding_box_labels)
        if boxes is not None:
            boxes = boxes * np.tile(size, 2)
        session.find(frame_idx, None if text == "visual" else text, boxes, labels)
        return self._answer(session, session.shown, frame_idx)

    def propagate_in_video(
        self,
        session_id,
        propagation_direction="both",
        start_frame_idx=None,
        max_frame_num_to_track=None,
        output_prob_thresh=0.5,
    ):
        """Yields the objects of each frame: forward from the first prompted frame, then backward from it."""
        session = self._session(session_id)
        if propagation_direction not in ("both", "forward", "backward"):
            raise ValueError(f"invalid propagation direction: {propagation_direction}")
        prompted = session.clicked | ({session.begun} - {None})
        if not prompted and start_frame_idx is None:
            raise RuntimeError(
                "No prompts are received on any frames. Please add prompt on at least one frame before propagation."
            )
        start = min(prompted) if start_frame_idx is None else start_frame_idx
        most = session.clip.length if max_frame_num_to_track is None else max_frame_num_to_track
        forward = range(start, min(start + most, session.clip.length - 1) + 1)
        backward = range(start - 1, max(start - most, 0) - 1, -1)
        ways = {"both": [(forward, False), (backward, True)], "forward": [(forward, False)], "backward": [(backward, True)]}
        for order, reverse in ways[propagation_direction]:
            for frame in session.follow(order, reverse):
                yield self._answer(session, session.found.get(frame, {}), frame)

    def remove_object(self, session_id: str, frame_idx: int = 0, obj_id: int = 0, is_user_action: bool = True) -> dict:
        """Ends an object."""
        session = self._session(session_id)
        if not session.knows(obj_id):
            raise AssertionError(f"Object {obj_id} not found in any GPU.")
        session.remove(obj_id)
        return {"is_success": True}

    def reset_session(self, session_id) -> dict:
        """Forgets all prompts and objects of a session."""
        self._session(session_id).reset()
        return {"is_success": True}

    def cancel_propagation(self, session_id) -> dict:
        """Frames are computed when they are asked for: who stops asking has cancelled."""
        self._session(session_id)
        return {"is_success": True}

    def close_session(self, session_id, run_gc_collect=True, clear_cache_threshold=80) -> dict:
        """Ends a session; one that is not there is no error."""
        self._sessions.pop(session_id, None)
        return {"is_success": True}

    def shutdown(self) -> None:
        """Ends all sessions."""
        self._sessions.clear()

    def _session(self, session_id) -> _Session:
        if session_id not in self._sessions:
            raise RuntimeError(f"Cannot find session {session_id}; it might have expired")
        return self._sessions[session_id]

    @staticmethod
    def _answer(session: _Session, found: dict[int, Mask], frame: int) -> dict:
        return {"frame_index": frame, "outputs": session.outputs(found, frame)}


class Sam3VideoPredictorMultiGPU(Sam3VideoPredictor):
    """The predictor with an argument for GPUs, of which one is used."""

    def __init__(self, *model_args, gpus_to_use=None, **model_kwargs):
        super().__init__(*model_args, **model_kwargs)


def _boxes(given, labels):
    """Boxes as left, top, right, bottom, and their labels."""
    if (given is None) != (labels is None):
        raise AssertionError("boxes and their labels are given together")
    if given is None:
        return None, None
    boxes = array(given).astype(np.float64)
    if boxes.ndim != 2 or boxes.shape[1] != 4 or not len(boxes):
        raise AssertionError(f"boxes are [boxes, 4], not {list(boxes.shape)}")
    if boxes.min() < 0 or boxes.max() > 1:
        raise AssertionError("boxes are shares of the frame, from 0 to 1")
    if len(boxes) != 1:
        raise RuntimeError(f"visual prompts (box as an initial prompt) should only have one box, but got {len(boxes)}")
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1), whole(array(labels).reshape(-1), "labels")
