"""Prompt encoder and mask decoder with its two-way transformer."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from encoder import MultiLayerPerceptron


class LayerNorm2d(nn.Module):
    """Layer norm over the channels of [batch, channels, height, width]."""

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        x = F.layer_norm(x.permute(0, 2, 3, 1), self.weight.shape, self.weight, self.bias, 1e-6)
        return x.permute(0, 3, 1, 2)


class Attention(nn.Module):
    """Multi-head attention over tokens [batch, tokens, width] at an inner width."""

    def __init__(self, width, heads, inner_width, memory_width=None):
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(width, inner_width)
        self.k_proj = nn.Linear(memory_width or width, inner_width)
        self.v_proj = nn.Linear(memory_width or width, inner_width)
        self.out_proj = nn.Linear(inner_width, width)

    def split(self, x):
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, q, k, v):
        q, k, v = self.split(self.q_proj(q)), self.split(self.k_proj(k)), self.split(self.v_proj(v))
        x = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(x.transpose(1, 2).flatten(2))


class RandomPosition(nn.Module):
    """Sines and cosines of random projections of coordinates in [0, 1]."""

    def __init__(self, pairs):
        super().__init__()
        self.register_buffer("positional_encoding_gaussian_matrix", torch.randn(2, pairs))

    def forward(self, coordinates):
        with torch.autocast(coordinates.device.type, enabled=False):
            angles = (2 * coordinates.float() - 1) @ self.positional_encoding_gaussian_matrix
            angles = 2 * math.pi * angles
            return torch.cat([angles.sin(), angles.cos()], dim=-1)

    def grid(self, side):
        """[1, channels, side, side] at cell centres."""
        axis = (torch.arange(side, device=self.positional_encoding_gaussian_matrix.device) + 0.5) / side
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        return self(torch.stack([x, y], dim=-1)).permute(2, 0, 1)[None]


class PromptEncoder(nn.Module):
    """Points (label -1 padding, 0 negative, 1 positive, 2 and 3 box corners) and low-resolution logits."""

    def __init__(self, configuration):
        super().__init__()
        width, channels = configuration.model_width, configuration.mask_prompt_channels
        self.pe_layer = RandomPosition(width // 2)
        self.point_embeddings = nn.ModuleList(nn.Embedding(1, width) for _ in range(4))
        self.not_a_point_embed = nn.Embedding(1, width)
        self.mask_downscaling = nn.Sequential(
            nn.Conv2d(1, channels // 4, kernel_size=2, stride=2),
            LayerNorm2d(channels // 4),
            nn.GELU(),
            nn.Conv2d(channels // 4, channels, kernel_size=2, stride=2),
            LayerNorm2d(channels),
            nn.GELU(),
            nn.Conv2d(channels, width, kernel_size=1),
        )
        self.no_mask_embed = nn.Embedding(1, width)

    def points(self, coordinates, labels, image_size):
        """[batch, points, 2] in pixels to [batch, points + 1, width]; a padding point closes the list."""
        position = self.pe_layer((coordinates + 0.5) / image_size)
        position = F.pad(position, (0, 0, 0, 1))
        labels = F.pad(labels.long(), (0, 1), value=-1)
        table = torch.stack(
            [self.not_a_point_embed.weight[0]] + [embed.weight[0] for embed in self.point_embeddings]
        )
        return position * (labels >= 0)[..., None] + table[labels + 1]

    def mask(self, logits, batch, side):
        """[batch, width, side, side]; without logits the learnt 'no mask'."""
        if logits is None:
            return self.no_mask_embed.weight[:, :, None, None].expand(batch, -1, side, side)
        return self.mask_downscaling(logits)


class TwoWayBlock(nn.Module):
    def __init__(self, configuration, first):
        super().__init__()
        width, heads = configuration.model_width, configuration.decoder_heads
        inner = width // configuration.attention_downsample_rate
        self.first = first
        self.self_attn = Attention(width, heads, width)
        self.norm1 = nn.LayerNorm(width)
        self.cross_attn_token_to_image = Attention(width, heads, inner)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = MultiLayerPerceptron((width, configuration.decoder_mlp_width, width), F.relu)
        self.norm3 = nn.LayerNorm(width)
        self.cross_attn_image_to_token = Attention(width, heads, inner)
        self.norm4 = nn.LayerNorm(width)

    def forward(self, tokens, image, token_position, image_position):
        if self.first:
            tokens = self.self_attn(tokens, tokens, tokens)
        else:
            placed = tokens + token_position
            tokens = tokens + self.self_attn(placed, placed, tokens)
        tokens = self.norm1(tokens)
        placed_image = image + image_position
        tokens = tokens + self.cross_attn_token_to_image(tokens + token_position, placed_image, image)
        tokens = self.norm2(tokens)
        tokens = self.norm3(tokens + self.mlp(tokens))
        image = image + self.cross_attn_image_to_token(placed_image, tokens + token_position, tokens)
        return tokens, self.norm4(image)


class TwoWayTransformer(nn.Module):
    def __init__(self, configuration):
        super().__init__()
        width, heads = configuration.model_width, configuration.decoder_heads
        self.layers = nn.ModuleList(
            TwoWayBlock(configuration, first=index == 0) for index in range(configuration.decoder_depth)
        )
        inner = width // configuration.attention_downsample_rate
        self.final_attn_token_to_image = Attention(width, heads, inner)
        self.norm_final_attn = nn.LayerNorm(width)

    def forward(self, prompt, image, image_position):
        tokens = prompt
        for layer in self.layers:
            tokens, image = layer(tokens, image, prompt, image_position)
        seen = self.final_attn_token_to_image(tokens + prompt, image + image_position, image)
        return self.norm_final_attn(tokens + seen), image


class MaskDecoder(nn.Module):
    """Four masks (one single, three candidates), their predicted IoU, tokens and the object score."""

    def __init__(self, configuration):
        super().__init__()
        width = configuration.model_width
        self.transformer = TwoWayTransformer(configuration)
        self.iou_token = nn.Embedding(1, width)
        self.mask_tokens = nn.Embedding(4, width)
        self.obj_score_token = nn.Embedding(1, width)
        self.output_upscaling = nn.Sequential(
            nn.ConvTranspose2d(width, width // 4, kernel_size=2, stride=2),
            LayerNorm2d(width // 4),
            nn.GELU(),
            nn.ConvTranspose2d(width // 4, width // 8, kernel_size=2, stride=2),
            nn.GELU(),
        )
        self.conv_s0 = nn.Conv2d(width, width // 8, kernel_size=1)
        self.conv_s1 = nn.Conv2d(width, width // 4, kernel_size=1)
        self.output_hypernetworks_mlps = nn.ModuleList(
            MultiLayerPerceptron((width, width, width, width // 8), F.relu) for _ in range(4)
        )
        hidden = configuration.iou_head_width
        self.iou_prediction_head = MultiLayerPerceptron((width, hidden, hidden, 4), F.relu)
        self.pred_obj_score_head = MultiLayerPerceptron((width, width, width, 1), F.relu)

    def forward(self, image, fine, prompt, image_position):
        """`image` [batch, width, side, side] already holds the dense prompt; `fine` = (stride 4, stride 8)."""
        batch, width, side, _ = image.shape
        own = torch.cat([self.obj_score_token.weight, self.iou_token.weight, self.mask_tokens.weight])
        tokens = torch.cat([own[None].expand(batch, -1, -1).to(prompt.dtype), prompt], dim=1)
        position = image_position.flatten(2).transpose(1, 2)
        tokens, image = self.transformer(tokens, image.flatten(2).transpose(1, 2), position)
        image = image.transpose(1, 2).reshape(batch, width, side, side)
        first_up, norm, activation, second_up, _ = self.output_upscaling
        x = activation(norm(first_up(image) + fine[1]))
        x = activation(second_up(x) + fine[0])
        mask_tokens = tokens[:, 2:6]
        weights = torch.stack(
            [mlp(mask_tokens[:, i]) for i, mlp in enumerate(self.output_hypernetworks_mlps)], dim=1
        )
        masks = (weights @ x.flatten(2)).view(batch, 4, *x.shape[2:])
        iou = self.iou_prediction_head(tokens[:, 1]).sigmoid()
        return masks, iou, mask_tokens, self.pred_obj_score_head(tokens[:, 0])
