"""Builders of SAM 3. Size and layout are read from the checkpoint."""

from __future__ import annotations

from .._shared import Model, open_model


def build_sam3_image_model(
    bpe_path=None,
    device="cuda",
    eval_mode=True,
    checkpoint_path=None,
    load_from_HF=True,
    enable_segmentation=True,
    enable_inst_interactivity=False,
    compile=False,
) -> Model:
    """The model of a checkpoint. The vocabulary is built in; nothing is fetched."""
    if checkpoint_path is None:
        raise ValueError("checkpoint_path is needed: fetch one with `cutout pull sam3` (gated), nothing is fetched here")
    model = Model(open_model(checkpoint_path, device))
    if not model.sam.finds:
        raise ValueError(f"{checkpoint_path}: {model.sam.description} does not find objects by phrase")
    return model
