"""The image encoder: a Hiera trunk with window attention and a feature pyramid neck."""

import torch
import torch.nn.functional as F
from torch import nn


def split_windows(x, size):
    """[batch, height, width, channels] to [batch * windows, size, size, channels], zero padded."""
    batch, height, width, channels = x.shape
    x = F.pad(x, (0, 0, 0, -width % size, 0, -height % size))
    rows, columns = x.shape[1] // size, x.shape[2] // size
    x = x.view(batch, rows, size, columns, size, channels).transpose(2, 3)
    return x.reshape(batch * rows * columns, size, size, channels)


def join_windows(windows, size, shape):
    """The inverse of `split_windows` for an image of `shape` = (height, width)."""
    height, width = shape
    rows, columns = -(-height // size), -(-width // size)
    x = windows.view(-1, rows, columns, size, size, windows.shape[-1]).transpose(2, 3)
    return x.reshape(x.shape[0], rows * size, columns * size, -1)[:, :height, :width]


def halve(x):
    """2 × 2 maximum over [batch, height, width, channels]."""
    batch, height, width, channels = x.shape
    return x.view(batch, height // 2, 2, width // 2, 2, channels).amax(dim=(2, 4))


class MultiLayerPerceptron(nn.Module):
    def __init__(self, widths, activation):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:]))
        self.activation = activation

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


class WindowAttention(nn.Module):
    """Self-attention inside a window; `pooled` halves the queries' grid."""

    def __init__(self, width_in, width_out, heads, pooled):
        super().__init__()
        self.heads, self.pooled = heads, pooled
        self.qkv = nn.Linear(width_in, 3 * width_out)
        self.proj = nn.Linear(width_out, width_out)

    def forward(self, x):
        batch, height, width, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if self.pooled:
            q = halve(q)
            height, width = height // 2, width // 2
        q, k, v = (
            part.reshape(batch, -1, self.heads, part.shape[-1] // self.heads).transpose(1, 2)
            for part in (q, k, v)
        )
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(batch, height, width, -1))


class Block(nn.Module):
    """One trunk block; `window` 0 means attention over the whole image."""

    def __init__(self, width_in, width_out, heads, window, pooled):
        super().__init__()
        self.window, self.pooled = window, pooled
        self.norm1 = nn.LayerNorm(width_in, eps=1e-6)
        self.attn = WindowAttention(width_in, width_out, heads, pooled)
        self.norm2 = nn.LayerNorm(width_out, eps=1e-6)
        self.mlp = MultiLayerPerceptron((width_out, 4 * width_out, width_out), F.gelu)
        if width_in != width_out:
            self.proj = nn.Linear(width_in, width_out)

    def forward(self, x):
        shortcut = x
        x = self.norm1(x)
        if hasattr(self, "proj"):
            shortcut = self.proj(x)
            shortcut = halve(shortcut) if self.pooled else shortcut
        if self.window:
            size = self.window // 2 if self.pooled else self.window
            x = join_windows(self.attn(split_windows(x, self.window)), size, shortcut.shape[1:3])
        else:
            x = self.attn(x)
        x = shortcut + x
        return x + self.mlp(self.norm2(x))


class PatchEmbedding(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Conv2d(3, width, kernel_size=7, stride=4, padding=3)

    def forward(self, x):
        return self.proj(x).permute(0, 2, 3, 1)


class Trunk(nn.Module):
    """Four stages at strides 4, 8, 16 and 32; returns the last map of each."""

    def __init__(self, configuration):
        super().__init__()
        self.stage_ends = configuration.stage_ends
        width = configuration.embed_dim
        self.patch_embed = PatchEmbedding(width)
        background = configuration.position_background_size
        window = configuration.window_spec[0]
        self.pos_embed = nn.Parameter(torch.zeros(1, width, *background))
        self.pos_embed_window = nn.Parameter(torch.zeros(1, width, window, window))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.trunc_normal_(self.pos_embed_window, std=0.02)
        self.blocks = nn.ModuleList(self.make_blocks(configuration))

    @staticmethod
    def make_blocks(configuration):
        index, width_in = 0, configuration.embed_dim
        for stage, count in enumerate(configuration.stages):
            heads = configuration.num_heads * 2**stage
            for position in range(count):
                first = position == 0 and stage > 0
                # A stage's first block still works in the previous stage's windows.
                window = configuration.window_spec[stage - 1 if first else stage]
                if index in configuration.global_attention_blocks:
                    window = 0
                pooled = first and stage <= configuration.q_pool_stages
                width_out = configuration.stage_widths[stage]
                yield Block(width_in, width_out, heads, window, pooled)
                width_in, index = width_out, index + 1

    def position(self, height, width):
        background = F.interpolate(self.pos_embed, size=(height, width), mode="bicubic")
        side = self.pos_embed_window.shape[-1]
        window = self.pos_embed_window.tile(1, 1, height // side, width // side)
        return (background + window).permute(0, 2, 3, 1)

    def forward(self, x):
        x = self.patch_embed(x)
        x = x + self.position(x.shape[1], x.shape[2])
        outputs = []
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index in self.stage_ends:
                outputs.append(x.permute(0, 3, 1, 2))
        return outputs


class Neck(nn.Module):
    """1 × 1 laterals; only the configured levels receive the coarser level's map."""

    def __init__(self, configuration):
        super().__init__()
        self.top_down_levels = configuration.top_down_levels
        self.dropped_levels = configuration.dropped_levels
        self.convs = nn.ModuleList(
            nn.ModuleDict({"conv": nn.Conv2d(width, configuration.model_width, kernel_size=1)})
            for width in reversed(configuration.stage_widths)
        )

    def forward(self, maps):
        levels, previous = [None] * len(maps), None
        for level in reversed(range(len(maps))):
            lateral = self.convs[len(maps) - 1 - level]["conv"](maps[level])
            if level in self.top_down_levels and previous is not None:
                lateral = lateral + F.interpolate(previous.float(), scale_factor=2.0, mode="nearest")
            previous = levels[level] = lateral
        return levels[: len(levels) - self.dropped_levels]


class ImageEncoder(nn.Module):
    """[batch, 3, side, side] to maps at strides 4, 8 and 16, each `model_width` channels."""

    def __init__(self, configuration):
        super().__init__()
        self.trunk = Trunk(configuration)
        self.neck = Neck(configuration)

    def forward(self, x):
        return self.neck(self.trunk(x))
