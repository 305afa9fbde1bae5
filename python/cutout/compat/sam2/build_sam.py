"""Builders of SAM 2. Size and layout are read from the checkpoint: the configuration file is not."""

from __future__ import annotations

from .._shared import Model, open_model
from .sam2_video_predictor import SAM2VideoPredictor


def build_sam2(
    config_file,
    ckpt_path=None,
    device="cuda",
    mode="eval",
    hydra_overrides_extra=[],
    apply_postprocessing=True,
    **kwargs,
) -> Model:
    """The model of a checkpoint; without one, the built-in model."""
    return Model(open_model(ckpt_path, device))


def build_sam2_video_predictor(
    config_file,
    ckpt_path=None,
    device="cuda",
    mode="eval",
    hydra_overrides_extra=[],
    apply_postprocessing=True,
    vos_optimized=False,
    **kwargs,
) -> SAM2VideoPredictor:
    """The video predictor of a checkpoint; without one, of the built-in model."""
    return SAM2VideoPredictor(open_model(ckpt_path, device))


def build_sam2_hf(model_id, **kwargs):
    """The model of a checkpoint that `cutout pull` or Hugging Face's tools have fetched."""
    return build_sam2(config_file=None, ckpt_path=_fetched(model_id), **kwargs)


def build_sam2_video_predictor_hf(model_id, **kwargs):
    """The video predictor of a checkpoint that `cutout pull` or Hugging Face's tools have fetched."""
    return build_sam2_video_predictor(config_file=None, ckpt_path=_fetched(model_id), **kwargs)


def _fetched(model_id: str) -> str:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ImportError(
            f"{model_id}: install huggingface_hub, or fetch the checkpoint with `cutout pull` and give its path to build_sam2"
        ) from error
    import pathlib

    folder = pathlib.Path(snapshot_download(model_id))
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.pt"))
    if not files:
        raise FileNotFoundError(f"{model_id}: no checkpoint in {folder}")
    return str(files[0])
