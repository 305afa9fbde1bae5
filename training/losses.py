"""Losses of masks, of predicted quality and of presence."""

import torch
import torch.nn.functional as F


QUALITY_WEIGHT = 8.0
PRESENCE_WEIGHT = 2.0


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


def combined(masks, iou, score, target, weights):
    """Loss of one decoding and the IoU [n, 4] it reached, for objects that may be absent.

    Of the three candidates only the best is corrected, the others by `spread` of it;
    the single mask always is. `weights` = (focal share, spread).
    """
    focal_share, spread = weights
    present = target.flatten(1).amax(1) > 0.5
    weight = present.float() / present.float().sum().clamp(min=1)
    each = mask_losses(masks, target, focal_share)
    best = each[:, 1:].amin(1) * (1 - spread) + each[:, 1:].mean(1) * spread
    reached = overlap(masks.detach(), target)
    # Squared error, so that the head learns the expected IoU, by which candidates are to be chosen.
    quality = QUALITY_WEIGHT * (iou - reached).square().mean(1)
    wrong = ((best + each[:, 0] + quality) * weight).sum()
    presence = F.binary_cross_entropy_with_logits(score[:, 0], present.float())
    return wrong + PRESENCE_WEIGHT * presence, reached
