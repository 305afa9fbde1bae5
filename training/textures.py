"""A bank of colour textures, [count, 3, side, side] in [0, 1]."""

import math

import torch


class Palette:
    """Coordinates in [0, 1] and random colours for a batch of textures."""

    def __init__(self, random, count, side):
        self.random, self.count, self.side = random, count, side
        axis = (torch.arange(side, device=random.device) + 0.5) / side
        self.y, self.x = (part[None] for part in torch.meshgrid(axis, axis, indexing="ij"))

    def uniform(self, low=0.0, high=1.0):
        return self.random.uniform(self.count, 1, 1, low=low, high=high)

    def log(self, low, high):
        return self.random.log_uniform(self.count, 1, 1, low=low, high=high)

    def colours(self):
        """Two colours [count, 3, 1, 1]; often relatives of one another."""
        base = self.random.uniform(self.count, 3, 1, 1)
        grey = self.random.uniform(self.count, 1, 1, 1)
        base = grey + (base - grey) * self.random.uniform(self.count, 1, 1, 1)
        shift = self.random.normal(self.count, 3, 1, 1) * 0.1 + self.random.normal(self.count, 1, 1, 1) * 0.2
        other = torch.where(
            self.random.chance(0.6, self.count, 1, 1, 1), base + shift, self.random.uniform(self.count, 3, 1, 1)
        )
        return base, other

    def mix(self, share):
        """Blends two colours by a share [count, side, side] in [0, 1]."""
        base, other = self.colours()
        return base + (other - base) * share[:, None]

    def turned(self):
        """Coordinates along and across a random direction."""
        angle = self.uniform(0, 2 * math.pi)
        return (
            self.x * angle.cos() + self.y * angle.sin(),
            self.y * angle.cos() - self.x * angle.sin(),
        )

    def warp(self, strength):
        cells = int(self.random.integer(2, 7, 1))
        return strength * self.random.noise(self.count, 1, cells, self.side)[:, 0]


def steep(palette, wave):
    """A wave in [-1, 1] to a share with soft or hard flanks."""
    return (0.5 + 0.5 * wave * palette.log(1.0, 12.0)).clamp(0, 1)


def flat(palette):
    return palette.mix(torch.zeros_like(palette.x).expand(palette.count, -1, -1))


def gradient(palette):
    along, _ = palette.turned()
    return palette.mix((along + palette.warp(0.1)).clamp(-1, 2) * palette.uniform(0.5, 1.5))


def clouds(palette):
    cells = int(palette.random.integer(2, 10, 1))
    noise = palette.random.octaves(palette.count, 1, cells, palette.side, octaves=5, gain=0.6)[:, 0]
    return palette.mix((0.5 + 0.3 * noise).clamp(0, 1))


def coloured_clouds(palette):
    cells = int(palette.random.integer(2, 8, 1))
    noise = palette.random.octaves(palette.count, 3, cells, palette.side, octaves=4, gain=0.55)
    base, _ = palette.colours()
    return base + noise * palette.random.uniform(palette.count, 1, 1, 1, low=0.03, high=0.22)


def grain(palette):
    cells = int(palette.random.integer(24, 80, 1))
    noise = palette.random.noise(palette.count, 1, cells, palette.side)[:, 0]
    return palette.mix((0.5 + 0.5 * noise).clamp(0, 1))


def stripes(palette):
    along, _ = palette.turned()
    wave = torch.sin((along + palette.warp(0.02)) * palette.log(12.0, 160.0))
    return palette.mix(steep(palette, wave))


def checker(palette):
    along, across = palette.turned()
    frequency = palette.log(10.0, 80.0)
    return palette.mix(steep(palette, torch.sin(along * frequency) * torch.sin(across * frequency)))


def dots(palette):
    along, across = palette.turned()
    frequency = palette.log(4.0, 24.0)
    x, y = torch.remainder(along * frequency, 1) - 0.5, torch.remainder(across * frequency, 1) - 0.5
    distance = torch.sqrt(x * x + y * y)
    return palette.mix(((palette.uniform(0.15, 0.45) - distance) * 12 + 0.5).clamp(0, 1))


def marble(palette):
    along, _ = palette.turned()
    wave = torch.sin(along * palette.log(6.0, 40.0) + palette.warp(2.0) + palette.warp(1.0))
    return palette.mix(steep(palette, wave))


def wood(palette):
    along, across = palette.turned()
    distance = torch.sqrt((along - 0.5) ** 2 + (0.25 * across) ** 2 + 1e-6) + palette.warp(0.04)
    return palette.mix(0.5 + 0.5 * torch.sin(distance * palette.log(40.0, 160.0)))


def plaid(palette):
    along, across = palette.turned()
    first = torch.sin(along * palette.log(15.0, 90.0))
    second = torch.sin(across * palette.log(15.0, 90.0))
    return palette.mix(0.5 + 0.25 * (first.sign() + second.sign()) * palette.uniform(0.3, 1.0))


def cells(palette):
    """Patches round scattered centres, each with its own shade."""
    centres = palette.random.uniform(palette.count, 24, 2)
    shades = palette.random.uniform(palette.count, 24)
    nearest = torch.full((palette.count, palette.side, palette.side), 9.0, device=palette.x.device)
    share = torch.zeros_like(nearest)
    for index in range(24):
        x, y = centres[:, index, 0, None, None], centres[:, index, 1, None, None]
        distance = (palette.x - x) ** 2 + (palette.y - y) ** 2
        share = torch.where(distance < nearest, shades[:, index, None, None], share)
        nearest = torch.minimum(nearest, distance)
    return palette.mix(share)


def lattice(palette):
    """A pattern of a few waves that repeats along two directions, soft or sharp."""
    along, across = palette.turned()
    frequency = palette.log(3.0, 22.0) * 2 * math.pi
    u = along * frequency
    v = (across * palette.log(0.6, 1.6) + along * palette.uniform(-0.5, 0.5)) * frequency
    total, weight = 0, 0.0
    for _ in range(int(palette.random.integer(2, 6, 1))):
        orders = palette.random.integer(-2, 3, palette.count, 2, 1, 1).float()
        height = palette.uniform(0.3, 1.0)
        total = total + height * torch.sin(orders[:, 0] * u + orders[:, 1] * v + palette.uniform(0, 2 * math.pi))
        weight = weight + height
    return palette.mix(steep(palette, 2 * total / weight))


def contours(palette):
    """Lines of equal height of a rolling ground."""
    cells = int(palette.random.integer(1, 5, 1))
    height = palette.random.octaves(palette.count, 1, cells, palette.side, octaves=3)[:, 0]
    return palette.mix(steep(palette, torch.sin(height * palette.log(3.0, 14.0))))


def hatching(palette):
    """Two or three sets of bands, each of its own direction, distance and width."""
    share = 0
    for _ in range(int(palette.random.integer(2, 4, 1))):
        along, _ = palette.turned()
        wave = torch.sin((along + palette.warp(0.01)) * palette.log(15.0, 120.0))
        band = ((wave - palette.uniform(-0.6, 0.9)) * 4 + 0.5).clamp(0, 1)
        share = share + band * palette.uniform(0.3, 1.0)
    return palette.mix(share.clamp(0, 1))


def collage(palette):
    """Two textures of other kinds, each in the places a third pattern leaves it."""
    others = [kind for kind in TRAINING_KINDS if kind is not collage]
    pick = lambda: others[int(palette.random.integer(0, len(others), 1))](palette)
    pattern = pick().mean(1, keepdim=True)
    low, high = (pattern.flatten(1).quantile(share, dim=1).view(-1, 1, 1, 1) for share in (0.1, 0.9))
    share = (pattern - low) / (high - low).clamp(min=0.02)
    share = ((share - palette.uniform(0.3, 0.7)[:, None]) * palette.log(1.0, 12.0)[:, None] + 0.5).clamp(0, 1)
    return torch.lerp(pick(), pick(), share)


def bricks(palette):
    along, across = palette.turned()
    rows = across * palette.log(5.0, 20.0)
    columns = along * palette.log(3.0, 10.0) + 0.5 * torch.remainder(rows.floor(), 2)
    gap = torch.minimum(torch.remainder(rows, 1), torch.remainder(columns, 1))
    return palette.mix((gap > palette.uniform(0.06, 0.15)).float())


def zigzag(palette):
    along, across = palette.turned()
    frequency = palette.log(6.0, 20.0)
    fold = (torch.remainder(along * frequency, 1) - 0.5).abs()
    return palette.mix(steep(palette, torch.sin((across * frequency + fold) * 2 * math.pi)))


def scales(palette):
    along, across = palette.turned()
    rows = across * palette.log(6.0, 18.0)
    columns = along * palette.log(6.0, 18.0) + 0.5 * torch.remainder(rows.floor(), 2)
    x, y = torch.remainder(columns, 1) - 0.5, torch.remainder(rows, 1)
    return palette.mix((1.6 * torch.sqrt(x * x + y * y) - 0.3).clamp(0, 1))


def rings(palette):
    distance = torch.sqrt((palette.x - palette.uniform()) ** 2 + (palette.y - palette.uniform()) ** 2)
    return palette.mix(steep(palette, torch.sin(distance * palette.log(30.0, 120.0))))


TRAINING_KINDS = {
    flat: 2, gradient: 2, clouds: 2.5, coloured_clouds: 2.5, grain: 1.5, stripes: 1.5, checker: 0.8,
    dots: 0.8, marble: 1.2, wood: 1, plaid: 0.8, cells: 0.8, lattice: 3.5, contours: 1.5, hatching: 1.5, collage: 4,
}
RESERVED_KINDS = {bricks: 1, zigzag: 1, scales: 1, rings: 1}


def finish(random, texture):
    """Adds the faint unevenness and grain that real surfaces have."""
    count, side = texture.shape[0], texture.shape[-1]
    uneven = random.octaves(count, 1, 4, side, octaves=4)
    texture = texture + uneven * random.uniform(count, 1, 1, 1, low=0, high=0.08)
    return texture.clamp(0, 1)


def draw_bank(random, count, side, kinds, chunk=32):
    """[count, 3, side, side] in half precision."""
    functions, weights = list(kinds), torch.tensor(list(kinds.values()), dtype=torch.float32)
    order = torch.multinomial(
        weights, -(-count // chunk), replacement=True, generator=torch.Generator().manual_seed(count)
    ).tolist()
    pieces = [
        finish(random, functions[kind](Palette(random, chunk, side))).half() for kind in order
    ]
    bank = torch.cat(pieces)[:count]
    return bank[torch.randperm(count, generator=random.generator, device=random.device)]
