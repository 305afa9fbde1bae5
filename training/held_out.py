"""The held-out set: reserved seeds, and kinds of shape and texture that training never draws."""

import dataclasses

import torch
import torch.nn.functional as F

import prompts
from clips import move, times
from depth_scenes import Painter
from effects import camera
from randomness import Random
from scenes import Library, Scene, compose, draw_cast, draw_pose

SEED = 900001
LAYERS = 11
OBJECTS = 7


@dataclasses.dataclass
class Example:
    """Images [n, 3, side, side] and masks [n, targets, side, side]; a clip's frames are its images.

    `shown` [n, targets] is the share of each target's drawn pixels that nothing covers.
    """

    images: torch.Tensor
    masks: torch.Tensor
    shown: torch.Tensor


def library(kinds, device):
    return Library.draw(SEED, device, (1024, 512), kinds)


def rounded(images):
    """What an 8-bit file keeps of a picture."""
    return (images * 255).round() / 255


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


def target_masks(scene, codes):
    """Boolean masks [n, count, side, side] of the codes."""
    layers, parts = scene.layers[:, None], scene.parts[:, None]
    layer, part = (codes // 3)[..., None, None], (codes % 3)[..., None, None]
    return (layers == layer) & ((part == 0) | (parts == part))


def draw_images(bank, seed, count, targets, side=512, part_weight=0.0):
    """Scenes of seven objects on average, each with `targets` things to segment."""
    random = Random(SEED + seed, bank.shapes.device)
    cast = draw_cast(random, bank, count, LAYERS, OBJECTS)
    scene = compose(bank, cast, draw_pose(random, count, LAYERS), side)
    images = rounded(camera(random, scene.images))
    codes = choose_targets(random, scene, targets, smallest=0.005, part_weight=part_weight)
    masks = target_masks(scene, codes)
    return Example(images, masks, shown(scene, masks, codes // 3))


def draw_clip(bank, seed, frames=30, side=512):
    """One clip in which the object to follow is crossed; the one most hidden on the way is chosen."""
    random = Random(SEED + seed, bank.shapes.device)
    cast = draw_cast(random, bank, 1, LAYERS, OBJECTS)
    pose = draw_pose(random, 1, LAYERS, sizes=(0.15, 0.7))
    pace = random.uniform(1, 1, low=0.7, high=1.6)
    moved, cast = move(random, pose, frames, pace), cast.repeat(frames)
    # Frame by frame, so that a clip at full size needs little memory.
    pieces = [
        compose(bank, take(cast, index), take(moved, index), side) for index in range(frames)
    ]
    scene = Scene(*(torch.cat([getattr(piece, name) for piece in pieces]) for name in vars(pieces[0])))
    images = rounded(camera(random, scene.images, frames))
    layer = crossed_layer(scene)
    masks = (scene.layers == layer)[:, None]
    return Example(images, masks, shown(scene, masks, torch.full((frames, 1), layer, device=masks.device)))


def painter(kinds, device):
    """Draws scenes with depth; makers of solids and natural textures are those of training, flat kinds are `kinds`."""
    return Painter(library(kinds, device), device, SEED + 1, (512, 256), 64)


def draw_depth_images(painter, seed, count, targets, part_share=0.0, side=512):
    """Scenes with depth, each with `targets` things to segment, of which `part_share` are parts."""
    random = Random(SEED + seed, painter.device)
    scene = painter.images(random, count, side)
    codes = prompts.choose_targets(random, scene, targets, part_share, smallest=0.005)
    masks = prompts.target_masks(scene, codes)
    return Example(rounded(scene.images), masks, shown(scene, masks, codes // prompts.CODES))


def draw_depth_clip(painter, seed, frames=30, side=512):
    """A clip with depth; the object to follow is the one most hidden on the way."""
    random = Random(SEED + seed, painter.device)
    pace = random.uniform(1, 1, 1, low=0.5, high=1.3)
    scene = painter.clips(random, 1, side, times(frames, painter.device) * pace)
    layer = crossed_layer(scene)
    masks = (scene.layers == layer)[:, None]
    numbers = torch.full((frames, 1), layer, device=masks.device)
    return Example(rounded(scene.images), masks, shown(scene, masks, numbers))


def shown(scene, masks, layers):
    """The share [n, targets] of what was drawn of the targets' layers that their masks have."""
    return masks.flatten(2).sum(2) / scene.drawn.gather(1, layers.long()).clamp(min=1)


def take(value, index):
    fields = {f.name: getattr(value, f.name)[index : index + 1] for f in dataclasses.fields(value)}
    return type(value)(**fields)


def crossed_layer(scene):
    """The layer plain to see at first, there in most frames, and most covered in between."""
    layers = range(scene.drawn.shape[1])
    seen = torch.stack([(scene.layers == index).flatten(1).sum(1) for index in layers], 1).float()
    share = seen / scene.drawn.clamp(min=1)
    pixels = scene.layers[0].numel()
    fit = (seen[0] > 0.006 * pixels) & (seen[0] < 0.5 * pixels) & (share[0] > 0.6)
    fit &= (seen > 0.001 * pixels).float().mean(0) >= 0.6
    fit[0] = False
    score = torch.where(fit, share[0] - share.amin(0), torch.full_like(share[0], -1.0))
    return int(score.argmax()) if bool(fit.any()) else int(seen[0, 1:].argmax()) + 1
