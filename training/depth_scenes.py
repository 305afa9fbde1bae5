"""Draws scenes with depth: solids on a floor before walls or a sky, seen by a camera, with exact masks.

The picture itself is ray-marched by render.cu; here everything in it is chosen, many scenes at once.
"""

import ctypes
import dataclasses
import math
import os
import subprocess

import torch

from depth_camera import aim, draw_camera, unit
from depth_clips import moved
from effects import expose
from materials import Banks, draw_materials, draw_surfaces, earthen
from photography import photographed
from randomness import Random, constant
from scenes import Scene
from solids import MATERIALS, THING, VIEW, draw_solids, rotation, scaled

THINGS = 14
HERE = os.path.dirname(os.path.abspath(__file__))


class Tables(ctypes.Structure):
    ROWS = "views things primitives decals materials surfaces profiles".split()
    _fields_ = [(name, ctypes.c_void_p) for name in ROWS]
    _fields_ += [("textures", ctypes.c_void_p * 5)]
    _fields_ += [(name, ctypes.c_int) for name in "scenes count side".split()]


class Pictures(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in "images depth layers parts drawn".split()]


def build(device):
    """Compiles render.cu for the device and loads it."""
    source = f"{HERE}/render.cu"
    target = f"{HERE}/render-{device.type}.so"
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        command = ["nvcc", "-O3", f"-arch=sm_{major}{minor}", "--use_fast_math", "-shared", "-Xcompiler", "-fPIC"]
    else:
        command = ["g++", "-O2", "-ffast-math", "-march=native", "-shared", "-fPIC", "-x", "c++"]
    if not os.path.exists(target) or os.path.getmtime(target) < os.path.getmtime(source):
        # Under another name first, so that programs started at once do not load half a file.
        part = f"{target}.{os.getpid()}"
        subprocess.run([*command, source, "-o", part], check=True)
        os.replace(part, target)
    return ctypes.CDLL(target)


def draw_walls(random, camera, view):
    """No, one or two walls behind the things."""
    u = lambda low=0.0, high=1.0: random.uniform(len(view), low=low, high=high)
    scenes, walls = len(view), u()
    view[:, 13] = torch.where(walls < 0.35, 0.0, torch.where(walls < 0.75, 1.0, 2.0))
    angle, side = u(-0.6, 0.6), random.sign(scenes)
    behind = camera.eye[:, 2] + camera.far * u(1.25, 2.5)
    for first, turn, away in ((14, angle, behind), (18, angle + side * u(1.2, 1.7), camera.far * u(0.8, 1.6))):
        normal = torch.stack([turn.sin(), torch.zeros_like(turn), -turn.cos()], 1)
        view[:, first : first + 3] = normal
        view[:, first + 3] = -away


def draw_light(random, view):
    """A sun or a lamp, light from all sides, and a weak second light."""
    scenes = len(view)
    u = lambda low=0.0, high=1.0, *more: random.uniform(scenes, *more, low=low, high=high)
    light = unit(torch.stack([u(-1, 1), u(0.25, 1.2), u(-1.2, 0.6)], 1))
    view[:, 22:25] = light
    colour = 1 + 0.15 * random.normal(scenes, 1) * constant((1.0, 0.1, -1.0), random.device)
    # In a quarter of the scenes the light is hard: one thing's sunlit side is many times as bright as the other.
    hard = random.chance(0.25, scenes, 1)
    strength = torch.where(hard, u(1.2, 2.2, 1), u(0, 1.6, 1))
    view[:, 25:28] = colour * strength
    sky = earthen(random, scenes) * 0.5 + 0.5
    ambient = u(0.25, 0.9, 1) * (1.3 - 0.5 * strength.clamp(max=1.4))
    ambient = torch.where(hard, ambient * u(0.25, 0.6, 1), ambient)
    view[:, 28:31], view[:, 31:34] = sky * ambient, earthen(random, scenes) * ambient * 0.7
    view[:, 34] = random.log_uniform(scenes, low=1.5, high=40)
    view[:, 47] = torch.where(random.chance(0.3, scenes), u(3, 12), torch.zeros(scenes, device=random.device))
    view[:, 48], view[:, 49], view[:, 50] = u(-2, 2), u(1.5, 4), u(-3, 1)
    view[:, 56:59] = u(0, 0.35, 1) * (0.7 + 0.3 * earthen(random, scenes))
    view[:, 59:62] = unit(torch.stack([u(-1, 1), u(0, 0.6), u(-1, 0)], 1))
    return sky


def draw_views(random, banks, camera):
    """Rows [scenes, VIEW]."""
    scenes = len(camera.eye)
    u = lambda low=0.0, high=1.0, *more: random.uniform(scenes, *more, low=low, high=high)
    view = torch.zeros(scenes, VIEW, device=random.device)
    aim(view, camera)
    draw_walls(random, camera, view)
    sky = draw_light(random, view)
    view[:, 36:39] = (sky * u(0.3, 1.2, 1)) * u(0.5, 1.3, 1)
    view[:, 39:42] = 0.5 * view[:, 36:39] + 0.5 * u(0.4, 1.2, 1)
    any_texture, picture = u(0, banks.plain - 0.01).floor(), banks.some_picture(random, scenes)
    view[:, 42] = torch.where(random.chance(0.5, scenes), picture, any_texture)
    view[:, 43] = u(0, 0.9) * random.chance(0.7, scenes)
    view[:, 44] = random.log_uniform(scenes, low=0.7, high=1.5)
    view[:, 45] = u(0, 0.04) * random.chance(0.25, scenes)
    view[:, 51], view[:, 52], view[:, 53] = u(), random.integer(1, 6, scenes).float(), u(0, 6.3)
    view[:, 54], view[:, 55] = u(0, 0.7), u(0, 4) * random.chance(0.6, scenes)
    return view


def sizes(random, camera, depth, radius):
    """How much solids are enlarged: their radius is a share of the picture's half height, a few large, many small."""
    scenes = len(radius)
    share = random.log_uniform(*radius.shape, low=0.18, high=0.95)
    large = torch.where(random.chance(0.6, scenes), random.uniform(scenes, low=0.55, high=1.15), share[:, 0])
    # A tenth of the scenes are all but filled by one thing, which the picture's edge cuts.
    filling = random.uniform(scenes, low=1.2, high=2.2)
    share[:, 0] = torch.where(random.chance(0.1, scenes), filling, large)
    return share * depth * camera.half[:, None] / radius


@dataclasses.dataclass
class Places:
    """Where things stand, [scenes, THINGS]: the middle's coordinates, the scale and three turns."""

    x: torch.Tensor
    y: torch.Tensor
    z: torch.Tensor
    scale: torch.Tensor
    yaw: torch.Tensor
    pitch: torch.Tensor
    roll: torch.Tensor


def scattered(random, camera, low, radius):
    """Places on the floor in view, some tumbled, some in the air; the first near the middle of the picture."""
    shape, scenes = radius.shape, len(radius)
    u = lambda low=0.0, high=1.0: random.uniform(*shape, low=low, high=high)
    middle = camera.eye + camera.forward * camera.far[:, None]
    # A share of the picture's width, and a depth about the middle's.
    depth = camera.far[:, None] * torch.exp(random.normal(*shape) * 0.28)
    wide = camera.half[:, None] * camera.aspect[:, None].sqrt()
    x = camera.eye[:, :1] + depth * wide * u(-1.05, 1.05)
    level = camera.forward[:, 2:]
    z = camera.eye[:, 2:] + level * depth + (1 - level) * u(-1, 1) * camera.far[:, None] * 0.5
    x[:, 0] = middle[:, 0] + 0.3 * camera.far * camera.half * random.uniform(scenes, low=-1, high=1)
    z[:, 0] = middle[:, 2]
    scale = sizes(random, camera, depth, radius)
    yaw, tumbled = u(-math.pi, math.pi), random.chance(0.22, *shape)
    pitch, roll = torch.where(tumbled, u(-3, 3), 0 * yaw), torch.where(tumbled, u(-3, 3), 0.04 * u(-1, 1))
    height = torch.where(tumbled, radius * 0.6, low) * scale
    height = height + random.chance(0.12, *shape) * u(0, 1.2) * depth * camera.half[:, None]
    return Places(x, height, z, scale, yaw, pitch, roll)


def stand_together(random, places, low, radius):
    """Puts some things on top of the one before, or close by its side."""
    scenes, things = radius.shape
    x, y, z, scale = places.x, places.y, places.z, places.scale
    for k in range(1, things):
        atop = random.chance(0.12, scenes)
        beside = random.chance(0.25, scenes) & ~atop
        aside = random.sign(scenes) * 0.75 * (radius[:, k] * scale[:, k] + radius[:, k - 1] * scale[:, k - 1])
        x[:, k] = torch.where(atop, x[:, k - 1], torch.where(beside, x[:, k - 1] + aside, x[:, k]))
        z[:, k] = torch.where(atop | beside, z[:, k - 1], z[:, k])
        on_top = y[:, k - 1] + low[:, k - 1] * scale[:, k - 1] * 0.95 + y[:, k]
        y[:, k] = torch.where(atop, on_top, y[:, k])


def line_up(random, places, rows, radius):
    """Puts the things of `rows` [scenes] in a line, touching or nearly, mostly facing the same way."""
    scenes, things = radius.shape
    u = lambda low, high: random.uniform(scenes, 1, low=low, high=high)
    inside = rows[:, None] & random.chance(0.88, scenes, things)
    angle = u(-0.6, 0.6) + math.pi / 2 * random.chance(0.25, scenes, 1)
    number = torch.arange(things, device=random.device)[None] - u(0, 6)
    step = number * u(0.7, 1.35) * radius[:, :1] * places.scale[:, :1]
    values = {
        "scale": places.scale[:, :1] * random.uniform(scenes, things, low=0.93, high=1.07),
        "x": places.x[:, :1] + step * angle.cos(), "z": places.z[:, :1] + step * angle.sin(),
        "y": places.y[:, :1].expand(-1, things), "yaw": places.yaw[:, :1] + 0.15 * random.normal(scenes, things),
        "pitch": places.pitch[:, :1].expand(-1, things), "roll": places.roll[:, :1].expand(-1, things),
    }
    for name, value in values.items():
        setattr(places, name, torch.where(inside, value, getattr(places, name)))


def hang(random, places, camera, view, radius):
    """Puts some things on the wall, half in it: pictures, doors, cupboards."""
    shape = radius.shape
    u = lambda low, high: random.uniform(*shape, low=low, high=high)
    normal, offset = view[:, None, 14:17], view[:, 17:18]
    away = (camera.eye * view[:, 14:17]).sum(1, keepdim=True) - offset
    wide = camera.half[:, None] * camera.aspect[:, None].sqrt()
    along = u(-1, 1) * wide * away - (camera.eye[:, :1] * normal[..., 2] - camera.eye[:, 2:] * normal[..., 0])
    scale = random.log_uniform(*shape, low=0.15, high=0.6) * away * camera.half[:, None] / radius
    hung = random.chance(0.09, *shape) & (view[:, 13:14] > 0)
    hung[:, 0] = False
    values = {
        "x": normal[..., 0] * offset - normal[..., 2] * along, "z": normal[..., 2] * offset + normal[..., 0] * along,
        "y": camera.eye[:, 1:2] + u(-0.7, 0.7) * camera.half[:, None] * away, "scale": scale,
        "yaw": torch.atan2(normal[..., 0], normal[..., 2]).expand(shape), "pitch": 0 * along, "roll": 0 * along,
    }
    for name, value in values.items():
        setattr(places, name, torch.where(hung, value, getattr(places, name)))


def with_twins(random, solid, materials, rows):
    """Makes some things copies of the one before, or of its materials, so that likeness does not mean sameness.

    In scenes of `rows` nearly all are copies of the first, and most have its materials.
    """
    shape = (len(rows), THINGS)
    build = [solid.primitives, solid.decals, solid.shape, solid.low, solid.radius]
    for probability, in_rows, values in ((0.16, 0.92, build), (0.25, 0.7, [materials])):
        twin, same = random.chance(probability, *shape), rows[:, None] & random.chance(in_rows, *shape)
        twin[:, 0] = False
        for value in values:
            split = value.view(*shape, *value.shape[1:]) if value.shape[0] == len(rows) * THINGS else value
            wide = lambda chosen: chosen.view(*shape, *[1] * (split.dim() - 2))
            copied = torch.where(wide(twin), split.roll(1, dims=1), split)
            value.copy_(torch.where(wide(same), split[:, :1], copied).view(value.shape))


def colours_alike(random, materials, surfaces):
    """Gives some things the floor's or wall's look, and some all their parts the same."""
    scenes = len(surfaces)
    hidden = random.chance(0.06, scenes, THINGS, 1, 1)
    stuff = surfaces[:, None, :1].expand(-1, THINGS, MATERIALS, -1)
    materials = torch.where(hidden, stuff, materials)
    same = random.chance(0.12, scenes, THINGS, 1, 1)
    return torch.where(same, materials[:, :, :1].expand_as(materials), materials)


@dataclasses.dataclass
class Stage:
    """Everything about some scenes, as rows of floats [scenes, ...] that render.cu reads."""

    views: torch.Tensor
    things: torch.Tensor
    primitives: torch.Tensor
    decals: torch.Tensor
    materials: torch.Tensor
    surfaces: torch.Tensor

    def repeat(self, frames):
        return Stage(*(value.repeat_interleave(frames, 0) for value in vars(self).values()))


def draw_stage(random, banks, scenes):
    """Stages of `scenes` scenes and their cameras."""
    camera = draw_camera(random, scenes)
    views = draw_views(random, banks, camera)
    solid = draw_solids(random, scenes * THINGS, banks.square, banks.square)
    materials = draw_materials(random, banks, scenes, THINGS, MATERIALS)
    surfaces, rows = draw_surfaces(random, banks, scenes), random.chance(0.14, scenes)
    with_twins(random, solid, materials, rows)
    materials = colours_alike(random, materials, surfaces)
    low, radius = solid.low.view(scenes, THINGS), solid.radius.view(scenes, THINGS)
    places = scattered(random, camera, low, radius)
    stand_together(random, places, low, radius)
    hang(random, places, camera, views, radius)
    line_up(random, places, rows, radius)
    solid = scaled(solid, places.scale.flatten())
    materials[..., 1] /= places.scale[..., None] * 1.5
    things = solid.shape.view(scenes, THINGS, THING)
    things[..., 0], things[..., 1], things[..., 2] = places.x, places.y, places.z
    things[..., 3:12] = rotation(places.yaw, places.pitch, places.roll)
    present = random.chance(random.uniform(scenes, 1, low=0.45, high=1.0), scenes, THINGS)
    present[:, 0] = True
    things[..., 12], things[..., 32] = solid.radius.view(scenes, THINGS), present.float()
    things[..., 40] = random.uniform(scenes, THINGS, high=6)
    split = lambda value: value.view(scenes, THINGS, *value.shape[1:])
    return Stage(views, things, split(solid.primitives), split(solid.decals), materials, surfaces), camera


class Painter:
    """Draws batches of scenes and clips on one device; `pictures` small ones of its own serve as textures."""

    def __init__(self, library, device, seed, textures=(3072, 1024), pictures=768):
        self.device = torch.device(device)
        self.code = build(self.device)
        random = Random(seed, device)
        self.banks = Banks(random, library, *textures)
        drawn = [self.images(random, 32, 256).images for _ in range(pictures // 32)]
        self.banks.append(torch.cat(drawn))

    @torch.no_grad()
    def images(self, random, scenes, side, expose=expose):
        """A `Scene` as a camera takes it."""
        stage, _ = draw_stage(random, self.banks, scenes)
        scene, depth = self.render(stage, side)
        scene.images = photographed(random, scene.images, depth, 1, expose)
        return scene

    @torch.no_grad()
    def clips(self, random, clips, side, time, expose=expose):
        """A `Scene` of clips' frames in a row, seen at `time` [clips or 1, frames, 1], which goes from 0 to about 1."""
        stage, camera = draw_stage(random, self.banks, clips)
        stage = moved(random, stage, camera, time)
        scene, depth = self.render(stage, side)
        scene.images = photographed(random, scene.images, depth, time.shape[1], expose)
        return scene

    def render(self, stage, side):
        """A `Scene` without a camera's effects, and the distance of every pixel from the eye, [scenes, side, side]."""
        scenes = len(stage.views)
        empty = lambda *shape, dtype: torch.empty(scenes, *shape, side, side, dtype=dtype, device=self.device)
        images, depth = empty(3, dtype=torch.float32), empty(dtype=torch.float32)
        layers, parts = empty(dtype=torch.uint8), empty(dtype=torch.uint8)
        drawn = torch.zeros(scenes, THINGS + 1, dtype=torch.int32, device=self.device)
        tables = [value.contiguous() for value in vars(stage).values()]
        levels = (ctypes.c_void_p * 5)(*(level.data_ptr() for level in self.banks.levels))
        given = Tables(*(value.data_ptr() for value in (*tables, self.banks.profiles)), levels, scenes, THINGS, side)
        out = Pictures(*(value.data_ptr() for value in (images, depth, layers, parts, drawn)))
        stream = torch.cuda.current_stream().cuda_stream if self.device.type == "cuda" else None
        failed = self.code.render(ctypes.byref(given), ctypes.byref(out), ctypes.c_void_p(stream))
        if failed:
            raise RuntimeError(f"render.cu failed with {failed}")
        return Scene(images, layers, parts, drawn.long()), depth
