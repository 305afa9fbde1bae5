"""Motion of scenes with depth: a moving camera, and things that slide, turn, hop and bend."""

import dataclasses
import math

import torch

from depth_camera import aim, moved_camera
from solids import rotation


def product(first, second):
    """Products [..., 9] of rotations stored by rows."""
    # Sums instead of a matrix product, which may be of lower precision.
    return (first.unflatten(-1, (3, 3))[..., None] * second.unflatten(-1, (3, 3))[..., None, :, :]).sum(-2).flatten(-2)


def slide(random, things, camera, time):
    """Moves some things over the floor, some of them hopping; `things` [clips, frames, count, THING] are changed."""
    clips, frames, count, _ = things.shape
    one = lambda value: value[:, None]
    still = random.chance(0.45, clips, count)
    reach = random.log_uniform(clips, count, low=0.05, high=1.0) * (camera.far * camera.half)[:, None] * ~still
    middle = (camera.eye + camera.forward * camera.far[:, None])[:, None]
    goal = middle[..., ::2] + 0.5 * (camera.far * camera.half)[:, None, None] * random.uniform(clips, count, 2, low=-1)
    toward = torch.atan2(goal[..., 1] - things[:, 0, :, 2], goal[..., 0] - things[:, 0, :, 0])
    heading = torch.where(random.chance(0.6, clips, count), toward, random.uniform(clips, count, high=2 * math.pi))
    # Back and forth for some, else straight on.
    there = torch.where(one(random.chance(0.25, clips, count)), torch.sin(time * 5), time)
    things[..., 0] += one(reach * heading.cos()) * there
    things[..., 2] += one(reach * heading.sin()) * there
    hop = reach * random.uniform(clips, count, high=0.6) * random.chance(0.2, clips, count)
    things[..., 1] += one(hop) * torch.sin(time * one(random.uniform(clips, count, low=2, high=9))).abs()


def turn(random, things, time):
    """Turns some things about the upright axis, a few about any."""
    clips, _, count, _ = things.shape
    speed = lambda probability: (random.normal(clips, count) * random.chance(probability, clips, count))[:, None]
    tumbling = 0.8 * random.chance(0.2, clips, count)[:, None]
    about = rotation(speed(0.5) * time, speed(1.0) * time * tumbling, speed(1.0) * time * tumbling)
    things[..., 3:12] = product(about, things[..., 3:12])


def deform(random, stage, time):
    """Bends some things and swings their primitives; a bent thing needs more room."""
    clips, _, count, _ = stage.things.shape
    wave = torch.sin(time * random.uniform(clips, 1, count, low=1, high=8))
    bending = (random.normal(clips, count) * 0.3 * random.chance(0.25, clips, count))[:, None] * wave
    radius = stage.things[..., 12]
    stage.things[..., 33] += bending / radius
    stage.things[..., 12] = radius * (1 + 0.8 * bending.abs())
    swing = random.normal(clips, 1, *stage.primitives.shape[2:4], 3) * 0.35
    swing = swing * random.chance(0.3, clips, 1, count, 1, 1) * wave[..., None, None]
    stage.primitives[..., 4:13] = product(stage.primitives[..., 4:13], rotation(*swing.unbind(-1)))


def moved(random, stage, camera, time):
    """The stage at every frame, [clips * frames, ...]."""
    frames = time.shape[1]
    clips = stage.repeat(frames)
    split = lambda value: value.unflatten(0, (-1, frames)).clone()
    clips = dataclasses.replace(clips, things=split(clips.things), primitives=split(clips.primitives))
    slide(random, clips.things, camera, time)
    turn(random, clips.things, time)
    deform(random, clips, time)
    clips = dataclasses.replace(clips, things=clips.things.flatten(0, 1), primitives=clips.primitives.flatten(0, 1))
    aim(clips.views, moved_camera(random, camera, time))
    return clips
