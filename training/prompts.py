"""Chooses objects and prompts: first clicks, several at once, boxes with jitter, and clicks where a mask is wrong.

Training works at the resolution of the mask logits, a quarter of the image's; coordinates
that leave this module are input pixels.
"""

import torch
import torch.nn.functional as F

from randomness import constant


# Codes of a layer: 0 is its whole, below INNER are its parts, INNER + k is what lies inside part k.
CODES = 32
INNER = 16


def code_areas(scene, stride=4):
    """Pixels [n, layers, CODES] that each code has, counted on every `stride`th row and column."""
    layers = scene.drawn.shape[1]
    code = (scene.layers.long() * CODES + scene.parts)[:, ::stride, ::stride].flatten(1)
    area = torch.zeros(len(code), layers * CODES, device=code.device)
    area.scatter_add_(1, code, torch.ones_like(code, dtype=torch.float32))
    shown = area.view(len(code), layers, 2, INNER) * stride**2
    outer = shown.sum(2)
    outer[..., 0] = shown.sum((2, 3))
    return torch.cat([outer, shown[:, :, 1]], 2)


def fit_parts(area, least):
    """Which parts are large enough, and neither specks nor nearly all of their whole, [n, layers, CODES]."""
    whole = area[..., :1]
    share = area / whole.clamp(min=1)
    fit = (area > 0.6 * least) & (share > 0.02) & (share < 0.85) & (whole > least)
    fit[..., 0] = False
    fit[:, 0] = False
    return fit.float()


def fallback(weights, area):
    """Lets a scene without a fit target fall back on its largest layer."""
    largest = area[:, 1:, 0].argmax(1) + 1
    weights[:, 0] = 0
    return weights + F.one_hot(largest, weights.shape[1]).float() * 1e-6


def mixed(random, wholes, parts, part_share):
    """Codes [n, count]: those of layers `wholes` [n, count], a share of them [n, 1] replaced by fit parts if any."""
    any_part = parts.flatten(1).sum(1, keepdim=True) > 0
    chosen = random.distinct(parts.flatten(1), wholes.shape[1])
    return torch.where((random.uniform(*wholes.shape) < part_share) & any_part, chosen, CODES * wholes)


def choose_targets(random, scene, count, part_share, smallest=0.003):
    """Codes [n, count] to segment; no whole comes again before all others of its scene, large ones come first."""
    area, pixels = code_areas(scene), scene.layers[0].numel()
    whole, least = area[..., 0], smallest * pixels
    seen = (whole > least) & (whole > 0.2 * scene.drawn) & (whole < 0.7 * pixels)
    weights = seen.float() * (whole / (0.02 * pixels)).clamp(0.3, 1)
    wholes = random.distinct(fallback(weights, area), count)
    return mixed(random, wholes, fit_parts(area, least), part_share)


def choose_tracks(random, scene, frames, count, part_share, smallest=0.003):
    """Codes [clips, count] of what is plain to see on a first frame, first wholes covered or gone on the way."""
    area, pixels = code_areas(scene), scene.layers[0].numel()
    seen = area[..., 0]
    share = (seen / scene.drawn.clamp(min=1)).unflatten(0, (-1, frames))
    seen = seen.unflatten(0, (-1, frames))
    first = seen[:, 0]
    fit = (first > smallest * pixels) & (first < 0.7 * pixels) & (share[:, 0] > 0.4)
    covered = (share[:, 0] - share.amin(1)).clamp(min=0)
    gone = (seen.amin(1) == 0).float()
    wholes = random.distinct(fallback(fit.float() * (0.1 + covered + 0.8 * gone), area[::frames]), count)
    return mixed(random, wholes, fit_parts(area[::frames], smallest * pixels), part_share)


def target_masks(scene, codes):
    """Boolean masks [n, count, side, side] of the codes."""
    layers, parts = scene.layers[:, None], scene.parts[:, None]
    layer, part = (codes // CODES)[..., None, None], (codes % CODES)[..., None, None]
    inside = (part < INNER) & (parts == part + INNER)
    return (layers == layer) & ((part == 0) | (parts == part) | inside)


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


def spread_clicks(random, region, count, weight):
    """`count` clicks [n, count, 2] in input pixels inside boolean regions [n, h, w], mostly far from each other."""
    many, height, width = region.shape
    y = torch.arange(height, device=region.device, dtype=torch.float32)[:, None]
    x = torch.arange(width, device=region.device, dtype=torch.float32)[None]
    inner = depth(region, 4).clamp(max=4) * region
    size = region.flatten(1).sum(1).clamp(min=1).float().sqrt().view(-1, 1, 1)
    # From mere chance to farthest first, drawn anew for each object.
    keen = random.uniform(many, 1, 1)
    near, places = torch.ones_like(inner), []
    for _ in range(count):
        chance = random.uniform(many, height, width)
        score = region * (keen * (near / size).clamp(max=1.5) + (1.2 - keen) * chance) * (0.25 + 0.25 * inner)
        cell = (score + 1e-4 * weight).flatten(1).argmax(1)
        place = torch.stack([cell % width, cell // width], 1).float()
        places.append(place * 4 + 1.5 + random.uniform(many, 2, low=-1.5, high=1.5))
        distance = torch.sqrt((x - place[:, 0, None, None]) ** 2 + (y - place[:, 1, None, None]) ** 2)
        near = distance if len(places) == 1 else torch.minimum(near, distance)
    return torch.stack(places, 1)


def click_beside(random, region, reach=8):
    """A click [n, 2] in input pixels outside each boolean region [n, h, w], at most `reach` cells from it."""
    grown = lambda size: F.max_pool2d(region.float()[:, None], 2 * size + 1, 1, size)[:, 0]
    return click(random, (grown(reach) > grown(1)))


def boxes(random, masks, jitter=0.05, loose=0.0):
    """Corners [n, 2, 2] in pixels round boolean masks [n, side, side]; half are moved by up to `jitter` of the size.

    A share `loose` of all is then enlarged, each side by up to 0.15 of the size.
    """
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
    if loose > 0:
        outward = random.uniform(*box.shape, high=0.15) * span * random.chance(loose, len(box), 1, 1)
        moved = moved + outward * constant(((-1.0, -1.0), (1.0, 1.0)), masks.device)
    return moved.clamp(0, side - 1)


def correction(random, logits, target):
    """Clicks [n, 2] and labels [n] where the larger error lies; logits and soft target [n, h, w]."""
    found, wanted = logits > 0, target > 0.5
    missing, extra = wanted & ~found, found & ~wanted
    positive = missing.flatten(1).sum(1) >= extra.flatten(1).sum(1)
    region = torch.where(positive[:, None, None], missing, extra)
    return click(random, region, weight=target), positive.long()
