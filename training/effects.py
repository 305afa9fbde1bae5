"""What a camera and a file format do to a drawn picture: light, colour, blur, noise, compression."""

import math

import torch
import torch.nn.functional as F

from randomness import constant


def cosine_basis(device):
    """The 8 × 8 orthonormal discrete cosine transform."""
    index = torch.arange(8, device=device, dtype=torch.float32)
    basis = torch.cos((2 * index[None] + 1) * index[:, None] * math.pi / 16) * 0.5
    basis[0] *= math.sqrt(0.5)
    return basis


def compress(images, step):
    """Rounds 8 × 8 cosine coefficients, coarser for high frequencies; `step` [n, 1, 1, 1] in [0, 1] units."""
    count, channels, side, _ = images.shape
    basis = cosine_basis(images.device)
    blocks = images.view(count, channels, side // 8, 8, side // 8, 8).transpose(3, 4)
    coefficients = basis @ blocks @ basis.T
    index = torch.arange(8, device=images.device)
    grid = 1 + 0.6 * (index[:, None] + index[None])
    size = step[..., None, None] * grid + 1e-4
    restored = basis.T @ ((coefficients / size).round() * size) @ basis
    return restored.transpose(3, 4).reshape(images.shape)


def light(random, images, frames):
    """Uneven light over the whole picture, the same in all frames of a clip."""
    count, side = images.shape[0] // frames, images.shape[-1]
    field = random.noise(count, 1, 2, 32)
    field = F.interpolate(field, size=(side, side), mode="bilinear", align_corners=False)
    strength = random.uniform(count, 1, 1, 1, low=0, high=0.25)
    return images * (1 + strength * field).clamp(0.3, 1.8).repeat_interleave(frames, 0)


def recolour(random, images, frames):
    """Gain, contrast, gamma and saturation for each clip."""
    count = images.shape[0] // frames
    draw = lambda low, high: random.uniform(count, 1, 1, 1, low=low, high=high).repeat_interleave(frames, 0)
    images = images.clamp(0.001, 1) ** draw(0.7, 1.4)
    grey = images.mean(1, keepdim=True)
    saturation = draw(0.3, 1.4) * (random.chance(0.93, count, 1, 1, 1).float().repeat_interleave(frames, 0))
    images = grey + (images - grey) * saturation
    return (images - 0.5) * draw(0.6, 1.2) + 0.5 + draw(-0.12, 0.12)


def blur(random, images, frames):
    """A blend of the picture and its blurred self, up to about one and a half pixels wide."""
    count = images.shape[0] // frames
    kernel = constant((1.0, 4.0, 6.0, 4.0, 1.0), images.device) / 16
    kernel = (kernel[:, None] * kernel[None]).expand(3, 1, 5, 5)
    soft = F.conv2d(F.pad(images, (2, 2, 2, 2), mode="replicate"), kernel, groups=3)
    amount = random.uniform(count, 1, 1, 1, low=-0.6, high=1).clamp(min=0)
    return torch.lerp(images, soft, amount.repeat_interleave(frames, 0))


def camera(random, images, frames=1):
    """All effects in the order light takes them; `frames` pictures in a row belong to one clip."""
    count = images.shape[0] // frames
    images = recolour(random, light(random, images, frames), frames)
    images = blur(random, images, frames)
    noise = random.uniform(count, 1, 1, 1, low=-0.03, high=0.06).clamp(min=0).repeat_interleave(frames, 0)
    images = (images + noise * random.normal(*images.shape)).clamp(0, 1)
    step = random.uniform(count, 1, 1, 1, low=-0.06, high=0.06).clamp(min=0).repeat_interleave(frames, 0)
    return torch.where(step > 0, compress(images, step), images).clamp(0, 1)
