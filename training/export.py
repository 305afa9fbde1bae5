"""Writes a trained checkpoint for shipping, and reference inputs and outputs to compare with.

    python export.py --checkpoint average.safetensors --output DIRECTORY
"""

import argparse
import os

import torch
from safetensors.torch import load_file, safe_open, save_file

from configuration import METADATA_KEY, Configuration

# Automatic masks are kept above these; chosen by looking at photographs, where Meta's thresholds keep none.
EVERYTHING_METADATA = {"everything.pred_iou_thresh": "0.5", "everything.stability_score_thresh": "0.7"}


def save_half(state, configuration, path, dtype=torch.float16):
    tensors = {name: value.detach().to("cpu", dtype).contiguous() for name, value in state.items()}
    metadata = {"format": "pt", METADATA_KEY: configuration.to_json(), **configuration.loader_metadata()}
    metadata.update(EVERYTHING_METADATA)
    save_file(tensors, path, metadata=metadata)


def load_checkpoint(path):
    """State in single precision and configuration of a file this project wrote."""
    with safe_open(path, framework="pt") as file:
        configuration = Configuration.from_json(file.metadata()[METADATA_KEY])
    state = {name: value.float() for name, value in load_file(path).items()}
    return state, configuration


@torch.no_grad()
def reference_outputs(model, frames):
    """What the model answers on given frames [n, 3, side, side], for parity tests."""
    from model import Prompt
    from tracking import choose, track_clip

    features = model.features(frames[:1])
    side = frames.shape[-1]
    point = torch.tensor([[[0.5 * side, 0.5 * side]]])
    label = torch.ones(1, 1, dtype=torch.long)
    box = torch.tensor([[[0.25 * side, 0.25 * side], [0.75 * side, 0.75 * side]]])
    tensors = {"frames": frames, "click.point": point, "box.corners": box}
    tensors.update(
        coarse=features.coarse, stride4=features.fine[0], stride8=features.fine[1]
    )
    coarse = model.without_memory(features)
    first = model.decode(coarse, features.fine, Prompt(point, label))
    logits = first.mask(choose(first, 1)).clamp(-32, 32)
    asked = {
        "click": Prompt(point, label),
        "box": Prompt(box, torch.tensor([[2, 3]])),
        "refined": Prompt(
            torch.cat([point, point * 0.5], 1), torch.tensor([[1, 0]]), logits
        ),
    }
    tensors["refined.logits"] = logits
    for name, prompt in asked.items():
        decoded = model.decode(coarse, features.fine, prompt)
        tensors[f"{name}.masks"], tensors[f"{name}.iou"] = decoded.masks, decoded.iou
        tensors[f"{name}.score"] = decoded.score
    tensors["clip.masks"], tensors["clip.scores"] = track_clip(model, frames, asked["click"])
    return {name: value.contiguous() for name, value in tensors.items()}


def main():
    import held_out
    from model import Model

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--frames", type=int, default=4)
    options = parser.parse_args()
    os.makedirs(options.output, exist_ok=True)
    state, configuration = load_checkpoint(options.checkpoint)
    save_half(state, configuration, f"{options.output}/builtin-f16.safetensors")
    # The f32 file holds the f16 values, so that both files are the same model.
    rounded = {name: value.half().float() for name, value in state.items()}
    save_half(rounded, configuration, f"{options.output}/builtin-f32.safetensors", torch.float32)
    model = Model(configuration).eval()
    model.load_state_dict(rounded)
    bank = held_out.Library.draw(held_out.SEED, "cpu", (128, 64), "training")
    frames = held_out.draw_clip(bank, 7, options.frames, configuration.image_size).images
    save_file(reference_outputs(model, frames), f"{options.output}/reference.safetensors")


if __name__ == "__main__":
    main()
