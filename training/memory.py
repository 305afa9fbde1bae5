"""Memory encoder and memory attention: what a frame's mask leaves for the frames after it."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from decoder import Attention, LayerNorm2d


def sine_position(side, channels, device):
    """[1, channels, side, side]: sines and cosines interleaved, rows' half first, then columns'."""
    half = channels // 2
    place = torch.arange(1, side + 1, dtype=torch.float32, device=device) / (side + 1e-6) * 2 * math.pi
    index = torch.arange(half, dtype=torch.float32, device=device)
    angles = place[:, None] / 10000 ** (2 * (index // 2) / half)
    wave = torch.stack([angles[:, 0::2].sin(), angles[:, 1::2].cos()], dim=2).flatten(1)
    rows = wave[:, None].expand(side, side, half)
    columns = wave[None].expand(side, side, half)
    return torch.cat([rows, columns], dim=-1).permute(2, 0, 1)[None]


def sine_time(distance, channels):
    """[frames] distances in [0, 1] to [frames, channels], all sines before all cosines."""
    half = channels // 2
    index = torch.arange(half, dtype=torch.float32, device=distance.device)
    angles = distance[:, None] / 10000 ** (2 * (index // 2) / half)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def rotations(side, width, theta, device):
    """Rotary cosines and sines, each [side * side, width / 2]: first half columns, second half rows."""
    frequency = theta ** -(torch.arange(0, width, 4, device=device).float() / width)
    place = torch.arange(side * side, device=device)
    angles = torch.cat(
        [(place % side)[:, None] * frequency, (place // side)[:, None] * frequency], dim=-1
    )
    return angles.cos(), angles.sin()


def rotate(x, cosines, sines):
    """Rotates adjacent channel pairs of [batch, heads, tokens, width]; the tables repeat over memories."""
    repeats = x.shape[2] // cosines.shape[0]
    cosines, sines = cosines.repeat(repeats, 1), sines.repeat(repeats, 1)
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([even * cosines - odd * sines, even * sines + odd * cosines], dim=-1)
    return turned.flatten(-2).to(x.dtype)


class RotaryAttention(Attention):
    def forward(self, q, k, v, tables, unplaced=0):
        """The last `unplaced` keys (object pointers) have no place and are not rotated."""
        q, k, v = self.split(self.q_proj(q)), self.split(self.k_proj(k)), self.split(self.v_proj(v))
        placed = k.shape[2] - unplaced
        q = rotate(q, *tables)
        k = torch.cat([rotate(k[:, :, :placed], *tables), k[:, :, placed:]], dim=2)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(x.transpose(1, 2).flatten(2))


class MemoryAttentionLayer(nn.Module):
    def __init__(self, configuration):
        super().__init__()
        width, heads = configuration.model_width, configuration.memory_attention_heads
        hidden = configuration.memory_attention_mlp_width
        self.self_attn = RotaryAttention(width, heads, width)
        self.cross_attn_image = RotaryAttention(width, heads, width, configuration.memory_width)
        self.linear1 = nn.Linear(width, hidden)
        self.linear2 = nn.Linear(hidden, width)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.norm3 = nn.LayerNorm(width)

    def forward(self, x, memory, memory_position, tables, pointers):
        normed = self.norm1(x)
        x = x + self.self_attn(normed, normed, normed, tables)
        x = x + self.cross_attn_image(self.norm2(x), memory + memory_position, memory, tables, pointers)
        return x + self.linear2(F.relu(self.linear1(self.norm3(x))))


class MemoryAttention(nn.Module):
    """Mixes memories [batch, tokens, memory_width] into a frame's map [batch, width, side, side]."""

    def __init__(self, configuration):
        super().__init__()
        self.theta = configuration.rope_theta
        self.heads = configuration.memory_attention_heads
        self.layers = nn.ModuleList(
            MemoryAttentionLayer(configuration) for _ in range(configuration.memory_attention_layers)
        )
        self.norm = nn.LayerNorm(configuration.model_width)

    def forward(self, image, memory, memory_position, pointers):
        batch, width, side, _ = image.shape
        x = image + 0.1 * sine_position(side, width, image.device)
        x = x.flatten(2).transpose(1, 2)
        tables = rotations(side, width // self.heads, self.theta, image.device)
        for layer in self.layers:
            x = layer(x, memory, memory_position, tables, pointers)
        return self.norm(x).transpose(1, 2).reshape(batch, width, side, side)


class MaskDownSampler(nn.Module):
    """A mask at image size to `model_width` channels at stride 16."""

    def __init__(self, width):
        super().__init__()
        layers, channels = [], 1
        for _ in range(4):
            layers += [
                nn.Conv2d(channels, 4 * channels, kernel_size=3, stride=2, padding=1),
                LayerNorm2d(4 * channels),
                nn.GELU(),
            ]
            channels *= 4
        self.encoder = nn.Sequential(*layers, nn.Conv2d(channels, width, kernel_size=1))

    def forward(self, mask):
        return self.encoder(mask)


class FuserBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, kernel_size=7, padding=3, groups=width)
        self.norm = LayerNorm2d(width)
        self.pwconv1 = nn.Linear(width, 4 * width)
        self.pwconv2 = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        y = self.norm(self.dwconv(x)).permute(0, 2, 3, 1)
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.permute(0, 3, 1, 2)


class MemoryEncoder(nn.Module):
    def __init__(self, configuration):
        super().__init__()
        width = configuration.model_width
        self.mask_downsampler = MaskDownSampler(width)
        self.pix_feat_proj = nn.Conv2d(width, width, kernel_size=1)
        self.fuser = nn.Module()
        self.fuser.layers = nn.ModuleList(
            FuserBlock(width) for _ in range(configuration.memory_fuser_layers)
        )
        self.out_proj = nn.Conv2d(width, configuration.memory_width, kernel_size=1)

    def forward(self, image, mask):
        """The frame's raw map [batch, width, side, side] and its scaled mask [batch, 1, 16 side, 16 side]."""
        x = self.pix_feat_proj(image) + self.mask_downsampler(mask)
        for layer in self.fuser.layers:
            x = layer(x)
        return self.out_proj(x)
