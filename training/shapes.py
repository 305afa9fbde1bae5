"""A bank of shapes as fields, positive inside, on a square of local coordinates.

A field's size near its edge is about the distance to it, so that scaling a shape
keeps its edge one pixel wide. All functions draw `count` shapes at once.
"""

import math

import torch
import torch.nn.functional as F

EXTENT = 1.25  # local coordinates run over [-EXTENT, EXTENT]


class Canvas:
    """Coordinates of a field grid and the randomness that fills it."""

    def __init__(self, random, side):
        self.random, self.side = random, side
        axis = (torch.arange(side, device=random.device) + 0.5) / side * 2 * EXTENT - EXTENT
        self.y, self.x = (part[None] for part in torch.meshgrid(axis, axis, indexing="ij"))

    def uniform(self, count, low, high):
        return self.random.uniform(count, 1, 1, low=low, high=high)

    def polar(self, x=None, y=None):
        x, y = self.x if x is None else x, self.y if y is None else y
        return torch.sqrt(x * x + y * y + 1e-9), torch.atan2(y, x)


def radial_polygon(canvas, radii, turn):
    """Polygon with vertices at equal angles and the given radii [count, vertices]."""
    count, vertices = radii.shape
    radius, angle = canvas.polar()
    step = 2 * math.pi / vertices
    position = torch.remainder(angle + turn, 2 * math.pi) / step
    index = position.floor().long().clamp(max=vertices - 1)
    inside = (position - index) * step
    flat = index.expand(count, -1, -1).reshape(count, -1)
    first = radii.gather(1, flat).view_as(index.expand(count, -1, -1))
    second = radii.gather(1, (flat + 1) % vertices).view_as(first)
    edge = first * second * math.sin(step)
    edge = edge / (first * torch.sin(inside) + second * torch.sin(step - inside))
    return edge - radius


def polygon(canvas, count):
    vertices = int(canvas.random.integer(3, 12, 1))
    radii = canvas.random.uniform(count, vertices, low=0.45, high=1.0)
    radii = torch.where(canvas.random.chance(0.3, count, 1), torch.ones_like(radii), radii)
    return radial_polygon(canvas, radii, canvas.uniform(count, 0, 6.3))


def star(canvas, count):
    points = int(canvas.random.integer(3, 9, 1))
    inner = canvas.random.uniform(count, 1, low=0.25, high=0.7).expand(count, points)
    radii = torch.stack([torch.ones_like(inner), inner], dim=2).flatten(1)
    return radial_polygon(canvas, radii, canvas.uniform(count, 0, 6.3))


def superellipse(canvas, count):
    aspect = canvas.random.log_uniform(count, 1, 1, low=0.35, high=1.0)
    power = canvas.random.log_uniform(count, 1, 1, low=1.2, high=8.0)
    x, y = canvas.x.abs() + 1e-4, (canvas.y / aspect).abs() + 1e-4
    return (1 - (x**power + y**power) ** (1 / power)) * aspect


def wavy_blob(canvas, count):
    radius, angle = canvas.polar()
    wave = 0
    for frequency in (2, 3, 4, 5, 7, 9):
        height = canvas.uniform(count, -0.5, 0.5) / frequency
        wave = wave + height * torch.sin(frequency * angle + canvas.uniform(count, 0, 6.3))
    return 0.75 * (1 + wave) - radius


def noise_blob(canvas, count):
    cells = int(canvas.random.integer(2, 6, 1))
    radius, _ = canvas.polar()
    noise = canvas.random.octaves(count, 1, cells, canvas.side, octaves=3, gain=0.4)[:, 0]
    return 0.7 - radius + 0.22 * noise


def ring(canvas, count):
    radius, _ = canvas.polar(canvas.x, canvas.y / canvas.uniform(count, 0.6, 1.0))
    thickness = canvas.uniform(count, 0.12, 0.35)
    return thickness - (radius - 1 + thickness).abs()


def arc(canvas, count):
    radius, angle = canvas.polar()
    thickness, span = canvas.uniform(count, 0.1, 0.25), canvas.uniform(count, 0.8, 2.6)
    middle = 1 - thickness
    along = (angle.abs() - span).clamp(min=0)
    end_x, end_y = middle * torch.cos(span), middle * torch.sin(span)
    to_end = torch.sqrt((canvas.x - end_x) ** 2 + (canvas.y.abs() - end_y) ** 2)
    return thickness - torch.where(along > 0, to_end, (radius - middle).abs())


def segment_distance(canvas, start, end):
    """Distance to segments between [count, 2] points."""
    start, end = start[:, :, None, None], end[:, :, None, None]
    along = end - start
    x, y = canvas.x - start[:, 0], canvas.y - start[:, 1]
    length = (along * along).sum(1) + 1e-6
    share = ((x * along[:, 0] + y * along[:, 1]) / length).clamp(0, 1)
    return torch.sqrt((x - share * along[:, 0]) ** 2 + (y - share * along[:, 1]) ** 2 + 1e-9)


def stroke(canvas, count):
    """A bent line of three to six pieces."""
    pieces = int(canvas.random.integer(2, 6, 1))
    heading = canvas.random.uniform(count, low=0, high=6.3)
    points = [canvas.random.uniform(count, 2, low=-0.2, high=0.2)]
    for _ in range(pieces):
        heading = heading + canvas.random.uniform(count, low=-1.2, high=1.2)
        step = torch.stack([heading.cos(), heading.sin()], 1) * 1.6 / pieces
        points.append(points[-1] + step)
    centre = torch.stack(points).mean(0)
    nearest = torch.full((count, canvas.side, canvas.side), 9.0, device=canvas.x.device)
    for first, second in zip(points[:-1], points[1:]):
        nearest = torch.minimum(nearest, segment_distance(canvas, first - centre, second - centre))
    return canvas.uniform(count, 0.07, 0.24) - nearest


def glyph(canvas, count):
    """Letter-like: three to five strokes between the nodes of a 3 × 3 grid."""
    nearest = torch.full((count, canvas.side, canvas.side), 9.0, device=canvas.x.device)
    previous = canvas.random.integer(-1, 2, count, 2).float()
    for _ in range(int(canvas.random.integer(3, 6, 1))):
        axis = canvas.random.chance(0.5, count, 1)
        flip = torch.cat([axis, ~axis], 1) | canvas.random.chance(0.25, count, 1)
        following = torch.where(flip, canvas.random.integer(-1, 2, count, 2).float(), previous)
        scale = torch.tensor([0.6, 0.85], device=canvas.x.device)
        nearest = torch.minimum(nearest, segment_distance(canvas, previous * scale, following * scale))
        previous = following
    return canvas.uniform(count, 0.1, 0.2) - nearest


def box(canvas, count):
    aspect, rounding = canvas.random.log_uniform(count, 1, 1, low=0.25, high=1.0), canvas.uniform(count, 0, 0.3)
    rounding = rounding * aspect
    x, y = canvas.x.abs() - (0.95 - rounding), canvas.y.abs() - (0.95 * aspect - rounding)
    outside = torch.sqrt(x.clamp(min=0) ** 2 + y.clamp(min=0) ** 2 + 1e-9)
    return rounding - outside - torch.maximum(x, y).clamp(max=0)


def cross(canvas, count):
    arm, width = canvas.uniform(count, 0.6, 1.0), canvas.uniform(count, 0.12, 0.35)
    upright = torch.minimum(width - canvas.x.abs(), 1 - canvas.y.abs())
    level = torch.minimum(width - canvas.y.abs(), arm - canvas.x.abs())
    return torch.maximum(upright, level)


def creature(canvas, count):
    """A body with a head and limbs, joined softly."""
    aspect = canvas.uniform(count, 0.35, 0.7)
    body = (1 - torch.sqrt((canvas.x / 0.65) ** 2 + (canvas.y / (0.65 * aspect)) ** 2 + 1e-9)) * 0.65 * aspect
    side = canvas.random.sign(count, 1, 1)
    head_x, head_y = 0.65 * side, canvas.uniform(count, -0.5, 0.1)
    head = canvas.uniform(count, 0.16, 0.3) - torch.sqrt(
        (canvas.x - head_x) ** 2 + (canvas.y - head_y) ** 2 + 1e-9
    )
    field = torch.maximum(body, head)
    for place in (-0.45, -0.2, 0.2, 0.45):
        start = torch.stack([canvas.random.uniform(count, low=place - 0.1, high=place + 0.1)] * 2, 1)
        start[:, 1] = 0.1
        end = start + canvas.random.uniform(count, 2, low=-0.25, high=0.25)
        end[:, 1] = canvas.random.uniform(count, low=0.6, high=1.0)
        limb = canvas.uniform(count, 0.05, 0.13) - segment_distance(canvas, start, end)
        keep = canvas.random.chance(0.8, count, 1, 1)
        field = torch.where(keep, torch.maximum(field, limb), field)
    return field


def gear(canvas, count):
    teeth = int(canvas.random.integer(6, 13, 1))
    inner = canvas.random.uniform(count, 1, low=0.7, high=0.82).expand(count, teeth)
    outer = torch.ones_like(inner)
    radii = torch.stack([outer, outer, inner, inner], dim=2).flatten(1)
    field = radial_polygon(canvas, radii, canvas.uniform(count, 0, 6.3))
    radius, _ = canvas.polar()
    return torch.minimum(field, radius - canvas.uniform(count, -0.1, 0.35))


def heart(canvas, count):
    x, y = canvas.x.abs() / 0.95, -canvas.y / canvas.uniform(count, 0.8, 1.0) + 0.1
    body = x * x + (1.25 * y - 0.75 * torch.sqrt(x + 1e-4)) ** 2
    return 0.5 * (0.85 - body)


def crescent(canvas, count):
    radius, _ = canvas.polar()
    shift = canvas.uniform(count, 0.3, 0.6)
    bite = torch.sqrt((canvas.x - shift) ** 2 + canvas.y**2 + 1e-9) - canvas.uniform(count, 0.7, 0.95)
    return torch.minimum(1 - radius, bite)


def arrow(canvas, count):
    shaft = torch.minimum(canvas.uniform(count, 0.1, 0.25) - canvas.y.abs(), canvas.x + 1)
    shaft = torch.minimum(shaft, 0.3 - canvas.x)
    slope, tip = canvas.uniform(count, 0.55, 0.9), canvas.x - canvas.uniform(count, 0.0, 0.2)
    head = torch.minimum(0.75 * slope * (1 - canvas.x) - canvas.y.abs(), tip)
    return torch.maximum(shaft, head)


TRAINING_KINDS = {
    polygon: 3, star: 1.5, superellipse: 2, wavy_blob: 3, noise_blob: 3, ring: 1, arc: 0.7,
    stroke: 1, glyph: 1.5, box: 2, cross: 0.7, creature: 2,
}
RESERVED_KINDS = {gear: 1, heart: 1, crescent: 1, arrow: 1}


def normalise(field):
    """Divides by the slope, so that values near the edge are distances in local units."""
    spacing = 2 * EXTENT / field.shape[-1]
    padded = F.pad(field[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    across = (padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]) / (2 * spacing)
    down = (padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]) / (2 * spacing)
    slope = torch.sqrt(across**2 + down**2 + 1e-6)
    return (field / slope.clamp(min=0.3)).clamp(-0.6, 0.6)


def close_border(field):
    """Keeps every shape inside its square, so that samples beyond it are outside."""
    side = field.shape[-1]
    axis = (torch.arange(side, device=field.device) + 0.5) / side * 2 - 1
    inset = (1 - axis.abs()) * EXTENT - 0.04
    return torch.minimum(field, torch.minimum(inset[None, :, None], inset[None, None, :]))


def transformed(random, fields, low, high):
    """Fields turned, shrunk and shifted inside their square."""
    count = fields.shape[0]
    scale = random.uniform(count, low=low, high=high)
    angle = random.uniform(count, low=0, high=6.3)
    shift = random.uniform(count, 2, low=-0.55, high=0.55)
    cosine, sine = angle.cos() / scale, angle.sin() / scale
    matrix = torch.stack([cosine, sine, -sine, cosine], 1).view(count, 2, 2)
    offset = -(matrix @ shift[:, :, None]) / EXTENT
    grid = F.affine_grid(torch.cat([matrix, offset], 2), (count, 1, *fields.shape[1:]), align_corners=False)
    moved = F.grid_sample(fields[:, None], grid, padding_mode="border", align_corners=False)[:, 0]
    return moved * scale[:, None, None]


def compounds(random, fields):
    """Joins of two or three shapes, some with a hole cut by another."""
    count = fields.shape[0]
    other = lambda: fields[random.integer(0, count, count)]
    first = transformed(random, other(), 0.5, 0.8)
    joined = torch.maximum(first, transformed(random, other(), 0.3, 0.7))
    third = torch.maximum(joined, transformed(random, other(), 0.2, 0.6))
    joined = torch.where(random.chance(0.5, count, 1, 1), third, joined)
    hole = torch.minimum(joined, -transformed(random, other(), 0.15, 0.4))
    return torch.where(random.chance(0.35, count, 1, 1), hole, joined)


def roughened(random, fields):
    """Edges made uneven by fine noise, for some of the shapes."""
    count, side = fields.shape[0], fields.shape[-1]
    cells = int(random.integer(6, 24, 1))
    size = random.uniform(count, 1, 1, low=0.0, high=0.045) * random.chance(0.3, count, 1, 1)
    return fields + size * random.noise(count, 1, cells, side)[:, 0]


def draw_bank(random, count, side, kinds, chunk=256):
    """[count, side, side] fields in half precision, a quarter of them compounds."""
    canvas = Canvas(random, side)
    functions, weights = list(kinds), torch.tensor(list(kinds.values()), dtype=torch.float32)
    pieces, made = [], 0
    order = torch.multinomial(
        weights, -(-count // 32), replacement=True, generator=torch.Generator().manual_seed(count)
    ).tolist()
    for kind in order:
        pieces.append(normalise(close_border(functions[kind](canvas, 32))).half())
    bank = torch.cat(pieces)[:count]
    bank = bank[torch.randperm(count, generator=random.generator, device=random.device)]
    for start in range(0, count, chunk):
        part = bank[start : start + chunk].float()
        mixed = torch.where(random.chance(0.25, len(part), 1, 1), compounds(random, part), part)
        mixed = normalise(close_border(roughened(random, mixed)))
        bank[start : start + chunk] = mixed.half()
    return bank
