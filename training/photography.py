"""What a camera does to a scene with depth: focus, exposure, sharpening, colour, noise and compression."""

import torch
import torch.nn.functional as F

from effects import draw_taken, expose


def focus(random, images, depth, frames):
    """Blurs what is far from the plane of focus, for some of the clips."""
    side, clips = images.shape[-1], len(images) // frames
    spread = lambda value: value.repeat_interleave(frames, 0)
    middle = depth[::frames, side // 3 : 2 * side // 3 : 8, side // 3 : 2 * side // 3 : 8].flatten(1)
    plane = spread(middle.gather(1, random.integer(0, middle.shape[1], clips, 1)))[..., None]
    strength = spread((random.uniform(clips, 1, 1, low=-2.5, high=2.5)).clamp(min=0))
    circle = (strength * (1 - plane / depth.clamp(min=0.05)).abs() - 0.1).clamp(0, 1.5)[:, None]
    small = F.avg_pool2d(images, 2)
    soft = F.interpolate(smooth(small), size=(side, side), mode="bilinear", align_corners=False)
    tiny = F.avg_pool2d(small, 4)
    softer = F.interpolate(smooth(tiny), size=(side, side), mode="bilinear", align_corners=False)
    # The circle is itself smoothed, so that blur does not end at an outline.
    circle = F.interpolate(F.avg_pool2d(circle, 4), size=(side, side), mode="bilinear", align_corners=False)
    images = torch.lerp(images, soft, (circle * 2).clamp(0, 1))
    return torch.lerp(images, softer, ((circle - 0.5)).clamp(0, 1))


def smooth(images):
    return F.avg_pool2d(F.avg_pool2d(F.pad(images, (2, 2, 2, 2), mode="replicate"), 3, 1), 3, 1)


def levelled(random, images, frames):
    """Spreads each picture's tones as a camera's automatic exposure does, more or less."""
    grey = images[:, :, ::8, ::8].mean(1).flatten(1).sort(1).values
    low, high = (grey[:, int(share * grey.shape[1])].view(-1, 1, 1, 1) for share in (0.02, 0.97))
    amount = random.uniform(len(images) // frames, 1, 1, 1, low=0.3, high=1.0).repeat_interleave(frames, 0)
    bottom, top = low * amount, 1 + (high.clamp(min=0.15) - 1) * amount
    return ((images - bottom) / (top - bottom).clamp(min=0.15)).clamp(0, 1)


def photographed(random, images, depth, frames=1, expose=expose):
    """Focus, exposure, colour, noise and compression; milder than for flat scenes, whose tones are drawn.

    `frames` pictures in a row belong to one clip and share all but the grain.
    """
    clips = len(images) // frames
    images = levelled(random, focus(random, images, depth, frames), frames)
    taken = draw_taken(random, clips, images.shape)
    draw = lambda low, high: random.uniform(clips, 1, 1, 1, low=low, high=high)
    taken.saturation, taken.contrast, taken.bias = draw(0.5, 1.3), draw(0.8, 1.2), draw(-0.08, 0.08)
    taken.coloured, taken.gamma = random.chance(0.97, clips, 1, 1, 1).float(), draw(0.75, 1.35)
    taken.noise = draw(-0.03, 0.04).clamp(min=0)
    # Below nothing it sharpens.
    taken.blur = draw(-0.7, 0.9)
    return expose(images, taken, frames)
