"""Draws a contact sheet of scenes with depth: each picture beside its layers and parts, or clips frame by frame.

    python draw_depth.py --output sheet.png [--scenes 24] [--frames 1] [--side 320] [--device cpu]
"""

import argparse

import numpy
import torch
from PIL import Image

from clips import times
from depth_scenes import Painter
from randomness import Random
from scenes import Library


def colours(code):
    """A colour [n, 3, side, side] for every number; 0 is black."""
    table = torch.rand(1024, 3, generator=torch.Generator().manual_seed(5))
    table[0] = 0
    return table[code.long().cpu()].permute(0, 3, 1, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True)
    parser.add_argument("--scenes", type=int, default=24)
    parser.add_argument("--frames", type=int, default=1, help="above 1, clips of so many frames")
    parser.add_argument("--side", type=int, default=320)
    parser.add_argument("--shown", type=int, default=200)
    parser.add_argument("--columns", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--bank", type=int, nargs=2, default=(512, 256))
    parser.add_argument("--textures", type=int, nargs=3, default=(256, 128, 32), help="natural, patterns, pictures")
    options = parser.parse_args()
    library = Library.draw(options.seed, options.device, tuple(options.bank), "training")
    painter = Painter(library, options.device, options.seed, options.textures[:2], options.textures[2])
    random = Random(options.seed + 1, options.device)
    if options.frames > 1:
        clips = options.scenes // options.frames
        scene = painter.clips(random, clips, options.side, times(options.frames, options.device))
    else:
        scene = painter.images(random, options.scenes, options.side)
    code = colours((scene.layers.long() * 37 + scene.parts * (scene.layers > 0)) % 1024)
    pairs = torch.stack([scene.images.cpu(), code], 1).flatten(0, 1)
    pairs = torch.nn.functional.interpolate(pairs, size=(options.shown,) * 2, mode="area")
    rows = pairs.unflatten(0, (-1, 2 * options.columns)).permute(0, 3, 1, 4, 2).flatten(0, 1).flatten(1, 2)
    Image.fromarray((rows.clamp(0, 1) * 255).byte().numpy().astype(numpy.uint8)).save(options.output)


if __name__ == "__main__":
    main()
