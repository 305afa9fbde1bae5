"""Objects through a video, as `sam2.sam2_video_predictor.SAM2VideoPredictor` gives them."""

from __future__ import annotations

import tempfile

import numpy as np

from ... import Prompt, Sam
from ..._arrays import tensor
from ..._inputs import array
from .._clip import Clip
from .._shared import Model, whole

# What Meta's code writes where an object has no mask.
NO_OBJECT = -1024.0


class _Session:
    """The tracker of one state, and what it must remember to speak of objects as Meta's code does."""

    def __init__(self, sam: Sam, clip: Clip):
        self.sam = sam
        self.clip = clip
        self.history = tempfile.TemporaryDirectory(prefix="cutout-track-")
        self.begin()

    def begin(self) -> None:
        self.tracker = self.sam.track(length=self.clip.length, history=self.history.name)
        # (object, frame) -> points, labels, box of the prompts given there.
        self.prompts: dict = {}
        # (object, frame) with a mask.
        self.masked: set = set()

    def visit(self, frame: int) -> None:
        self.tracker.visit(frame, self.clip.frame(frame))

    def prompted(self) -> set:
        """(object, frame) of all prompts."""
        return set(self.prompts) | self.masked


class SAM2VideoPredictor(Model):
    """A clip is opened once; prompts on any frame are then propagated. Memory does not grow with the clip: what is out of reach
    waits in files."""

    def __init__(self, sam: Sam):
        super().__init__(sam)
        if not sam.tracks:
            raise ValueError(f"{sam.description} cannot track: its checkpoint has no memory")

    @classmethod
    def from_pretrained(cls, model_id: str, **kwargs) -> "SAM2VideoPredictor":
        """The predictor of a checkpoint that `cutout pull` or Hugging Face's tools have fetched."""
        from .build_sam import build_sam2_video_predictor_hf

        return build_sam2_video_predictor_hf(model_id, **kwargs)

    def init_state(
        self,
        video_path,
        offload_video_to_cpu=False,
        offload_state_to_cpu=False,
        async_loading_frames=False,
    ) -> dict:
        """Opens a clip: a folder of frames, an animation, or with ffmpeg any video."""
        clip = Clip(video_path)
        return {
            "num_frames": clip.length,
            "video_height": clip.height,
            "video_width": clip.width,
            "obj_ids": [],
            "session": _Session(self.sam, clip),
        }

    def add_new_points_or_box(
        self,
        inference_state,
        frame_idx,
        obj_id,
        points=None,
        labels=None,
        clear_old_points=True,
        normalize_coords=True,
        box=None,
    ):
        """Points and a box of an object on a frame; gives (frame, ids, logits [objects, 1, height, width])."""
        session = _session(inference_state)
        if (points is not None) != (labels is not None):
            raise ValueError("points and labels must be provided together")
        if points is None and box is None:
            raise ValueError("at least one of points or box must be provided as input")
        if box is not None and not clear_old_points:
            raise ValueError(
                "a box comes before any point: it cannot be added without clearing old points (clear_old_points=True)"
            )
        unit = np.array([1.0, 1.0] if normalize_coords else [session.clip.width, session.clip.height])
        coords = np.zeros((0, 2)) if points is None else array(points).astype(np.float32).reshape(-1, 2) * unit
        marks = [] if labels is None else whole(array(labels).reshape(-1), "labels")
        corners = None if box is None else tuple((array(box).astype(np.float32).reshape(-1) * np.tile(unit, 2)).tolist())
        key = (obj_id, frame_idx)
        if not clear_old_points and key in session.prompts:
            old_coords, old_marks, corners = session.prompts[key]
            coords, marks = np.concatenate([old_coords, coords]), old_marks + marks
        prompt = Prompt(points=[tuple(point) for point in coords.tolist()], labels=marks, box=corners)
        answer = self._prompt(inference_state, frame_idx, obj_id, prompt)
        session.masked.discard(key)
        session.prompts[key] = (coords, marks, corners)
        return answer

    def add_new_points(self, *args, **kwargs):
        """The old name of `add_new_points_or_box`."""
        return self.add_new_points_or_box(*args, **kwargs)

    def add_new_mask(self, inference_state, frame_idx, obj_id, mask):
        """The mask [height, width] of an object on a frame."""
        found = array(mask)
        if found.ndim != 2:
            raise AssertionError(f"a mask has two axes, not {found.ndim}")
        session = _session(inference_state)
        answer = self._prompt(inference_state, frame_idx, obj_id, found.astype(np.bool_))
        session.prompts.pop((obj_id, frame_idx), None)
        session.masked.add((obj_id, frame_idx))
        return answer

    def _prompt(self, state, frame: int, object_id: int, prompt):
        session = _session(state)
        self._check_frame(state, frame)
        session.visit(frame)
        session.tracker.prompt(frame, object_id, prompt)
        if object_id not in state["obj_ids"]:
            state["obj_ids"].append(object_id)
        return self._answer(state, session.tracker.masks())

    def propagate_in_video(
        self,
        inference_state,
        start_frame_idx=None,
        max_frame_num_to_track=None,
        reverse=False,
    ):
        """Yields (frame, ids, logits [objects, 1, height, width]) from the first prompted frame on, or backwards."""
        session = _session(inference_state)
        prompted = session.prompted()
        if not prompted:
            raise RuntimeError("No input points or masks are provided for any object; please add inputs first.")
        start = min(frame for _, frame in prompted) if start_frame_idx is None else start_frame_idx
        count = inference_state["num_frames"]
        self._check_frame(inference_state, start)
        most = count if max_frame_num_to_track is None else max_frame_num_to_track
        if reverse:
            order = range(start, max(start - most, 0) - 1, -1) if start > 0 else []
        else:
            order = range(start, min(start + most, count - 1) + 1)
        for frame in order:
            tracked = session.tracker.push_at(frame, session.clip.frame(frame), backward=reverse)
            yield self._answer(inference_state, tracked)

    def clear_all_prompts_in_frame(self, inference_state, frame_idx, obj_id, need_output=True):
        """Withdraws the prompts of an object on a frame."""
        session = _session(inference_state)
        session.visit(frame_idx)
        session.tracker.clear_prompts(frame_idx, obj_id)
        session.prompts.pop((obj_id, frame_idx), None)
        session.masked.discard((obj_id, frame_idx))
        return self._answer(inference_state, session.tracker.masks()) if need_output else None

    def reset_state(self, inference_state) -> None:
        """Forgets all objects."""
        _session(inference_state).begin()
        inference_state["obj_ids"].clear()

    def remove_object(self, inference_state, obj_id, strict=False, need_output=True):
        """Forgets an object; gives the ids left and, for frames that had prompts of it, their masks."""
        session = _session(inference_state)
        if obj_id not in inference_state["obj_ids"]:
            if not strict:
                return inference_state["obj_ids"], []
            raise RuntimeError(
                f"Cannot remove object id {obj_id} as it doesn't exist. "
                f"All existing object ids: {inference_state['obj_ids']}."
            )
        frames = sorted(frame for known, frame in session.prompted() if known == obj_id)
        session.tracker.remove(obj_id)
        inference_state["obj_ids"].remove(obj_id)
        session.prompts = {key: value for key, value in session.prompts.items() if key[0] != obj_id}
        session.masked = {key for key in session.masked if key[0] != obj_id}
        updated = []
        if need_output and inference_state["obj_ids"]:
            for frame in frames:
                session.visit(frame)
                _, _, masks = self._answer(inference_state, session.tracker.masks())
                updated.append((frame, masks))
        return inference_state["obj_ids"], updated

    def _answer(self, state, tracked):
        masks = {mask.id: mask for mask in tracked.objects}
        shape = (len(state["obj_ids"]), 1, state["video_height"], state["video_width"])
        logits = np.full(shape, NO_OBJECT, np.float32)
        for place, object_id in enumerate(state["obj_ids"]):
            if object_id in masks:
                logits[place, 0] = masks[object_id].full_logits()
        return tracked.frame, list(state["obj_ids"]), tensor(logits)

    @staticmethod
    def _check_frame(state, frame: int) -> None:
        if not 0 <= frame < state["num_frames"]:
            raise IndexError(f"frame {frame} of {state['num_frames']}")


def _session(state) -> _Session:
    session = state.get("session")
    if session is None:
        raise RuntimeError("the state has no session: begin with init_state")
    return session
