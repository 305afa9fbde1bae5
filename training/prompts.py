"""Chooses objects and prompts: first clicks, boxes with jitter, and clicks where a mask is wrong.

Training works at the resolution of the mask logits, a quarter of the image's; coordinates
that leave this module are input pixels.
"""

import torch
import torch.nn.functional as F


def target_weights(scene, smallest=0.003, part_weight=0.15, stride=1):
    """How likely each code is to be segmented, [n, layers, 3]: a layer's whole, then its parts.

    Areas are counted on every `stride`th row and column.
    """
    code = (scene.layers * 3 + scene.parts)[:, ::stride, ::stride]
    size = 3 * scene.drawn.shape[1]
    area = torch.stack([(code == value).flatten(1).sum(1) for value in range(size)], 1).float()
    area = area.view(len(code), -1, 3) * stride**2
    whole = area.sum(2)
    pixels = scene.layers[0].numel()
    least, most = smallest * pixels, 0.7 * pixels
    seen = (whole > least) & (whole > 0.2 * scene.drawn) & (whole < most)
    share = area / whole.clamp(min=1)[..., None]
    part = seen[..., None] & (area > least) & (share > 0.08) & (share < 0.85)
    weights = part.float() * part_weight
    weights[..., 0] = seen.float()
    weights[:, 0] = 0
    # A scene without a fit target falls back on its largest layer.
    fallback = F.one_hot(whole[:, 1:].argmax(1) + 1, whole.shape[1]).float() * 1e-6
    weights[..., 0] += fallback
    return weights


def choose_targets(random, scene, count, **fitness):
    """Codes [n, count] of things to segment: 3 * layer for a whole, 3 * layer + part for a part."""
    return random.choice(target_weights(scene, **fitness).flatten(1), count)


def choose_varied_targets(random, scene, count, **fitness):
    """Codes as of `choose_targets`, but no whole comes again before all others of its scene."""
    weights = target_weights(scene, **fitness)
    codes = random.choice(weights.flatten(1), count)
    return torch.where(codes % 3 == 0, 3 * random.distinct(weights[..., 0], count), codes)


def choose_tracks(random, scene, frames, count, smallest=0.003, stride=2):
    """Codes [clips, count] of objects plain to see on a first frame, first those covered or gone on the way."""
    layers, grid = range(scene.drawn.shape[1]), scene.layers[:, ::stride, ::stride]
    seen = torch.stack([(grid == value).flatten(1).sum(1) for value in layers], 1).float() * stride**2
    share = (seen / scene.drawn.clamp(min=1)).unflatten(0, (-1, frames))
    seen = seen.unflatten(0, (-1, frames))
    pixels = scene.layers[0].numel()
    first = seen[:, 0]
    fit = (first > smallest * pixels) & (first < 0.7 * pixels) & (share[:, 0] > 0.4)
    covered = (share[:, 0] - share.amin(1)).clamp(min=0)
    gone = (seen.amin(1) == 0).float()
    weights = fit.float() * (0.1 + covered + 0.8 * gone)
    weights[:, 0] = 0
    weights += F.one_hot(first[:, 1:].argmax(1) + 1, weights.shape[1]).float() * 1e-6
    return 3 * random.distinct(weights, count)


def target_masks(scene, codes):
    """Boolean masks [n, count, side, side] of the codes."""
    layers, parts = scene.layers[:, None], scene.parts[:, None]
    layer, part = (codes // 3)[..., None, None], (codes % 3)[..., None, None]
    return (layers == layer) & ((part == 0) | (parts == part))


def shrink(masks):
    """Boolean [n, count, side, side] to soft [n * count, side / 4, side / 4]."""
    return F.avg_pool2d(masks.flatten(0, 1)[:, None].float(), 4)[:, 0]


def depth(region, steps):
    """How many 3 × 3 erosions each cell of a boolean [n, h, w] region survives, up to `steps`."""
    left = region.float()[:, None]
    total = left.clone()
    for _ in range(steps - 1):
        left = -F.max_pool2d(-left, 3, 1, 1)
        total += left
    return total[:, 0]


def click(random, region, weight=None):
    """A click [n, 2] in input pixels inside each region: most of them deep, the others anywhere.

    `weight` [n, h, w] breaks ties where a region is empty.
    """
    count, _, width = region.shape
    jitter = random.uniform(*region.shape)
    deep = depth(region, 6) + jitter
    anywhere = region.float() * (1 + jitter)
    score = torch.where(random.chance(0.65, count, 1, 1), deep * region, anywhere)
    if weight is not None:
        score = score + 1e-3 * weight
    cell = score.flatten(1).argmax(1)
    place = torch.stack([cell % width, cell // width], 1).float()
    return place * 4 + 1.5 + random.uniform(count, 2, low=-1.5, high=1.5)


def boxes(random, masks, jitter=0.05):
    """Corners [n, 2, 2] in pixels round boolean masks [n, side, side]; half are moved by up to `jitter` of the size."""
    side = masks.shape[-1]
    axis = torch.arange(side, device=masks.device, dtype=torch.float32)
    corners = []
    for dimension in (1, 2):
        hit = masks.any(dimension)
        low = torch.where(hit, axis, side).amin(1).clamp(max=side - 1)
        high = torch.where(hit, axis, -1).amax(1).clamp(min=0)
        corners.append(torch.stack([low, high], 1))
    box = torch.stack(corners, 2)
    span = (box[:, 1] - box[:, 0])[:, None]
    reach = (jitter * span).clamp(max=20) * random.chance(0.5, len(box), 1, 1)
    moved = box + random.uniform(*box.shape, low=-1, high=1) * reach
    return moved.clamp(0, side - 1)


def correction(random, logits, target):
    """Clicks [n, 2] and labels [n] where the larger error lies; logits and soft target [n, h, w]."""
    found, wanted = logits > 0, target > 0.5
    missing, extra = wanted & ~found, found & ~wanted
    positive = missing.flatten(1).sum(1) >= extra.flatten(1).sum(1)
    region = torch.where(positive[:, None, None], missing, extra)
    return click(random, region, weight=target), positive.long()
