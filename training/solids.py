"""What solids are made of: primitives in local coordinates (y up, about [-1, 1]), parts and decals.

Every maker draws `count` solids at once and returns a `Solid`; makers are mixed by chance in `draw_solids`.
"""

import dataclasses
import math

import torch

from randomness import constant

# Row lengths; render.cu has the same numbers.
VIEW, MATERIAL, THING, PRIMITIVE, DECAL = 64, 16, 48, 24, 16
PRIMITIVES, DECALS, MATERIALS = 8, 3, 6
ELLIPSOID, BOX, CYLINDER, CAPSULE, TORUS, FRUSTUM, FLAT, TURNED = range(8)


@dataclasses.dataclass
class Solid:
    """Rows of floats as render.cu reads them; `low` is how far below its origin a solid stands, `radius` bounds it."""

    primitives: torch.Tensor  # [count, PRIMITIVES, PRIMITIVE]
    decals: torch.Tensor  # [count, DECALS, DECAL]
    shape: torch.Tensor  # [count, THING], the fields that say how primitives join and bend
    low: torch.Tensor  # [count]
    radius: torch.Tensor  # [count]


def rotation(yaw, pitch, roll):
    """[..., 9] rows of turns about y, x and z."""
    a, b, c = yaw, pitch, roll
    ca, sa, cb, sb, cc, sc = a.cos(), a.sin(), b.cos(), b.sin(), c.cos(), c.sin()
    rows = [
        ca * cc + sa * sb * sc, -ca * sc + sa * sb * cc, sa * cb,
        cb * sc, cb * cc, -sb,
        -sa * cc + ca * sb * sc, sa * sc + ca * sb * cc, ca * cb,
    ]
    return torch.stack(rows, -1)


class Maker:
    """Fills the rows of `count` solids; numbers given to it are tensors [count] or plain."""

    def __init__(self, random, count, profiles):
        self.random, self.count, self.profiles, self.used = random, count, profiles, 0
        zeros = lambda *shape: torch.zeros(count, *shape, device=random.device)
        self.solid = Solid(zeros(PRIMITIVES, PRIMITIVE), zeros(DECALS, DECAL), zeros(THING), zeros(), zeros())
        self.solid.shape[:, 14] = 1e-3
        self.solid.shape[:, 20:32] = 1.0

    def u(self, low=0.0, high=1.0):
        return self.random.uniform(self.count, low=low, high=high)

    def log(self, low, high):
        return self.random.log_uniform(self.count, low=low, high=high)

    def maybe(self, probability):
        return self.random.chance(probability, self.count)

    def add(self, kind, place, size, part=0, material=0, round=0.0, turn=(0.0, 0.0, 0.0), hollow=0.0, profile=None,
            inner=None):
        """One more primitive; `part` 0 is the body itself.

        `inner` = (share of its size, material) marks the hub of a disc or the panel of a box: a part of the part.
        """
        row = self.solid.primitives[:, self.used]
        row[:, 0] = kind
        for index, value in enumerate((*place, *([0] * 9), *size, round, part, material)):
            if not 3 <= index < 12:
                row[:, 1 + index] = value
        spread = lambda value: value if torch.is_tensor(value) else torch.full_like(row[:, 0], value)
        row[:, 4:13] = rotation(*(spread(value) for value in turn))
        row[:, 19] = self.some_profile() if profile is None else profile
        row[:, 20] = hollow
        if inner is not None:
            row[:, 21], row[:, 22] = inner
        self.used += 1
        self.solid.shape[:, 13] = self.used
        return row

    def hide(self, row, hidden):
        """Moves a primitive far below, where it is hidden, for the solids that do without it."""
        row[:, 2] = torch.where(hidden, row[:, 2] - 50, row[:, 2])

    def some_profile(self):
        return self.random.integer(0, self.profiles, self.count).float()

    def decal(self, number, axis, sign, place, size, part, material, present=1.0, angle=0.0, profile=None):
        row = self.solid.decals[:, number]
        values = (present, axis, sign, *place, *size, angle)
        for index, value in enumerate(values):
            row[:, index] = value
        row[:, 8] = self.some_profile() if profile is None else profile
        row[:, 9], row[:, 10] = part, material

    def furry(self, probability, height=(0.02, 0.09), cells=(12, 45)):
        """Rough outlines for some of the solids: fur, foliage, fringes."""
        self.solid.shape[:, 34] = self.log(*height) * self.maybe(probability)
        self.solid.shape[:, 35] = self.log(*cells)
        self.solid.shape[:, 39] = self.log(0.2, 1.2)

    def folded(self, probability, depth=(0.03, 0.14), cells=(1.2, 5)):
        """Creases for some of the solids, as cloth and bags have them."""
        self.solid.shape[:, 36] = self.log(*depth) * self.maybe(probability)
        self.solid.shape[:, 37] = self.log(*cells)
        self.solid.shape[:, 38] = self.log(0.25, 2)

    def ends(self, low, radius):
        self.solid.low[:] = low
        self.solid.radius[:] = radius + self.solid.shape[:, 34] + 0.3 * self.solid.shape[:, 36]
        return self.solid


def plain(maker):
    """One primitive with up to two decals."""
    kind = maker.random.integer(0, 6, maker.count).float()
    x, y, z = maker.log(0.35, 1), maker.log(0.35, 1), maker.log(0.35, 1)
    ring = kind == TORUS
    y = torch.where(ring, 0.15 + 0.2 * y, y)
    x = torch.where(ring, 0.65 + 0.2 * x, x)
    round = torch.minimum(x, torch.minimum(y, z)) * maker.u(0, 0.4)
    maker.add(kind, (0, 0, 0), (x, y, z), round=round)
    for number in range(2):
        axis, size = maker.random.integer(0, 3, maker.count).float(), maker.log(0.15, 0.5)
        place = maker.u(-0.4, 0.4), maker.u(-0.3, 0.3)
        maker.decal(number, axis, torch.sign(maker.u(-1, 1)), place, (size, size * maker.log(0.6, 1.6)),
                    1 + number, 1 + number, maker.maybe(0.35).float(), maker.u(-0.4, 0.4))
    low = torch.where(kind == CAPSULE, y + torch.maximum(x, z), y)
    return maker.ends(low, torch.sqrt(x * x + y * y + z * z) + 0.4 * (kind == CAPSULE) + x * (kind >= TORUS))


def package(maker):
    """A box, upright or flat, with a label, a band, and sometimes a soft or lumpy body."""
    x, y, z = maker.log(0.3, 0.9), maker.log(0.25, 1), maker.log(0.1, 0.8)
    soft = maker.maybe(0.45)
    round = torch.minimum(x, torch.minimum(y, z)) * torch.where(soft, maker.u(0.3, 0.95), maker.u(0, 0.12))
    maker.add(BOX, (0, 0, 0), (x, y, z), round=round)
    lid = maker.add(BOX, (0, y * 1.02, 0), (x * 1.03, y * 0.12, z * 1.03), part=1, material=1, round=0.02)
    maker.hide(lid, ~maker.maybe(0.3))
    maker.solid.shape[:, 15] = torch.where(soft, maker.u(0, 0.06), torch.zeros_like(x))
    maker.solid.shape[:, 16] = maker.log(3, 9)
    maker.solid.shape[:, 18] = maker.u(-0.25, 0.25) * maker.maybe(0.5)
    maker.folded(torch.where(soft, 0.6, 0.08))
    for number, axis in enumerate((2, 0, 2)):
        across = x if axis == 2 else z
        size = across * maker.u(0.2, 0.95), y * maker.u(0.1, 0.7)
        place = (across - size[0]).clamp(min=0) * maker.u(-1, 1), (y - size[1]).clamp(min=0) * maker.u(-1, 1)
        maker.decal(number, axis, torch.sign(maker.u(-1, 1)), place, size, 2 + number, 2 + number,
                    maker.maybe(0.5).float(), maker.u(-0.1, 0.1))
    return maker.ends(y, torch.sqrt(x * x + y * y + z * z) * 1.3 + 0.15)


def turned(maker):
    """Bottles, bowls, vases, lamps: a profile about an axis, solid or a shell, with a lid and a band."""
    y = maker.log(0.3, 1)
    start = maker.u(0.25, 0.9)
    steps = maker.random.normal(maker.count, 12) * 0.16 * maker.u(0, 1)[:, None]
    slope = torch.linspace(-1, 1, 12, device=start.device)[None] * maker.u(-0.5, 0.6)[:, None]
    radii = (start[:, None] + slope + steps.cumsum(1) - steps.cumsum(1).mean(1, keepdim=True)).clamp(0.12, 1)
    neck = torch.arange(12, device=start.device)[None] >= 12 - 5 * maker.u()[:, None]
    radii = torch.where(neck & maker.maybe(0.35)[:, None], 0.18 + 0.1 * start[:, None], radii)
    maker.solid.shape[:, 20:32] = radii
    hollow = maker.u(0.015, 0.05) * maker.maybe(0.45)
    wide = maker.log(0.45, 1)
    maker.add(TURNED, (0, 0, 0), (wide, y, 0), round=0.01, hollow=hollow)
    maker.add(CYLINDER, (0, -y, 0), (radii[:, 0] * wide, 0.03, 0), round=0.01)
    lid = (radii[:, 11] * wide * 1.05, y * 0.12, 0)
    lid = maker.add(CYLINDER, (0, y * 1.05, 0), lid, part=1, material=1, round=0.02)
    maker.hide(lid, ~maker.maybe(0.35))
    knob = maker.add(ELLIPSOID, (0, y * 1.25, 0), (0.1, 0.1, 0.1), part=1, material=1)
    maker.hide(knob, ~maker.maybe(0.15))
    grip = maker.add(TORUS, (wide * radii[:, 5], maker.u(-0.2, 0.2) * y, 0), (y * 0.5, 0.05, 0), part=2, material=0,
                     turn=(0.0, math.pi / 2, 0.0))
    maker.hide(grip, ~maker.maybe(0.2))
    maker.decal(0, 2, 0.0, (0.0, maker.u(-0.4, 0.4) * y), (2.0, y * maker.u(0.08, 0.4)), 3, 2,
                maker.maybe(0.35).float(), profile=maker.square)
    return maker.ends(y + 0.03, torch.sqrt(wide * wide + y * y) * 1.45 + 0.1)


def flat(maker):
    """A flat shape with thickness, standing or lying, with decals on its face."""
    x, y = maker.log(0.5, 1), maker.log(0.5, 1)
    thick = maker.log(0.03, 0.35)
    maker.add(FLAT, (0, 0, 0), (x, y, thick), round=thick * maker.u(0, 0.9))
    maker.solid.shape[:, 17] = maker.u(-0.8, 0.8) * maker.maybe(0.2)
    maker.solid.shape[:, 33] = maker.u(-0.4, 0.4) * maker.maybe(0.25)
    for number in range(2):
        size = maker.log(0.12, 0.5)
        maker.decal(number, 2, 0.0, (maker.u(-0.4, 0.4), maker.u(-0.4, 0.4)), (size, size * maker.log(0.5, 2)),
                    1 + number, 1 + number, maker.maybe(0.4).float(), maker.u(-1, 1))
    return maker.ends(y, torch.sqrt(x * x + y * y) * 1.3 + thick)


def vehicle(maker):
    """A long body with a cabin, windows and wheels."""
    y, z, deck = maker.u(0.16, 0.3), maker.u(0.3, 0.45), maker.u(-0.35, 0.35)
    soft = maker.u(0.03, 0.14)
    maker.add(BOX, (0, 0, 0), (1.0, y, z), round=soft)
    long, high = maker.u(0.3, 0.75), maker.u(0.14, 0.32)
    maker.add(BOX, (deck, y + high * 0.9, 0), (long, high, z * 0.9), material=0, round=soft)
    wheel, first, hub = maker.u(0.16, 0.26), maker.u(0.5, 0.7), maker.u(0.45, 0.75)
    for part, (across, depth) in enumerate(((-1, 1), (1, 1), (-1, -1), (1, -1))):
        maker.add(CYLINDER, (first * across, -y * 0.9, depth * z * 0.92), (wheel, 0.07, 0), part=1 + part, material=1,
                  round=0.02, turn=(0.0, math.pi / 2, 0.0), inner=(hub, 4))
    front = maker.add(BOX, (1.0, maker.u(-0.1, 0.1), 0), (0.04, 0.05, z * 0.9), part=5, material=3, round=0.02)
    maker.hide(front, ~maker.maybe(0.6))
    maker.solid.shape[:, 14] = torch.where(maker.maybe(0.5), maker.u(0.03, 0.12), torch.full_like(y, 1e-3))
    height = y + high * 0.95
    half = long * maker.u(0.3, 0.42)
    maker.decal(0, 2, 0.0, (deck - long * 0.45, height), (half, high * 0.55), 6, 2, 1.0, profile=maker.square)
    maker.decal(1, 2, 0.0, (deck + long * 0.45, height), (half, high * 0.55), 7, 2, 1.0, profile=maker.square)
    maker.decal(2, 0, 0.0, (0, height), (z * 0.7, high * 0.5), 8, 2, 1.0, profile=maker.square)
    return maker.ends(y * 0.9 + wheel, 1.35)


def furniture(maker):
    """A slab on legs, with a back or a shelf."""
    x, z, y = maker.u(0.5, 1), maker.u(0.35, 0.8), maker.u(0.25, 0.8)
    thick, leg = maker.u(0.03, 0.12), maker.u(0.03, 0.09)
    maker.add(BOX, (0, y, 0), (x, thick, z), round=thick * maker.u(0, 0.8), part=1, material=1)
    for across in (-1, 1):
        for deep in (-1, 1):
            maker.add(BOX, (across * (x - leg) * 0.93, 0, deep * (z - leg) * 0.93), (leg, y, leg), round=leg * 0.3)
    back = maker.add(BOX, (0, y * 1.7, -z * 0.93), (x * 0.95, y * 0.7, leg), part=2, material=2, round=leg * 0.5)
    maker.hide(back, ~maker.maybe(0.45))
    shelf = maker.add(BOX, (0, -y * 0.4, 0), (x * 0.9, leg * 0.6, z * 0.9), part=3, material=1)
    maker.hide(shelf, ~maker.maybe(0.3))
    return maker.ends(y, torch.sqrt(x * x + z * z + (2.4 * y) ** 2) + 0.1)


def creature(maker):
    """Body, head, ears or horns and legs, joined softly."""
    long, high, deep = maker.u(0.4, 0.75), maker.u(0.2, 0.42), maker.u(0.18, 0.36)
    maker.add(ELLIPSOID, (0, 0, 0), (long, high, deep), turn=(0.0, 0.0, maker.u(-0.5, 0.5)))
    head, up = maker.u(0.15, 0.3), maker.u(0.05, 0.6)
    hx, hz = long * maker.u(0.8, 1.1), maker.u(-0.15, 0.15)
    maker.add(ELLIPSOID, (hx, up, hz), (head * maker.u(0.9, 1.5), head, head), part=1, material=0)
    neck = high * 0.5, up * 0.4 + 0.1, head * 0.6
    maker.add(CAPSULE, (hx * 0.75, up * 0.55, hz * 0.6), neck, turn=(0.0, 0.0, -0.6))
    ear = maker.add(CAPSULE, (hx - 0.05, up + head, hz), (head * 0.35, head * 0.4, head * 0.1), part=1, material=1)
    maker.hide(ear, ~maker.maybe(0.6))
    legs = maker.u(0.2, 0.55)
    for across, aside in ((-0.6, 0.5), (-0.5, -0.5), (0.55, 0.5), (0.6, -0.5)):
        maker.add(CAPSULE, (long * across, -high * 0.6 - legs * 0.5, deep * aside), (0.06, legs * 0.6, deep * 0.4),
                  turn=(0.0, maker.u(-0.2, 0.2), maker.u(-0.4, 0.4)), part=0, material=0)
    maker.solid.shape[:, 14] = maker.u(0.05, 0.25)
    maker.solid.shape[:, 15] = maker.u(0, 0.025)
    maker.solid.shape[:, 16] = maker.log(4, 14)
    maker.furry(0.6)
    maker.decal(0, 2, 0.0, (maker.u(-0.4, 0.4), 0.0), (maker.u(0.2, 0.5), 1.0), 2, 2, maker.maybe(0.3).float())
    return maker.ends(high * 0.6 + legs * 1.1, 1.35)


def person(maker):
    """Trunk, hips, head with hair, arms and legs in some pose; every limb is a part."""
    wide, tall, leg = maker.u(0.17, 0.27), maker.u(0.24, 0.32), maker.u(0.26, 0.36)
    lean = maker.u(-0.3, 0.3)
    maker.add(BOX, (0, 0, 0), (wide, tall, wide * 0.62), part=1, material=1, round=wide * 0.55, turn=(0.0, 0.0, lean))
    maker.add(ELLIPSOID, (0, -tall * 1.05, 0), (wide * 1.02, wide * 0.8, wide * 0.75), part=2, material=2)
    head = maker.u(0.12, 0.17)
    place = -lean * tall * 1.3, tall + head * 1.25, maker.u(-0.04, 0.1)
    maker.add(ELLIPSOID, place, (head * 0.85, head * 1.1, head * 0.95), part=3, material=0)
    hair = (place[0], place[1] + head * 0.35, place[2] - head * 0.25)
    hair = maker.add(ELLIPSOID, hair, (head * 0.98, head * 0.95, head * 0.95), part=4, material=3)
    maker.hide(hair, ~maker.maybe(0.8))
    sleeve = torch.where(maker.maybe(0.5), 1.0, 0.0)
    for side, part in ((-1, 5), (1, 6)):
        swing, lift, arm = maker.u(-1.2, 1.2), side * maker.u(0.05, 1.6), tall * maker.u(0.7, 0.95)
        shoulder = side * wide * 0.95, tall * 0.75
        down, forward = arm * lift.cos() * swing.cos(), arm * lift.cos() * swing.sin()
        place = shoulder[0] + arm * lift.sin(), shoulder[1] - down, forward
        maker.add(CAPSULE, place, (0.05, arm, 0.075), part=part, material=sleeve, turn=(0.0, -swing, lift))
    sitting = maker.maybe(0.4)
    for side, part in ((-1, 7), (1, 8)):
        swing = torch.where(sitting, maker.u(-1.7, -1.0), maker.u(-0.5, 0.5))
        apart = side * maker.u(0.0, 0.35)
        down, forward = leg * swing.cos() * apart.cos(), leg * swing.sin() * apart.cos()
        place = side * wide * 0.5 + leg * apart.sin(), -tall * 1.1 - down, -forward
        maker.add(CAPSULE, place, (0.06, leg, 0.12), part=part, material=2, turn=(0.0, swing, apart))
    maker.solid.shape[:, 14] = maker.u(0.02, 0.1)
    maker.folded(0.7, (0.015, 0.05), (4, 12))
    low = torch.where(sitting, tall * 1.3, tall * 1.1 + 1.9 * leg)
    return maker.ends(low, 1.25)


def cushion(maker):
    """Pillows, blankets, heaps of cloth and soft toys: flat or plump bodies with folds."""
    x, z, y = maker.log(0.5, 1), maker.log(0.4, 1), maker.log(0.12, 0.5)
    maker.add(BOX, (0, 0, 0), (x, y, z), round=y * maker.u(0.6, 0.98))
    more = maker.add(ELLIPSOID, (x * maker.u(-0.6, 0.6), y * 0.7, z * maker.u(-0.6, 0.6)),
                     (x * 0.5, y * maker.u(0.5, 1.2), z * 0.5))
    maker.hide(more, ~maker.maybe(0.35))
    maker.solid.shape[:, 14] = maker.u(0.1, 0.4)
    maker.solid.shape[:, 15], maker.solid.shape[:, 16] = maker.u(0, 0.08), maker.log(2, 6)
    maker.solid.shape[:, 33] = maker.u(-0.6, 0.6) * maker.maybe(0.3)
    maker.folded(0.75, (0.03, 0.16), (1, 5))
    maker.furry(0.15, (0.01, 0.04), (25, 60))
    size = maker.log(0.15, 0.6)
    maker.decal(0, 1, 0.0, (maker.u(-0.4, 0.4), maker.u(-0.4, 0.4)), (size, size), 1, 1, maker.maybe(0.25).float())
    return maker.ends(y * 0.9, torch.sqrt(x * x + y * y * 3 + z * z) * 1.15 + 0.1)


def couch(maker):
    """Beds and couches: a base, a soft seat, a back, arms, pillows and a blanket."""
    x, z, base = maker.u(0.6, 1), maker.u(0.4, 0.9), maker.u(0.08, 0.25)
    seat = maker.u(0.08, 0.2)
    maker.add(BOX, (0, 0, 0), (x, base, z), round=0.02)
    maker.add(BOX, (0, base + seat * 0.8, 0), (x * 0.97, seat, z * 0.96), part=1, material=1, round=seat * 0.7)
    top = base + seat * 1.8
    back = maker.add(BOX, (0, top + 0.1, -z), (x, maker.u(0.25, 0.6), 0.09), part=2, material=2, round=0.06)
    maker.hide(back, ~maker.maybe(0.8))
    arms = maker.maybe(0.45)
    for side in (-1, 1):
        arm = maker.add(BOX, (side * x, top * 0.6, 0), (0.1, top * 0.8, z), part=3 + (side > 0), material=0, round=0.06)
        maker.hide(arm, ~arms)
    for side in (-1, 1):
        place, size = (side * x * 0.48, top + 0.1, -z * 0.66), (x * 0.38, 0.11, z * 0.26)
        pillow = maker.add(BOX, place, size, part=6 + (side > 0), material=3, round=0.1,
                           turn=(maker.u(-0.4, 0.4), maker.u(-1.1, 0.1), 0.0))
        maker.hide(pillow, ~maker.maybe(0.75))
    blanket = maker.add(BOX, (0, top * 0.98, z * maker.u(0.1, 0.5)), (x * maker.u(0.6, 1.06), 0.07, z * 0.6), part=5,
                        material=4, round=0.06)
    maker.hide(blanket, ~maker.maybe(0.5))
    maker.solid.shape[:, 14] = maker.u(0.005, 0.04)
    maker.folded(0.6, (0.02, 0.06), (2, 7))
    return maker.ends(base, torch.sqrt(x * x + z * z + 0.7))


def cabinet(maker):
    """Cupboards, shelves, appliances and facades: a box with panels, doors or windows and a top."""
    x, y, z = maker.u(0.35, 0.9), maker.u(0.3, 1), maker.u(0.15, 0.6)
    panel = maker.u(0.6, 0.92) * maker.maybe(0.4)
    maker.add(BOX, (0, 0, 0), (x, y, z), round=0.01 + 0.04 * maker.u(), inner=(panel, 4))
    slab = maker.add(BOX, (0, y * 1.03, 0), (x * 1.05, 0.03, z * 1.05), part=1, material=1, round=0.01)
    maker.hide(slab, ~maker.maybe(0.5))
    knob = maker.add(ELLIPSOID, (x * 0.1, maker.u(-0.5, 0.5) * y, z * 1.03), (0.04, 0.04, 0.04), part=2, material=2)
    maker.hide(knob, ~maker.maybe(0.5))
    rows = maker.maybe(0.5)
    for number in range(3):
        across = torch.where(rows, 0 * x, x * (number - 1) * 0.64)
        up = torch.where(rows, y * (number - 1) * 0.64, maker.u(-0.15, 0.15) * y)
        size = torch.where(rows, x * 0.85, x * 0.28), torch.where(rows, y * 0.28, y * maker.u(0.4, 0.85))
        maker.decal(number, 2, 1.0, (across, up), size, 3 + number, torch.where(maker.maybe(0.7), 3.0, 0.0),
                    maker.maybe(0.75).float(), profile=maker.square)
    return maker.ends(y, torch.sqrt(x * x + y * y + z * z) * 1.08)


def plant(maker):
    """Pots with leaves, bushes and trees: rough crowns on a stem."""
    pot, stem = maker.u(0.15, 0.4), maker.u(0.1, 0.6)
    foot = maker.add(FRUSTUM, (0, -0.6, 0), (pot * 0.75, 0.25, pot), part=1, material=1, round=0.02)
    maker.hide(foot, ~maker.maybe(0.6))
    maker.add(CAPSULE, (0, -0.25, 0), (0.05, 0.35, 0.03), part=2, material=2)
    for _ in range(4):
        size = maker.u(0.15, 0.5), maker.u(0.12, 0.5), maker.u(0.15, 0.5)
        place = maker.u(-0.4, 0.4), stem + maker.u(-0.3, 0.4), maker.u(-0.4, 0.4)
        maker.add(ELLIPSOID, place, size, part=3, material=0)
    maker.furry(0.95, (0.06, 0.28), (5, 16))
    maker.solid.shape[:, 39] = maker.log(0.5, 1.5)
    return maker.ends(0.8, 1.4)


def cluster(maker):
    """A few primitives set against each other, some of them parts of another stuff."""
    place = torch.zeros(maker.count, 3, device=maker.random.device)
    parts = maker.random.integer(3, 6, maker.count)
    for number in range(5):
        kind = maker.random.integer(0, 6, maker.count).float()
        size = [maker.log(0.12, 0.5) for _ in range(3)]
        size[1] = torch.where(kind == TORUS, 0.3 * size[1], size[1])
        own = maker.maybe(0.4).float() * number
        turn = maker.u(-3, 3), 0.3 * maker.u(-3, 3), 0.3 * maker.u(-3, 3)
        row = maker.add(kind, place.unbind(1), size, part=own, material=own.clamp(max=4),
                        round=0.25 * torch.stack(size).amin(0), turn=turn)
        maker.hide(row, number >= parts)
        step = maker.random.normal(maker.count, 3)
        place = place + 0.45 * step / step.norm(dim=1, keepdim=True)
        place = place * 0.9
    maker.solid.shape[:, 14] = torch.where(maker.maybe(0.5), maker.u(0.02, 0.3), torch.full_like(place[:, 0], 1e-3))
    maker.furry(0.1)
    maker.folded(0.2)
    return maker.ends(maker.u(0.3, 0.7), 1.5)


def pole(maker):
    """Posts, pipes, cables and lamps: long and thin."""
    thin, low, bend = maker.log(0.02, 0.12), maker.u(0.7, 1), maker.u(-0.5, 0.5) * maker.maybe(0.35)
    maker.add(CAPSULE, (0, 0, 0), (thin, low, thin * maker.u(0.5, 1)))
    kind = maker.random.integer(0, 3, maker.count).float()
    size = maker.u(0.1, 0.35), maker.u(0.06, 0.3), maker.u(0.1, 0.35)
    head = maker.add(kind, (0, low, 0), size, part=1, material=1)
    maker.hide(head, ~maker.maybe(0.5))
    foot = maker.add(CYLINDER, (0, -low, 0), (maker.u(0.1, 0.4), 0.04, 0), part=2, material=0)
    maker.hide(foot, ~maker.maybe(0.5))
    maker.solid.shape[:, 33] = bend
    return maker.ends(low, 1.5)


MAKERS = {
    plain: 1.4, package: 2.8, turned: 2, flat: 1.5, vehicle: 1.6, furniture: 0.9, creature: 1.8, cluster: 1.5,
    pole: 0.8, person: 1.6, cushion: 1.5, couch: 0.9, cabinet: 1.1, plant: 0.7,
}


def draw_solids(random, count, profiles, square):
    """`count` solids of mixed makers; `square` is the number of a profile that is a rounded square."""
    choice = random.choice(constant(tuple(MAKERS.values()), random.device)[None], count)[0]
    result = None
    for number, make in enumerate(MAKERS):
        maker = Maker(random, count, profiles)
        maker.square = square
        solid = make(maker)
        if result is None:
            result = solid
            continue
        for field in dataclasses.fields(Solid):
            old, new = getattr(result, field.name), getattr(solid, field.name)
            chosen = (choice == number).view(-1, *[1] * (old.dim() - 1))
            setattr(result, field.name, torch.where(chosen, new, old))
    return result


def scaled(solid, scale):
    """The same solids `scale` [count] times as large."""
    size = scale[:, None, None]
    primitives, decals, shape = solid.primitives.clone(), solid.decals.clone(), solid.shape.clone()
    for first, last in ((1, 4), (13, 17), (20, 21)):
        primitives[..., first:last] *= size
    decals[..., 3:7] *= size
    shape[:, 14:16] *= scale[:, None]
    shape[:, 16:19] /= scale[:, None]
    shape[:, 33] /= scale
    for height, cells in ((34, 35), (36, 37)):
        shape[:, height] *= scale
        shape[:, cells] /= scale
    return Solid(primitives, decals, shape, solid.low * scale, solid.radius * scale)
