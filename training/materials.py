"""What surfaces of scenes with depth look like: textures with natural spectra, pictures, and materials made of them."""

import math

import torch
import torch.nn.functional as F

from randomness import constant
from solids import MATERIAL


def natural_textures(random, count, side=256, chunk=64):
    """Noise whose power falls with frequency, in related colours, [count, 3, side, side]."""
    axis = torch.fft.fftfreq(side, device=random.device) * side
    pieces = []
    for _ in range(-(-count // chunk)):
        draw = lambda low, high: random.uniform(chunk, 1, 1, 1, low=low, high=high)
        turn, stretch = draw(0, math.pi), torch.exp(draw(0, 2.3) * random.chance(0.4, chunk, 1, 1, 1))
        y, x = axis[:, None], axis[None]
        along, across = x * turn.cos() + y * turn.sin(), y * turn.cos() - x * turn.sin()
        frequency = torch.sqrt((along * stretch) ** 2 + (across / stretch) ** 2 + 1)
        # Slope of the amplitude: 1 is as in landscapes, more is smooth as clouds.
        height = frequency ** -draw(0.7, 2.0) * (frequency > draw(0, 6))
        noise = torch.fft.ifft2(torch.fft.fft2(random.normal(chunk, 3, side, side)) * height).real
        noise = noise / noise.std((2, 3), keepdim=True).clamp(min=1e-6)
        hard = draw(-1, 3).clamp(min=0)
        noise = torch.where(hard > 0, torch.tanh(noise * hard) / torch.tanh(hard.clamp(min=0.1)), noise)
        base = earthen(random, chunk)[:, :, None, None]
        light = noise[:, :1] * random.uniform(chunk, 1, 1, 1, low=0.03, high=0.22)
        hue = random.normal(chunk, 3, 1, 1) * 0.08 * noise[:, 1:2]
        spots = random.chance(0.3, chunk, 1, 1, 1) * (noise[:, 2:] > draw(0.3, 1.8))
        other = random.normal(chunk, 3, 1, 1) * 0.25 * spots
        drawn = base + light * (0.5 + base) + hue + other
        drawn = patched(random, drawn, noise)
        pieces.append(drawn.clamp(0, 1))
    return torch.cat(pieces)[:count]


def patched(random, drawn, noise):
    """Gives a quarter of textures [n, 3, side, side] large patches of another colour, as coats and prints have them."""
    count, _, side, _ = drawn.shape
    coarse = random.noise(count, 1, 3, side) + 0.15 * noise[:, :1]
    edge = random.uniform(count, 1, 1, 1, low=-0.6, high=0.6)
    cover = ((coarse - edge) * random.log_uniform(count, 1, 1, 1, low=3, high=60) + 0.5).clamp(0, 1)
    other = earthen(random, count)[:, :, None, None] + 0.08 * noise[:, 1:2]
    return torch.where(random.chance(0.25, count, 1, 1, 1), torch.lerp(drawn, other, cover), drawn)


def earthen(random, *shape):
    """Colours as things have them, [*shape, 3]: mostly dull, some strong, some near black or white."""
    grey = random.uniform(*shape, 1, low=0.08, high=0.92)
    strength = random.uniform(*shape, 1) ** 1.5 * random.chance(0.8, *shape, 1)
    hue = random.uniform(*shape, 3)
    hue = hue - hue.mean(-1, keepdim=True)
    warm = constant((0.12, 0.02, -0.14), random.device) * random.uniform(*shape, 1, low=-0.3, high=1.0)
    return (grey + warm * 0.7 + hue * strength * 1.2).clamp(0.03, 0.97)


class Banks:
    """Textures at five sizes, RGBA bytes, and profiles; natural textures first, then patterns, then pictures."""

    def __init__(self, random, library, natural=3072, patterns=1024):
        drawn = torch.cat([natural_textures(random, natural).half(), library.textures[:patterns]])
        self.natural, self.plain, self.count, self.levels = natural, len(drawn), 0, [None] * 5
        self.append(drawn)
        axis = torch.linspace(-1.25, 1.25, 128, device=random.device).abs()
        square = 0.93 - (axis[None] ** 8 + axis[:, None] ** 8) ** 0.125
        shapes = library.shapes.float()
        self.profiles = torch.cat([shapes, square[None]]).contiguous()
        self.square = len(shapes)

    def append(self, drawn):
        """Adds textures [n, 3, 256, 256]."""
        for level in range(5):
            rgba = F.pad(drawn.permute(0, 2, 3, 1).float().clamp(0, 1) * 255, (0, 1)).round().byte()
            before = self.levels[level]
            self.levels[level] = rgba.contiguous() if before is None else torch.cat([before, rgba]).contiguous()
            drawn = F.avg_pool2d(drawn.float(), 2)
        self.count = len(self.levels[0])

    def some_picture(self, random, *shape):
        """Numbers of pictures, or of any texture while there are none."""
        first = self.plain if self.count > self.plain else 0
        return random.uniform(*shape, low=first, high=self.count - 0.01).floor()


def draw_materials(random, banks, *shape):
    """Rows [*shape, MATERIAL]: paint, plastic, metal, stone, cloth, wood, prints."""
    m = torch.zeros(*shape, MATERIAL, device=random.device)
    u = lambda low=0.0, high=1.0: random.uniform(*shape, low=low, high=high)
    chance = lambda probability: random.chance(probability, *shape)
    patterned = chance(0.14)
    number = torch.where(patterned, u(banks.natural, banks.plain - 0.01), u(0, banks.natural - 0.01))
    printed = chance(0.05)
    m[..., 0] = torch.where(printed, banks.some_picture(random, *shape), number.floor())
    m[..., 1] = random.log_uniform(*shape, low=0.25, high=2.5)
    m[..., 2:5] = earthen(random, *shape)
    even = chance(0.45)
    m[..., 5] = torch.where(even & ~patterned & ~printed, u(0, 0.25), u(0.4, 1.0))
    glossy = chance(0.5)
    m[..., 6] = torch.where(glossy, u(0.1, 1.5), u(0, 0.08))
    m[..., 7] = random.log_uniform(*shape, low=6, high=400)
    m[..., 8] = torch.where(glossy & chance(0.4), u(0.03, 0.35), torch.zeros_like(number))
    metal = chance(0.08)
    m[..., 8] = torch.where(metal, u(0.4, 0.9), m[..., 8])
    m[..., 9] = metal.float()
    m[..., 10] = u(0, 1.5) * chance(0.35)
    m[..., 11] = u(-3, 3)
    m[..., 12] = torch.where(chance(0.04), u(0.3, 1.5), torch.zeros_like(number))
    m[..., 13] = u(0.7, 1.2)
    m[..., 14] = u(0, 2)
    m[..., 15] = random.log_uniform(*shape, low=0.5, high=2)
    return m


def draw_surfaces(random, banks, scenes):
    """Rows [scenes, 3, MATERIAL] of the floor and two walls; some walls show a picture, as of a room behind."""
    m = draw_materials(random, banks, scenes, 3)
    m[..., 1] *= 0.6
    m[..., 12] = 0
    shown = random.chance(0.35, scenes, 3)
    shown[:, 0] = False
    u = lambda low, high: random.uniform(scenes, 3, low=low, high=high)
    values = {
        0: banks.some_picture(random, scenes, 3), 1: random.log_uniform(scenes, 3, low=0.08, high=0.5),
        5: u(0.6, 1), 10: u(0, 0), 11: math.pi + u(-0.05, 0.05), 15: u(0.8, 1.25),
    }
    for index, value in values.items():
        m[..., index] = torch.where(shown, value, m[..., index])
    return m
