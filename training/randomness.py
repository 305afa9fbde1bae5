"""Random numbers and smooth noise on any device, all from one explicit generator."""

import functools
import math

import torch
import torch.nn.functional as F


@functools.lru_cache(maxsize=None)
def constant(values, device, dtype=torch.float32):
    """A tensor of fixed numbers, made once, so that no step copies to the device."""
    return torch.tensor(values, dtype=dtype, device=device)


class Random:
    """A seeded source; every draw of the drawing programs goes through it.

    Without a seed it is the device's default generator, which recorded steps need.
    """

    def __init__(self, seed, device):
        self.device = torch.device(device)
        self.generator = None
        if seed is not None:
            self.generator = torch.Generator(device=self.device).manual_seed(seed)

    def uniform(self, *shape, low=0.0, high=1.0):
        return low + (high - low) * torch.rand(*shape, generator=self.generator, device=self.device)

    def log_uniform(self, *shape, low, high):
        return torch.exp(self.uniform(*shape, low=math.log(low), high=math.log(high)))

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.generator, device=self.device)

    def chance(self, probability, *shape):
        return torch.rand(*shape, generator=self.generator, device=self.device) < probability

    def integer(self, low, high, *shape):
        """Whole numbers in low..high, `high` left out."""
        return torch.randint(low, high, shape, generator=self.generator, device=self.device)

    def sign(self, *shape):
        return self.integer(0, 2, *shape).float() * 2 - 1

    def choice(self, weights, count):
        """[rows, count] indices drawn with replacement by [rows, options] weights."""
        waits = -torch.log(self.uniform(len(weights), count, weights.shape[1]).clamp(min=1e-12))
        return (waits / weights[:, None].clamp(min=1e-20)).argmin(2)

    def distinct(self, weights, count, least=1e-5):
        """[rows, count] indices drawn by [rows, options] weights, none twice before all above `least` are drawn."""
        waits = -torch.log(self.uniform(*weights.shape).clamp(min=1e-12)) / weights.clamp(min=1e-20)
        fit = (weights > least).sum(1, keepdim=True).clamp(min=1)
        turns = torch.arange(count, device=self.device)[None] % fit
        return waits.argsort(1).gather(1, turns)

    def noise(self, count, channels, cells, side):
        """Smooth noise, about normal, [count, channels, side, side] with `cells` lattice cells a side."""
        lattice = self.normal(count, channels, cells + 3, cells + 3)
        field = F.interpolate(lattice, scale_factor=side / cells, mode="bicubic", align_corners=False)
        start = int(1.5 * side / cells)
        return field[:, :, start : start + side, start : start + side]

    def octaves(self, count, channels, cells, side, octaves=4, gain=0.55):
        """Noise at doubling frequencies, scaled to about unit deviation."""
        total, weight = 0, 0.0
        for octave in range(octaves):
            frequency = min(cells * 2**octave, side // 2)
            total = total + gain**octave * self.noise(count, channels, frequency, side)
            weight += gain ** (2 * octave)
        return total / (0.7 * math.sqrt(weight))
