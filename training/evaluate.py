"""Measures a checkpoint on the held-out set.

    python evaluate.py --checkpoint FILE [--kinds reserved] [--depth] [--scenes 100] [--clips 8]
"""

import argparse
import dataclasses
import json
import time

import torch
import torch.nn.functional as F

import held_out
import prompts
from export import load_checkpoint
from model import Model, Prompt
from randomness import Random
from tracking import answer, track_clip


UNCOVERED = 0.9  # of a target that is taken for uncovered at least so much shows


def squares(integral, radius):
    """Sums over squares of half-width `radius` from an integral image."""
    width = 2 * radius + 1
    low, high = slice(None, -width), slice(width, None)
    return integral[high, high] - integral[low, high] - integral[high, low] + integral[low, low]


def deepest_point(region):
    """(x, y) of the middle of the largest square inside a boolean region [h, w]."""
    integral = F.pad(region.int().cumsum(0).cumsum(1), (1, 0, 1, 0))
    low, high = 0, (min(region.shape) - 1) // 2
    while low < high:
        middle = (low + high + 1) // 2
        full = bool((squares(integral, middle) == (2 * middle + 1) ** 2).any())
        low, high = (middle, high) if full else (low, middle - 1)
    inside = squares(integral, low) == (2 * low + 1) ** 2
    cell = int(inside.flatten().int().argmax())
    return [float(cell % inside.shape[1] + low), float(cell // inside.shape[1] + low)]


def deepest(regions):
    """The deepest points [n, 2] of boolean regions [n, h, w]."""
    return torch.tensor([deepest_point(region) for region in regions], device=regions.device)


def overlap(found, wanted):
    both = (found & wanted).flatten(-2).sum(-1).float()
    either = (found | wanted).flatten(-2).sum(-1).float()
    return torch.where(either > 0, both / either.clamp(min=1), torch.ones_like(both))


def enlarge(logits, side):
    return F.interpolate(logits, size=(side, side), mode="bilinear", align_corners=False)


def resized(model, images):
    """Pictures at the model's size."""
    side = model.configuration.image_size
    return F.interpolate(images, size=(side, side), mode="bilinear", antialias=True, align_corners=False)


def placed(model, prompt, side):
    """A prompt in pixels of pictures of `side` in the model's pixels."""
    scale = model.configuration.image_size / side
    return dataclasses.replace(prompt, coordinates=prompt.coordinates * scale)


def correct(prompt, logits, found, wanted):
    """A further click in the middle of the larger error."""
    missing, extra = wanted & ~found, found & ~wanted
    positive = missing.flatten(1).sum(1) >= extra.flatten(1).sum(1)
    place = deepest(torch.where(positive[:, None, None], missing, extra))
    return Prompt(
        torch.cat([prompt.coordinates, place[:, None]], 1),
        torch.cat([prompt.labels, positive.long()[:, None]], 1),
        logits.clamp(-32, 32),
    )


def ask(model, features, prompt, wanted):
    """The one mask a predictor answers with: its logits, itself at full size, and all four masks' IoU [n, 4]."""
    prompt = placed(model, prompt, wanted.shape[-1])
    decoded = model.decode(model.without_memory(features), features.fine, prompt)
    reached = overlap(enlarge(decoded.masks, wanted.shape[-1]) > 0, wanted[:, None])
    given = answer(decoded)
    logits = decoded.mask(given)
    found = enlarge(logits, wanted.shape[-1])[:, 0] > 0
    return decoded, logits, found, reached


def pick(reached, index):
    return reached.gather(1, index[:, None])[:, 0]


@torch.no_grad()
def evaluate_images(model, example):
    """IoU [n * targets] by prompt."""
    wanted = example.masks.flatten(0, 1)
    features = model.features(resized(model, example.images)).repeat(example.masks.shape[1])
    results = {}
    place = deepest(wanted)[:, None]
    prompt = Prompt(place, torch.ones_like(place[..., 0], dtype=torch.long))
    for clicks in (1, 2, 3):
        decoded, logits, found, reached = ask(model, features, prompt, wanted)
        results[f"clicks_{clicks}"] = overlap(found, wanted)
        if clicks == 1:
            results["clicks_1_single"] = reached[:, 0]
            results["clicks_1_chosen_of_three"] = pick(reached, decoded.best())
            results["clicks_1_best_of_three"] = reached[:, 1:].amax(1)
        prompt = correct(prompt, logits, found, wanted)
    region = prompts.shrink(example.masks) > 0.5
    place = prompts.spread_clicks(Random(0, wanted.device), region, 3, region)
    prompt = Prompt(place, torch.ones_like(place[..., 0], dtype=torch.long))
    results["clicks_3_at_once"] = overlap(ask(model, features, prompt, wanted)[2], wanted)
    corners = prompts.boxes(Random(0, wanted.device), wanted, jitter=0.0)
    labels = torch.tensor([2, 3], device=wanted.device).expand(len(corners), -1)
    results["box"] = overlap(ask(model, features, Prompt(corners, labels), wanted)[2], wanted)
    whole = example.shown.flatten() > UNCOVERED
    for name in ("clicks_1", "box"):
        results[f"{name}_uncovered"], results[f"{name}_covered"] = results[name][whole], results[name][~whole]
    return results


@torch.no_grad()
def evaluate_clip(model, example):
    """IoU of frames 1 and on, one click on frame 0."""
    wanted = example.masks[:, 0]
    place = deepest(wanted[:1])[:, None]
    prompt = Prompt(place, torch.ones_like(place[..., 0], dtype=torch.long))
    prompt = placed(model, prompt, wanted.shape[-1])
    logits, _ = track_clip(model, resized(model, example.images), prompt)
    found = enlarge(logits, wanted.shape[-1])[:, 0] > 0
    return overlap(found, wanted)[1:]


def summary(values):
    values = torch.cat(values)
    return {"mean": round(values.mean().item(), 4), "median": round(values.median().item(), 4), "count": len(values)}


def load_model(path, device):
    state, configuration = load_checkpoint(path)
    model = Model(configuration).to(device).eval()
    model.load_state_dict(state)
    return model


def examples(options):
    """Functions that draw a batch of images and a clip by number."""
    if options.depth:
        painter = held_out.painter(options.kinds, options.device)
        images = lambda index: held_out.draw_depth_images(
            painter, index, options.batch, options.targets, options.part_weight
        )
        return images, lambda index: held_out.draw_depth_clip(painter, 100000 + index)
    bank = held_out.library(options.kinds, options.device)
    images = lambda index: held_out.draw_images(
        bank, index, options.batch, options.targets, part_weight=options.part_weight
    )
    return images, lambda index: held_out.draw_clip(bank, 100000 + index)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--kinds", default="reserved", choices=("reserved", "training", "mixed"))
    parser.add_argument("--depth", action="store_true", help="scenes with depth instead of flat ones")
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument("--targets", type=int, default=3)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--clips", type=int, default=8)
    parser.add_argument("--first-clip", type=int, default=0)
    parser.add_argument("--part-weight", type=float, default=0.0,
                        help="above 0 parts of objects are asked for too; with --depth their share, 1 for parts alone")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", help="a JSON file for the numbers")
    return parser.parse_args()


def main():
    options = parse()
    began = time.time()
    model = load_model(options.checkpoint, options.device)
    draw_images, draw_clip = examples(options)
    results = {}
    for index in range(options.scenes // options.batch):
        for name, values in evaluate_images(model, draw_images(index)).items():
            results.setdefault(name, []).append(values)
    print({name: summary(values)["mean"] for name, values in results.items()}, flush=True)
    for index in range(options.first_clip, options.first_clip + options.clips):
        reached = evaluate_clip(model, draw_clip(index))
        print(f"clip {index}: J {reached.mean().item():.3f}", flush=True)
        results.setdefault("clip_frames", []).append(reached)
        results.setdefault("clips", []).append(reached.mean()[None])
    numbers = {name: summary(values) for name, values in results.items()}
    numbers.update(each_clip=[round(value.item(), 4) for value in results.get("clips", [])])
    numbers.update(kinds=options.kinds, depth=options.depth, seconds=round(time.time() - began, 1))
    print(json.dumps(numbers, indent=1))
    if options.output:
        with open(options.output, "w") as file:
            json.dump(numbers, file, indent=1)


if __name__ == "__main__":
    main()
