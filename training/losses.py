"""Losses of masks, of their outlines, of predicted quality and of presence."""

import typing

import torch
import torch.nn.functional as F


QUALITY_WEIGHT = 8.0
PRESENCE_WEIGHT = 2.0
OUTLINE_WEIGHT = 0.5
OUTLINE_LOGIT = 4.0


class Wanted(typing.NamedTuple):
    """What masks should be: `coarse` [n, h, w], the share of each logit's cell, and `full` [n, side, side], boolean."""

    coarse: torch.Tensor
    full: torch.Tensor


class Weights(typing.NamedTuple):
    """The focal share, the candidates' spread, and `enlargement`'s matrix."""

    focal: torch.Tensor
    spread: torch.Tensor
    enlargement: torch.Tensor


def enlargement(low, high, device):
    """[high, low]: a product with it enlarges bilinearly, as the answer's logits are."""
    return F.interpolate(torch.eye(low, device=device)[None], size=high, mode="linear", align_corners=False)[0].T


def mask_losses(logits, target, focal_share):
    """Loss [n, 4] of logits [n, 4, h, w] against a soft target [n, h, w].

    Balanced cross-entropy and dice to begin with, 20 focal : 1 dice as `focal_share` goes to 1.
    """
    target = target[:, None]
    probability = logits.sigmoid()
    entropy = F.binary_cross_entropy_with_logits(logits, target.expand_as(logits), reduction="none")
    inside = (probability * target).flatten(2).sum(2)
    dice = 1 - (2 * inside + 1) / (probability.flatten(2).sum(2) + target.flatten(2).sum(2) + 1)
    area = target.flatten(2).mean(2)[..., None, None]
    weight = target / (2 * area + 1e-3) + (1 - target) / (2 * (1 - area) + 1e-3)
    balanced = (entropy * weight).flatten(2).mean(2)
    wrong = probability * (1 - target) + (1 - probability) * target
    balance = 0.25 * target + 0.75 * (1 - target)
    focal = 20 * (entropy * wrong**2 * balance).flatten(2).mean(2)
    return dice + (1 - focal_share) * balanced + focal_share * focal


def overlap(logits, target):
    """Intersection over union [n, masks] at the logits' resolution."""
    found, wanted = logits > 0, target[:, None] > 0.5
    both = (found & wanted).flatten(2).sum(2).float()
    either = (found | wanted).flatten(2).sum(2).float()
    return torch.where(either > 0, both / either.clamp(min=1), torch.ones_like(both))


def outline_losses(logits, wanted, enlarge):
    """Cross-entropy [n, masks] at full size near the true outline alone, of logits [n, masks, h, w].

    Cells whose surroundings are not all inside or all outside are near it. Logits are bounded, so that
    where a mask is altogether wrong the other losses speak.
    """
    coarse = wanted.coarse[:, None]
    near = F.max_pool2d(coarse, 3, 1, 1) != -F.max_pool2d(-coarse, 3, 1, 1)
    cell = wanted.full.shape[-1] // coarse.shape[-1]
    area = near.flatten(2).sum(2) * cell**2
    near = near[:, :, :, None, :, None].expand(-1, -1, -1, cell, -1, cell).reshape(len(near), 1, *wanted.full.shape[1:])
    large = (enlarge @ (logits @ enlarge.T)).float().clamp(-OUTLINE_LOGIT, OUTLINE_LOGIT)
    entropy = F.softplus(torch.where(wanted.full[:, None], -large, large))
    return (entropy * near).flatten(2).sum(2) / area.clamp(min=1)


def combined(masks, iou, score, wanted, weights):
    """Loss of one decoding and the IoU [n, 4] it reached, for objects that may be absent.

    Of the three candidates only the best is corrected, the others by `spread` of it;
    the single mask always is.
    """
    target, spread = wanted.coarse, weights.spread
    present = target.flatten(1).amax(1) > 0.5
    weight = present.float() / present.float().sum().clamp(min=1)
    each = mask_losses(masks, target, weights.focal)
    best, index = each[:, 1:].min(1)
    best = best * (1 - spread) + each[:, 1:].mean(1) * spread
    index = (index + 1)[:, None, None, None].expand(-1, 1, *masks.shape[2:])
    outlined = torch.cat([masks[:, :1], masks.gather(1, index)], 1)
    outline = OUTLINE_WEIGHT * outline_losses(outlined, wanted, weights.enlargement).sum(1)
    reached = overlap(masks.detach(), target)
    # Squared error, so that the head learns the expected IoU, by which candidates are to be chosen.
    quality = QUALITY_WEIGHT * (iou - reached).square().mean(1)
    wrong = ((best + each[:, 0] + outline + quality) * weight).sum()
    presence = F.binary_cross_entropy_with_logits(score[:, 0], present.float())
    return wrong + PRESENCE_WEIGHT * presence, reached
