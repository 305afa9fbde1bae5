"""Clips as the video predictors read them."""

from __future__ import annotations

import pathlib
import tempfile

import numpy as np

from .. import Frames
from .._inputs import pixels


class Clip:
    """Frames of a clip by their number: a path, or a list of pictures. Frames that can only be read in their order wait in files."""

    def __init__(self, source):
        self._frames = self._pictures = self._folder = None
        if isinstance(source, (list, tuple)):
            self._pictures = [pixels(picture) for picture in source]
            self.length = len(self._pictures)
        else:
            self._open(source)
        if not self.length:
            raise RuntimeError(f"no images found in {source}")
        self.height, self.width = self.frame(0).shape[:2]

    def _open(self, path) -> None:
        frames = Frames(path)
        if frames.is_indexed:
            self._frames, self.length = frames, frames.length
            return
        self._folder = tempfile.TemporaryDirectory(prefix="cutout-clip-")
        self.length = 0
        for frame in frames:
            np.save(self._file(self.length), frame)
            self.length += 1

    def _file(self, index: int) -> pathlib.Path:
        return pathlib.Path(self._folder.name) / f"{index}.npy"

    def frame(self, index: int) -> np.ndarray:
        """The pixels of a frame, uint8 [height, width, 3]."""
        if self._pictures is not None:
            return self._pictures[index]
        return np.load(self._file(index)) if self._frames is None else self._frames.frame(index)
