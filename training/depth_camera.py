"""Cameras of scenes with depth, and how they move."""

import dataclasses

import torch


def unit(value):
    return value / value.norm(dim=-1, keepdim=True).clamp(min=1e-6)


@dataclasses.dataclass
class Camera:
    """Where scenes are seen from, [scenes, ...]; the middle of the picture is `target`, `far` away."""

    eye: torch.Tensor
    right: torch.Tensor
    up: torch.Tensor
    forward: torch.Tensor
    half: torch.Tensor
    aspect: torch.Tensor
    far: torch.Tensor


def oriented(forward, roll):
    """The right and up directions [n, 3] of a camera that looks along `forward`, rolled by `roll` [n]."""
    level = unit(torch.stack([forward[:, 2], torch.zeros_like(roll), -forward[:, 0]], 1))
    upright = torch.linalg.cross(forward, level)
    cosine, sine = roll.cos()[:, None], roll.sin()[:, None]
    return level * cosine + upright * sine, upright * cosine - level * sine


def draw_camera(random, scenes):
    u = lambda low=0.0, high=1.0: random.uniform(scenes, low=low, high=high)
    far = random.log_uniform(scenes, low=2.5, high=7)
    pitch = torch.where(random.chance(0.12, scenes), u(0.7, 1.35), u(0.03, 0.75))
    target = torch.stack([u(-0.3, 0.3), u(0.1, 0.9), u(-0.3, 0.3)], 1)
    forward = torch.stack([torch.zeros_like(far), -pitch.sin(), pitch.cos()], 1)
    eye = target - forward * far[:, None]
    eye[:, 1] = eye[:, 1].clamp(min=0.25)
    forward = unit(target - eye)
    right, up = oriented(forward, 0.08 * random.normal(scenes))
    half = torch.tan(u(0.25, 0.6))
    # Pictures are squeezed into a square, so that wide ones look narrow.
    aspect = random.log_uniform(scenes, low=0.65, high=1.7)
    return Camera(eye, right, up, forward, half, aspect, (target - eye).norm(dim=1))


def moved_camera(random, camera, time):
    """The camera at `time` [clips or 1, frames, 1], as cameras [clips * frames]: path, turn, zoom and shake."""
    clips, frames = len(camera.eye), time.shape[1]
    spread = lambda value: value[:, None].expand(-1, frames, *value.shape[1:])
    calm = random.chance(0.75, clips, 1, 1)
    far, half = camera.far.view(-1, 1, 1), camera.half.view(-1, 1, 1)
    shake = random.normal(clips, frames, 3) * random.uniform(clips, 1, 1, high=0.025)
    path = random.normal(clips, 1, 3) * 0.14 * calm * time + 0.3 * shake
    eye = spread(camera.eye) + path * far
    eye[..., 1] = eye[..., 1].clamp(min=0.15)
    # Half of the cameras keep looking at the same place, the others keep their direction.
    target = spread(camera.eye + camera.forward * camera.far[:, None])
    same, kept = unit(target - eye), spread(camera.forward)
    forward = torch.where(random.chance(0.5, clips, 1, 1), same, kept)
    turn = random.normal(clips, 1, 2) * 0.25 * calm * time + shake[..., :2]
    forward = forward + half * (turn[..., :1] * spread(camera.right) + turn[..., 1:] * spread(camera.up))
    forward = unit(forward).flatten(0, 1)
    level, _ = oriented(camera.forward, torch.zeros_like(camera.far))
    roll = torch.atan2((torch.linalg.cross(camera.forward, level) * camera.right).sum(1), (level * camera.right).sum(1))
    roll = roll.view(-1, 1) + (random.normal(clips, 1, 1) * 0.05 * time + 0.5 * shake[..., 2:])[..., 0]
    right, up = oriented(forward, roll.flatten())
    zoom = camera.half[:, None] * torch.exp(random.normal(clips, 1, 1) * 0.1 * calm * time)[..., 0]
    return Camera(eye.flatten(0, 1), right, up, forward, zoom.flatten(), spread(camera.aspect).flatten(),
                  spread(camera.far).flatten())


def aim(view, camera):
    """Puts a camera into rows [scenes, VIEW]."""
    view[:, 0:3], view[:, 3:6], view[:, 6:9], view[:, 9:12] = camera.eye, camera.right, camera.up, camera.forward
    view[:, 12], view[:, 62] = camera.half / camera.aspect.sqrt(), camera.aspect
