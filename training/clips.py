"""Poses over time: objects drift, turn, swell, wave, cross and hide."""

import math

import torch

from scenes import Pose


def speeds(random, clips, layers):
    """How far and whither each layer goes; some stand still, the background always."""
    reach = random.log_uniform(clips, layers, low=0.05, high=0.9)
    heading = random.uniform(clips, layers, low=0, high=2 * math.pi)
    still = random.chance(0.2, clips, layers)
    still[:, 0] = True
    return torch.where(still, torch.zeros_like(reach), reach), heading


def move(random, pose, frames, pace):
    """A [clips, layers] pose to a [clips * frames, layers] one; `pace` [clips, 1] scales all motion."""
    clips, layers = pose.x.shape
    reach, heading = speeds(random, clips, layers)
    time = torch.linspace(0, 1, frames, device=pose.x.device).view(1, frames, 1)
    spread = lambda value: value[:, None, :]
    # Aim at a point near the middle, so that paths meet.
    aimed = random.chance(0.6, clips, layers)
    goal = random.uniform(clips, layers, 2, low=-0.4, high=0.4)
    toward = torch.atan2(goal[..., 1] - pose.y, goal[..., 0] - pose.x)
    heading = torch.where(aimed, toward, heading)
    sway = random.uniform(clips, layers, 4)
    sway[:, 0, 0] = 0
    bend = spread(0.1 * sway[..., 0] * pace) * torch.sin(time * spread(2 + 6 * sway[..., 1]) + spread(6 * sway[..., 2]))
    start_bend = spread(0.1 * sway[..., 0] * pace) * torch.sin(spread(6 * sway[..., 2]))
    travel = spread(reach * pace * 1.2) * time
    side_step = bend - start_bend
    x = spread(pose.x) + travel * spread(heading.cos()) - side_step * spread(heading.sin())
    y = spread(pose.y) + travel * spread(heading.sin()) + side_step * spread(heading.cos())
    whirl = random.normal(clips, layers) * 0.7 * pace
    whirl[:, 0] = 0
    turn = spread(whirl) * time
    swell = spread(random.normal(clips, layers) * 0.25 * pace) * time
    stretch = spread(random.normal(clips, layers) * 0.12 * pace) * time
    phase = spread(random.normal(clips, layers) * 2.5 * pace) * time
    moved = [
        x, y, spread(pose.size) * swell.exp(), spread(pose.rest).expand(-1, frames, -1),
        spread(pose.angle) + turn, spread(pose.aspect) * stretch.exp(), spread(pose.phase) + phase,
    ]
    moved = Pose(*[value.expand(clips, frames, layers).reshape(clips * frames, layers) for value in moved])
    return pan(random, moved, clips, frames, pace)


def pan(random, pose, clips, frames, pace):
    """Moves the camera: a shift and a zoom of all layers alike, the background's too."""
    time = torch.linspace(0, 1, frames, device=pose.x.device).view(1, frames, 1)
    shift = random.normal(clips, 1, 2) * 0.12 * pace[:, None] * random.chance(0.6, clips, 1, 1)
    zoom = (random.normal(clips, 1, 1) * 0.08 * pace[:, None] * time).exp().reshape(clips * frames, 1)
    across = (shift[..., :1] * time).reshape(clips * frames, 1)
    down = (shift[..., 1:] * time).reshape(clips * frames, 1)
    return Pose(
        pose.x * zoom + across, pose.y * zoom + down, pose.size * zoom, pose.rest,
        pose.angle, pose.aspect, pose.phase,
    )
