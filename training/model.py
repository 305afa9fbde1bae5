"""The whole model: image features, prompted decoding, and the memory that carries an object onward."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

from decoder import MaskDecoder, PromptEncoder
from encoder import ImageEncoder, MultiLayerPerceptron
from memory import MemoryAttention, MemoryEncoder, sine_position, sine_time
from randomness import constant

NO_OBJECT_LOGIT = -1024.0


@dataclasses.dataclass
class Features:
    """Maps of one image batch: `coarse` at stride 16, `fine` = (stride 4, stride 8) projected."""

    coarse: torch.Tensor
    fine: tuple

    def select(self, index):
        return Features(self.coarse[index], tuple(level[index] for level in self.fine))

    def repeat(self, count):
        """Each image `count` times in a row, one for each of its objects."""
        return Features(
            self.coarse.repeat_interleave(count, 0),
            tuple(level.repeat_interleave(count, 0) for level in self.fine),
        )


@dataclasses.dataclass
class Prompt:
    """Points [batch, n, 2] in input pixels with labels [batch, n], and optional logits at stride 4."""

    coordinates: torch.Tensor
    labels: torch.Tensor
    logits: torch.Tensor | None = None
    keep: torch.Tensor | None = None  # [batch] whose logits to use; all where not given

    @staticmethod
    def empty(batch, device):
        """What a propagated frame gets: one padding point."""
        return Prompt(
            torch.zeros(batch, 1, 2, device=device),
            torch.full((batch, 1), -1, dtype=torch.long, device=device),
        )


@dataclasses.dataclass
class Decoded:
    """Four masks' logits at stride 4 (0 single, 1 to 3 candidates), predicted IoU, tokens, object score."""

    masks: torch.Tensor
    iou: torch.Tensor
    tokens: torch.Tensor
    score: torch.Tensor

    def best(self):
        """Index in 1..3 of the candidate with the highest predicted IoU, [batch]."""
        return 1 + self.iou[:, 1:].argmax(1)

    def mask(self, index):
        """[batch, 1, height, width] of the mask chosen for each object."""
        return self.masks[torch.arange(len(index), device=index.device), index][:, None]


@dataclasses.dataclass
class MemoryEntry:
    """What one frame leaves behind: its spatial memory and its object pointer."""

    spatial: torch.Tensor
    pointer: torch.Tensor


class Model(nn.Module):
    def __init__(self, configuration):
        super().__init__()
        self.configuration = configuration
        width, memory_width = configuration.model_width, configuration.memory_width
        self.image_encoder = ImageEncoder(configuration)
        self.sam_prompt_encoder = PromptEncoder(configuration)
        self.sam_mask_decoder = MaskDecoder(configuration)
        self.memory_attention = MemoryAttention(configuration)
        self.memory_encoder = MemoryEncoder(configuration)
        self.mask_downsample = nn.Conv2d(1, 1, kernel_size=4, stride=4)
        self.obj_ptr_proj = MultiLayerPerceptron((width, width, width, width), F.relu)
        self.obj_ptr_tpos_proj = nn.Linear(width, memory_width)
        self.maskmem_tpos_enc = nn.Parameter(torch.zeros(configuration.memory_frames, 1, 1, memory_width))
        self.no_mem_embed = nn.Parameter(torch.zeros(1, 1, width))
        self.no_mem_pos_enc = nn.Parameter(torch.zeros(1, 1, width))
        self.no_obj_ptr = nn.Parameter(torch.zeros(1, width))
        self.no_obj_embed_spatial = nn.Parameter(torch.zeros(1, memory_width))
        for parameter in (
            self.maskmem_tpos_enc,
            self.no_mem_embed,
            self.no_mem_pos_enc,
            self.no_obj_ptr,
            self.no_obj_embed_spatial,
        ):
            nn.init.trunc_normal_(parameter, std=0.02)
        for name in ("pixel_mean", "pixel_std"):
            value = torch.tensor(getattr(configuration, name))[:, None, None]
            self.register_buffer(name, value, persistent=False)

    def features(self, image):
        """RGB in [0, 1], [batch, 3, side, side]."""
        stride4, stride8, stride16 = self.image_encoder((image - self.pixel_mean) / self.pixel_std)
        decoder = self.sam_mask_decoder
        return Features(stride16, (decoder.conv_s0(stride4), decoder.conv_s1(stride8)))

    def without_memory(self, features):
        """The stride 16 map of a still image or a first frame."""
        return features.coarse + self.no_mem_embed.view(1, -1, 1, 1)

    def decode(self, coarse, fine, prompt):
        batch, _, side, _ = coarse.shape
        encoder = self.sam_prompt_encoder
        points = encoder.points(prompt.coordinates, prompt.labels, side * 16)
        dense = encoder.mask(prompt.logits, batch, side)
        if prompt.keep is not None:
            dense = torch.where(prompt.keep.view(-1, 1, 1, 1), dense, encoder.mask(None, batch, side))
        position = encoder.pe_layer.grid(side)
        masks, iou, tokens, score = self.sam_mask_decoder(coarse + dense, fine, points, position)
        return Decoded(masks.float(), iou.float(), tokens, score.float())

    def pointer(self, token, present):
        """The object pointer of a mask token; an absent object has the learnt 'no object' pointer."""
        return torch.where(present, self.obj_ptr_proj(token), self.no_obj_ptr.to(token.dtype))

    def remember(self, features, logits, token, score, binary=False):
        """The memory of a frame whose chosen mask has `logits` [batch, 1, h, w] at stride 4.

        `score` > 0 means present. `binary` thresholds the mask, as after a prompt.
        """
        present = score > 0
        logits = torch.where(present[..., None, None], logits, NO_OBJECT_LOGIT)
        side = features.coarse.shape[-1] * 16
        mask = F.interpolate(logits, size=(side, side), mode="bilinear", align_corners=False)
        mask = (mask > 0).float() if binary else mask.sigmoid()
        mask = mask * self.configuration.sigmoid_scale + self.configuration.sigmoid_bias
        spatial = self.memory_encoder(features.coarse, mask)
        absent = (~present)[..., None, None] * self.no_obj_embed_spatial[..., None, None]
        return MemoryEntry(spatial + absent, self.pointer(token, present))

    def from_mask(self, features, mask):
        """Decoding of a given mask [batch, 1, side, side], used for its pointer alone."""
        prompt = Prompt.empty(mask.shape[0], mask.device)
        prompt.logits = self.mask_downsample(mask)
        return self.decode(features.coarse, features.fine, prompt)

    def conditioned(self, features, prompted, recent, time):
        """Mixes memories into frame `time`.

        `prompted` and `recent` map frame numbers to entries, `recent` unprompted frames alone.
        """
        memory, position = [], []
        side = features.coarse.shape[-1]
        place = sine_position(side, self.configuration.memory_width, features.coarse.device)
        place = place.flatten(2).transpose(1, 2)
        frames = self.configuration.memory_frames
        chosen = [(frames - 1, entry) for entry in prompted.values()]
        for distance in range(frames - 1, 0, -1):
            if time - distance in recent:
                chosen.append((distance - 1, recent[time - distance]))
        for slot, entry in chosen:
            memory.append(entry.spatial.flatten(2).transpose(1, 2))
            shifted = place + self.maskmem_tpos_enc[slot]
            position.append(shifted.expand(features.coarse.shape[0], -1, -1))
        tokens, token_position = self.pointer_tokens(prompted, recent, time)
        memory = torch.cat(memory + [tokens], dim=1)
        position = torch.cat(position + [token_position], dim=1)
        return self.memory_attention(features.coarse, memory, position, tokens.shape[1])

    def pointer_tokens(self, prompted, recent, time):
        """Pointers cut into `memory_width` pieces with their temporal encoding, [batch, tokens, memory_width]."""
        limit = self.configuration.object_pointers
        pairs = [(time - frame, entry.pointer) for frame, entry in prompted.items() if frame <= time]
        pairs += [(d, recent[time - d].pointer) for d in range(1, limit) if time - d in recent]
        pointers = torch.stack([pointer for _, pointer in pairs], dim=1)
        distance = constant(tuple(float(d) for d, _ in pairs), pointers.device) / (limit - 1)
        position = self.obj_ptr_tpos_proj(sine_time(distance, self.configuration.model_width))
        width = self.configuration.memory_width
        pieces = self.configuration.model_width // width
        tokens = pointers.reshape(pointers.shape[0], -1, width)
        position = position.repeat_interleave(pieces, 0)[None]
        return tokens, position.expand(tokens.shape[0], -1, -1)
