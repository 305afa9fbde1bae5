"""What a camera and a file format do to a drawn picture: light, colour, blur, noise, compression."""

import dataclasses
import math

import torch
import torch.nn.functional as F


@dataclasses.dataclass
class Taken:
    """How each clip is taken: numbers [clips, 1, 1, 1], uneven light [clips, 1, 32, 32] and every pixel's grain."""

    uneven: torch.Tensor
    strength: torch.Tensor
    gamma: torch.Tensor
    saturation: torch.Tensor
    coloured: torch.Tensor
    contrast: torch.Tensor
    bias: torch.Tensor
    blur: torch.Tensor
    noise: torch.Tensor
    grain: torch.Tensor
    step: torch.Tensor


def draw_taken(random, clips, shape):
    """The randomness of `camera` for images of `shape`, drawn apart so that the rest can be compiled."""
    draw = lambda low, high: random.uniform(clips, 1, 1, 1, low=low, high=high)
    return Taken(
        uneven=random.noise(clips, 1, 2, 32),
        strength=draw(0, 0.25),
        gamma=draw(0.7, 1.4),
        saturation=draw(0.3, 1.4),
        coloured=random.chance(0.93, clips, 1, 1, 1).float(),
        contrast=draw(0.6, 1.2),
        bias=draw(-0.12, 0.12),
        blur=draw(-0.6, 1).clamp(min=0),
        noise=draw(-0.03, 0.06).clamp(min=0),
        grain=random.normal(*shape),
        step=draw(-0.06, 0.06).clamp(min=0),
    )


def cosine_basis(device):
    """The 8 × 8 orthonormal discrete cosine transform."""
    index = torch.arange(8, device=device, dtype=torch.float32)
    basis = torch.cos((2 * index[None] + 1) * index[:, None] * math.pi / 16) * 0.5
    return torch.cat([basis[:1] * math.sqrt(0.5), basis[1:]])


def compress(images, step):
    """Rounds 8 × 8 cosine coefficients, coarser for high frequencies; `step` [n, 1, 1, 1] in [0, 1] units."""
    count, channels, side, _ = images.shape
    basis = cosine_basis(images.device)
    # Both directions at once: one 64 × 64 matrix instead of many products of 8 × 8.
    both = torch.kron(basis, basis)
    blocks = images.view(count, channels, side // 8, 8, side // 8, 8).transpose(3, 4)
    coefficients = blocks.reshape(count, -1, 64) @ both.T
    index = torch.arange(8, device=images.device)
    grid = (1 + 0.6 * (index[:, None] + index[None])).view(1, 1, 64)
    size = step.view(count, 1, 1) * grid + 1e-4
    restored = ((coefficients / size).round() * size) @ both
    return restored.view(blocks.shape).transpose(3, 4).reshape(images.shape)


def blurred(images):
    """The picture under a 5 × 5 binomial kernel."""
    kernel, side = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16), images.shape[-1]
    padded = F.pad(images, (2, 2, 2, 2), mode="replicate")
    rows = sum(weight * padded[:, :, k : k + side] for k, weight in enumerate(kernel))
    return sum(weight * rows[..., k : k + side] for k, weight in enumerate(kernel))


def expose(images, taken, frames):
    """All effects in the order light takes them."""
    each = {field.name: getattr(taken, field.name) for field in dataclasses.fields(taken)}
    each = {
        name: value if len(value) == len(images) else value.repeat_interleave(frames, 0)
        for name, value in each.items()
    }
    side = images.shape[-1]
    uneven = F.interpolate(each["uneven"], size=(side, side), mode="bilinear", align_corners=False)
    images = images * (1 + each["strength"] * uneven).clamp(0.3, 1.8)
    images = images.clamp(0.001, 1) ** each["gamma"]
    grey = images.mean(1, keepdim=True)
    images = grey + (images - grey) * (each["saturation"] * each["coloured"])
    images = (images - 0.5) * each["contrast"] + 0.5 + each["bias"]
    images = torch.lerp(images, blurred(images), each["blur"])
    images = (images + each["noise"] * each["grain"]).clamp(0, 1)
    return torch.where(each["step"] > 0, compress(images, each["step"]), images).clamp(0, 1)


def camera(random, images, frames=1, expose=expose):
    """`frames` pictures in a row belong to one clip and share all but the grain."""
    return expose(images, draw_taken(random, len(images) // frames, images.shape), frames)
