"""Draws scenes of overlapping textured objects with exact masks, many at once on one device.

A `Cast` says what stands in a scene (shapes, textures, parts), a `Pose` where it stands;
a clip is one cast in several poses. Image coordinates run over [-1, 1] both ways.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F

import shapes
import textures
from randomness import Random, constant


@dataclasses.dataclass
class Library:
    """Banks of shape fields [n, side, side] and textures [n, 3, side, side]."""

    shapes: torch.Tensor
    textures: torch.Tensor

    @staticmethod
    def draw(seed, device, counts, kinds):
        """`counts` = (shapes, textures); `kinds` is "training", "reserved" or "mixed", half of either."""
        random = Random(seed, device)
        names = {"training": ("TRAINING_KINDS",), "reserved": ("RESERVED_KINDS",)}
        chosen = names.get(kinds, ("TRAINING_KINDS", "RESERVED_KINDS"))
        share = len(chosen)
        drawn = [
            torch.cat([draw(random, count // share, side, getattr(module, name)) for name in chosen])
            for module, draw, count, side in (
                (shapes, shapes.draw_bank, counts[0], 128),
                (textures, textures.draw_bank, counts[1], 256),
            )
        ]
        return Library(*drawn)


@dataclasses.dataclass
class Cast:
    """What stands in each scene; every field is [scenes, layers, ...], layer 0 the background."""

    present: torch.Tensor
    shape: torch.Tensor
    texture: torch.Tensor
    texture_place: torch.Tensor
    tint: torch.Tensor
    part_shape: torch.Tensor
    part_texture: torch.Tensor
    part_place: torch.Tensor
    part_kind: torch.Tensor
    part_tint: torch.Tensor
    finish: torch.Tensor
    warp: torch.Tensor

    def repeat(self, frames):
        values = [getattr(self, f.name).repeat_interleave(frames, 0) for f in dataclasses.fields(self)]
        return Cast(*values)

    def layer(self, index):
        return Cast(*[getattr(self, f.name)[:, index] for f in dataclasses.fields(self)])


@dataclasses.dataclass
class Pose:
    """Where each layer stands, [scenes, layers]; `rest` is the size at which textures are pinned."""

    x: torch.Tensor
    y: torch.Tensor
    size: torch.Tensor
    rest: torch.Tensor
    angle: torch.Tensor
    aspect: torch.Tensor
    phase: torch.Tensor

    def layer(self, index):
        return Pose(*[getattr(self, f.name)[:, index] for f in dataclasses.fields(self)])


@dataclasses.dataclass
class Scene:
    """Images [n, 3, side, side]; `layers` and `parts` number what each pixel shows; `drawn` counts
    each layer's pixels before anything covered them, [n, layers]."""

    images: torch.Tensor
    layers: torch.Tensor
    parts: torch.Tensor
    drawn: torch.Tensor


def draw_cast(random, library, scenes, layers, objects):
    """Casts of up to `layers` - 1 objects, of which `objects` (a number or a tensor) on average are present."""
    shape = (scenes, layers)
    pick = lambda bank, *more: random.integer(0, len(bank), *shape, *more)
    present = random.chance(objects / (layers - 1), *shape)
    present[:, 0] = True
    present[:, 1] |= ~present[:, 1:].any(1)
    place = random.uniform(*shape, 4)
    place[..., 0] = 0.8 * torch.exp(place[..., 0] * math.log(4.0))
    place[..., 1] *= 2 * math.pi
    part_place = random.uniform(*shape, 2, 4, low=-1, high=1)
    # size, turn, shift across, shift down, all in the object's own units
    part_place = part_place * constant((0.25, math.pi, 0.6, 0.6), random.device)
    part_place[..., 0] += 0.45
    finish = random.uniform(*shape, 6)
    tint = torch.cat([0.7 + 0.5 * random.uniform(*shape, 3), 0.15 * random.normal(*shape, 3)], -1)
    part_tint = torch.cat(
        [0.7 + 0.5 * random.uniform(*shape, 2, 3), 0.15 * random.normal(*shape, 2, 3)], -1
    )
    warp = random.uniform(*shape, 2, 3)
    warp[..., 0] *= 0.12 * random.chance(0.6, *shape, 1)
    warp[..., 1] = 1.5 + 3 * warp[..., 1]
    cast = Cast(
        present, pick(library.shapes), pick(library.textures), place, tint,
        pick(library.shapes, 2), pick(library.textures, 2), part_place,
        random.uniform(*shape, 2), part_tint, finish, warp,
    )
    return with_twins(random, cast)


def with_twins(random, cast):
    """Makes some layers copies of the layer below, so that likeness does not mean sameness."""
    twin = random.chance(0.18, *cast.present.shape)
    twin[:, :2] = False
    for field in ("shape", "texture", "tint", "part_shape", "part_texture", "part_kind", "part_place"):
        value = getattr(cast, field)
        before = value.roll(1, dims=1)
        chosen = twin.reshape(*twin.shape, *[1] * (value.dim() - 2))
        setattr(cast, field, torch.where(chosen, before, value))
    return cast


def draw_pose(random, scenes, layers, sizes=(0.12, 0.85)):
    """Sizes fall with the layer on the whole, so that little is hidden entirely."""
    size = random.log_uniform(scenes, layers, low=sizes[0], high=sizes[1])
    order = torch.argsort(size.log() + 0.35 * random.normal(scenes, layers), dim=1, descending=True)
    size = size.gather(1, order)
    wide = random.chance(0.35, scenes)
    size[:, 1] = torch.where(wide, random.uniform(scenes, low=0.8, high=2.2), size[:, 1])
    reach = 1.15 - 0.35 * size.clamp(max=1.0)
    x = random.uniform(scenes, layers, low=-1, high=1) * reach
    y = random.uniform(scenes, layers, low=-1, high=1) * reach
    angle = random.uniform(scenes, layers, low=-math.pi, high=math.pi)
    upright = random.chance(0.4, scenes, layers)
    angle = torch.where(upright, 0.1 * angle, angle)
    aspect = random.log_uniform(scenes, layers, low=0.65, high=1.55)
    return Pose(x, y, size, size.clone(), angle, aspect, torch.zeros_like(x))


def expand(value):
    return value[:, None, None]


def turned(x, y, angle):
    cosine, sine = expand(angle.cos()), expand(angle.sin())
    return x * cosine + y * sine, y * cosine - x * sine


def sample(bank, index, x, y, mode):
    """Looks textures or fields up at coordinates [n, side, side] where [-1, 1] spans an entry."""
    picked = bank[index].float()
    picked = picked if picked.dim() == 4 else picked[:, None]
    grid = torch.stack([x, y], dim=-1)
    return F.grid_sample(picked, grid, padding_mode=mode, align_corners=False)


def local_coordinates(pose, cast, x, y):
    """Image coordinates to the object's own, in which its shape spans about [-1, 1]."""
    u, v = turned(x - expand(pose.x), y - expand(pose.y), pose.angle)
    u, v = u / expand(pose.size * pose.aspect), v / expand(pose.size / pose.aspect)
    for wave in range(2):
        height, frequency, start = cast.warp[:, wave].unbind(-1)
        turn = expand(start * 2 * math.pi + pose.phase)
        if wave == 0:
            u = u + expand(height) * torch.sin(v * expand(frequency) + turn)
        else:
            v = v + expand(height) * torch.sin(u * expand(frequency) + turn)
    return u, v


def surface(library, cast, pose, u, v, index, tint):
    """Colours of a texture pinned to the object, [n, 3, side, side]."""
    scale, turn, shift_x, shift_y = cast.texture_place.unbind(-1)
    x, y = turned(u * expand(pose.rest), v * expand(pose.rest), turn)
    x, y = x * expand(scale) + expand(shift_x * 2), y * expand(scale) + expand(shift_y * 2)
    colour = sample(library.textures, index, x, y, "reflection")
    gain, bias = tint[:, :3, None, None], tint[:, 3:, None, None]
    return colour * gain + bias


def edge(distance, softness):
    return (distance / softness + 0.5).clamp(0, 1)


def add_part(library, cast, pose, local, state, number):
    """Paints one part inside the object: a patch of another shape, or the rim."""
    u, v, distance, pixels = local
    colour, parts = state
    size, turn, shift_x, shift_y = cast.part_place[:, number].unbind(-1)
    x, y = turned((u - expand(shift_x)) / expand(size), (v - expand(shift_y)) / expand(size), turn)
    patch = sample(library.shapes, cast.part_shape[:, number], x / shapes.EXTENT, y / shapes.EXTENT, "border")
    patch = patch[:, 0] * expand(size * pixels)
    rim = expand(pixels * (0.05 + 0.15 * size)) - distance
    kind = expand(cast.part_kind[:, number])
    chosen = torch.where(kind < 0.4, patch, torch.where(kind < 0.48, rim, torch.full_like(rim, -9.0)))
    cover = edge(chosen, 1.0)
    painted = surface(library, cast, pose, u, v, cast.part_texture[:, number], cast.part_tint[:, number])
    colour = torch.lerp(colour, painted, cover[:, None])
    return colour, torch.where(cover > 0.5, number + 1, parts)


def shade(colour, distance, finish, pixels):
    """Light from one side on a rounded rim."""
    across = F.pad(distance[:, :, 1:] - distance[:, :, :-1], (0, 1, 0, 0))
    down = F.pad(distance[:, 1:] - distance[:, :-1], (0, 0, 0, 1))
    angle = expand(finish[:, 0] * 2 * math.pi)
    strength = expand((finish[:, 1] - 0.5).clamp(min=0) * 0.9)
    width = expand(pixels * (0.1 + 0.5 * finish[:, 2]))
    light = (across * angle.cos() + down * angle.sin()).clamp(-1, 1)
    falloff = torch.exp(-distance.clamp(min=0) / width)
    return colour * (1 + strength * light * falloff)[:, None]


def shadow(library, cast, pose, x, y, pixels):
    """How much light a soft shadow beside the object takes, [n, side, side]."""
    finish = cast.finish
    strength = expand((finish[:, 3] - 0.4).clamp(min=0))
    shift, angle = pose.size * (0.05 + 0.2 * finish[:, 4]), finish[:, 0] * 2 * math.pi
    moved = dataclasses.replace(pose, x=pose.x + shift * angle.cos(), y=pose.y + shift * angle.sin())
    u, v = local_coordinates(moved, cast, x, y)
    field = sample(library.shapes, cast.shape, u / shapes.EXTENT, v / shapes.EXTENT, "border")[:, 0]
    return strength * edge(field * expand(pixels), expand(pixels * (0.05 + 0.3 * finish[:, 5]) + 1))


def paint_layer(library, cast, pose, grid, state):
    """Paints one object over the picture so far; returns its own pixel count too."""
    x, y = grid
    image, layers, parts, number = state
    pixels = pose.size * x.shape[-1] / 2
    u, v = local_coordinates(pose, cast, x, y)
    field = sample(library.shapes, cast.shape, u / shapes.EXTENT, v / shapes.EXTENT, "border")[:, 0]
    distance = field * expand(pixels)
    colour = surface(library, cast, pose, u, v, cast.texture, cast.tint)
    own = torch.zeros_like(parts)
    for part in range(2):
        colour, own = add_part(library, cast, pose, (u, v, distance, pixels), (colour, own), part)
    colour = shade(colour, distance, cast.finish, pixels)
    here = expand(cast.present)
    softness = torch.where(cast.finish[:, 2] > 0.7, 1 + 6 * (cast.finish[:, 2] - 0.7), torch.ones_like(pixels))
    cover = edge(distance, expand(softness)) * here
    dark = shadow(library, cast, pose, x, y, pixels) * here
    image = torch.lerp(image * (1 - dark[:, None]), colour, cover[:, None])
    hit = cover > 0.5
    layers = torch.where(hit, number, layers)
    return image, layers, torch.where(hit, own, parts), hit.flatten(1).sum(1)


def compose(library, cast, pose, side, paint=paint_layer):
    """Paints all layers from the back to the front."""
    device = pose.x.device
    axis = (torch.arange(side, device=device) + 0.5) / side * 2 - 1
    y, x = (part[None].expand(len(pose.x), -1, -1) for part in torch.meshgrid(axis, axis, indexing="ij"))
    back, stand = cast.layer(0), pose.layer(0)
    stand = dataclasses.replace(stand, size=torch.ones_like(stand.size), rest=torch.ones_like(stand.size))
    u, v = local_coordinates(stand, back, x, y)
    image = surface(library, back, stand, u, v, back.texture, back.tint)
    layers = torch.zeros(x.shape, dtype=torch.uint8, device=device)
    parts, drawn = torch.zeros_like(layers), [torch.zeros(len(x), dtype=torch.long, device=device)]
    for number in range(1, pose.x.shape[1]):
        state = (image, layers, parts, constant(number, device, torch.uint8))
        image, layers, parts, count = paint(library, cast.layer(number), pose.layer(number), (x, y), state)
        drawn.append(count)
    return Scene(image.clamp(0, 1), layers, parts, torch.stack(drawn, 1))
