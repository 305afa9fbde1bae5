"""Builders of SAM 3. Size and layout are read from the checkpoint."""

from __future__ import annotations

from .._shared import Model, open_model
from ..sam2.sam2_image_predictor import SAM2ImagePredictor


class Sam3Image(Model):
    """A model for pictures. Clicks are answered on the state of a `Sam3Processor`."""

    def predict_inst(self, inference_state, **kwargs):
        """Masks of points, boxes and earlier masks, as `SAM2ImagePredictor.predict` gives them."""
        return self._clicks(inference_state, "scene", "set_image").predict(**kwargs)

    def predict_inst_batch(self, inference_state, *args, **kwargs):
        """The same for the pictures of `set_image_batch`."""
        return self._clicks(inference_state, "scenes", "set_image_batch").predict_batch(*args, **kwargs)

    def _clicks(self, state: dict, key: str, setter: str) -> SAM2ImagePredictor:
        if key not in state:
            raise ValueError(f"the state has no picture: call {setter} of the processor")
        predictor = SAM2ImagePredictor(self)
        predictor.hold(state[key] if key == "scenes" else [state[key]], is_batch=key == "scenes")
        return predictor


def checkpoint_of_sam3(checkpoint_path, device) -> Sam3Image:
    """The model of a checkpoint that finds objects by phrase."""
    if checkpoint_path is None:
        raise ValueError("checkpoint_path is needed: fetch one with `cutout pull sam3` (gated), nothing is fetched here")
    model = Sam3Image(open_model(checkpoint_path, device))
    if not model.sam.finds:
        raise ValueError(f"{checkpoint_path}: {model.sam.description} does not find objects by phrase")
    return model


def build_sam3_image_model(
    bpe_path=None,
    device="cuda",
    eval_mode=True,
    checkpoint_path=None,
    load_from_HF=True,
    enable_segmentation=True,
    enable_inst_interactivity=False,
    compile=False,
) -> Sam3Image:
    """The model of a checkpoint. The vocabulary is built in; nothing is fetched."""
    return checkpoint_of_sam3(checkpoint_path, device)


def build_sam3_video_predictor(*model_args, gpus_to_use=None, **model_kwargs):
    """A predictor of videos by phrases."""
    from .model.sam3_video_predictor import Sam3VideoPredictorMultiGPU

    return Sam3VideoPredictorMultiGPU(*model_args, gpus_to_use=gpus_to_use, **model_kwargs)


def build_sam3_predictor(checkpoint_path=None, bpe_path=None, version="sam3.1", compile=False, warm_up=False, **kwargs):
    """A predictor of videos by phrases. The version is read from the checkpoint; what only a GPU needs is ignored."""
    if version not in ("sam3", "sam3.1"):
        raise ValueError(f"Unknown version: {version}. Use 'sam3' or 'sam3.1'.")
    return build_sam3_video_predictor(checkpoint_path=checkpoint_path, bpe_path=bpe_path, compile=compile)
