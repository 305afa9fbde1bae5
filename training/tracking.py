"""Following objects through a clip with a trained model."""

import torch

from model import MemoryEntry, Prompt


def start_from_mask(model, features, mask):
    """Memory of a first frame whose mask [batch, 1, side, side] is given."""
    decoded = model.from_mask(features, mask)
    present = mask.flatten(1).any(dim=1, keepdim=True)
    # The pointer is replaced twice in the original: by the decoder's score and by the mask's emptiness.
    score = torch.where(present, decoded.score, torch.full_like(decoded.score, -1.0))
    pointer = model.pointer(decoded.tokens[:, 0], score > 0)
    side = features.coarse.shape[-1] * 16
    scaled = (mask * 20 - 10).sigmoid() * model.configuration.sigmoid_scale
    scaled = scaled + model.configuration.sigmoid_bias
    spatial = model.memory_encoder(features.coarse, scaled.view(-1, 1, side, side))
    absent = (~present)[..., None, None] * model.no_obj_embed_spatial[..., None, None]
    return MemoryEntry(spatial + absent, pointer)


def choose(decoded, points):
    """Index of the mask that stands for the object: a candidate up to one point, else the single mask."""
    if points <= 1:
        return decoded.best()
    return torch.zeros(len(decoded.iou), dtype=torch.long, device=decoded.iou.device)


@torch.no_grad()
def track_clip(model, frames, prompt):
    """Logits [frames, 1, h, w] and object scores [frames, 1] of one object prompted on frame 0."""
    prompted, recent, logits, scores = {}, {}, [], []
    for time in range(len(frames)):
        features = model.features(frames[time : time + 1])
        first = time == 0
        coarse = model.without_memory(features) if first else model.conditioned(features, prompted, recent, time)
        asked = prompt if first else Prompt.empty(1, frames.device)
        decoded = model.decode(coarse, features.fine, asked)
        index = choose(decoded, asked.labels.shape[1] if first else 0)
        mask, token = decoded.mask(index), decoded.tokens[torch.arange(1), index]
        entry = model.remember(features, mask, token, decoded.score, binary=first)
        (prompted if first else recent)[time] = entry
        mask = torch.where((decoded.score > 0)[..., None, None], mask, -1024.0)
        logits.append(mask)
        scores.append(decoded.score)
    return torch.cat(logits), torch.cat(scores)
