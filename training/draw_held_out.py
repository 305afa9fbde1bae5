"""Saves held-out examples as PNG files, so that another program can be measured on the same pictures.

    python draw_held_out.py --output DIRECTORY [--images 6] [--clips 1] [--kinds reserved] [--quality 85]

Image `n` is image-n with masks image-n-mask-k.png; clip `n` is a folder of frames and masks.
Pictures are PNG, or smaller JPEG where --quality is given; masks are always exact.
prompts.json lists, for each mask, the click at its deepest point and its box (x, y in pixels).
"""

import argparse
import json
import os

import numpy
import torch
from PIL import Image

import held_out
import prompts
from evaluate import deepest
from randomness import Random


def save_picture(image, path, quality):
    picture = Image.fromarray((image.permute(1, 2, 0) * 255).round().byte().numpy())
    if quality:
        picture.save(f"{path}.jpg", quality=quality)
    else:
        picture.save(f"{path}.png", optimize=True)


def save_mask(mask, path):
    Image.fromarray(mask.numpy().astype(numpy.uint8) * 255).convert("1").save(path, optimize=True)


def describe(masks):
    """Click and box of each boolean mask [n, side, side]."""
    corners = prompts.boxes(Random(0, "cpu"), masks, jitter=0.0).flatten(1).tolist()
    return [
        {"click": click, "box": box} for click, box in zip(deepest(masks).tolist(), corners)
    ]


def save_images(bank, options, record):
    for index in range(options.images):
        example = held_out.draw_images(bank, index, 1, options.targets, options.side)
        name = f"image-{index}"
        save_picture(example.images[0], f"{options.output}/{name}", options.quality)
        for number, mask in enumerate(example.masks[0]):
            save_mask(mask, f"{options.output}/{name}-mask-{number}.png")
        record[name] = describe(example.masks[0])


def save_clips(bank, options, record):
    for index in range(options.clips):
        example = held_out.draw_clip(bank, 100000 + index, options.frames, options.clip_side)
        folder = f"{options.output}/clip-{index}"
        os.makedirs(folder, exist_ok=True)
        for number, (image, mask) in enumerate(zip(example.images, example.masks[:, 0])):
            save_picture(image, f"{folder}/{number:05d}", options.quality)
            save_mask(mask, f"{folder}/mask-{number:05d}.png")
        record[f"clip-{index}"] = describe(example.masks[:1, 0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True)
    parser.add_argument("--kinds", default="reserved", choices=("reserved", "training", "mixed"))
    parser.add_argument("--images", type=int, default=6)
    parser.add_argument("--targets", type=int, default=3)
    parser.add_argument("--clips", type=int, default=1)
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--clip-side", type=int, default=512)
    parser.add_argument("--quality", type=int, help="of JPEG pictures; PNG where left out")
    options = parser.parse_args()
    os.makedirs(options.output, exist_ok=True)
    bank, record = held_out.library(options.kinds, "cpu"), {}
    with torch.no_grad():
        save_images(bank, options, record)
        save_clips(bank, options, record)
    with open(f"{options.output}/prompts.json", "w") as file:
        json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
