"""Builders of SAM 1. Size and layout are read from the checkpoint, so that all of them do the same."""

from __future__ import annotations

from .._shared import Model, open_model


def build_sam_vit_h(checkpoint=None) -> Model:
    """The model of a checkpoint; without one, the built-in model."""
    return Model(open_model(checkpoint))


build_sam = build_sam_vit_h
build_sam_vit_l = build_sam_vit_h
build_sam_vit_b = build_sam_vit_h

sam_model_registry = {
    "default": build_sam_vit_h,
    "vit_h": build_sam_vit_h,
    "vit_l": build_sam_vit_l,
    "vit_b": build_sam_vit_b,
}
