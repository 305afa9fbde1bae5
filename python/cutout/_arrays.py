"""Answers in the form that programs for PyTorch expect, whether or not PyTorch is there."""

from __future__ import annotations

import sys

import numpy as np


class Array(np.ndarray):
    """An array that answers the calls with which programs bring tensors of PyTorch to the processor."""

    def cpu(self) -> "Array":
        return self

    def detach(self) -> "Array":
        return self

    def to(self, *_args, **_kwargs) -> "Array":
        return self

    def float(self) -> "Array":
        return self.astype(np.float32).view(Array)

    def numpy(self) -> np.ndarray:
        return self.view(np.ndarray)


def tensor(values):
    """A tensor of PyTorch if the program uses PyTorch, else an `Array`."""
    found = np.asarray(values)
    torch = sys.modules.get("torch")
    return found.view(Array) if torch is None else torch.from_numpy(np.ascontiguousarray(found))
