"""Measures the program itself on pictures and clips that `draw_held_out.py` saved.

    python measure_cutout.py --cutout ../target/release/cutout --pictures DIRECTORY [--model CHECKPOINT]
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy
from PIL import Image


def read_mask(path):
    return numpy.array(Image.open(path).convert("L")) > 0


def overlap(found, wanted):
    either = (found | wanted).sum()
    return (found & wanted).sum() / either if either else 1.0


class Program:
    """Calls of the program, with its own model or another."""

    def __init__(self, options):
        self.path, self.model = options.cutout, ["--model", options.model] if options.model else []

    def call(self, command, source, prompt, output):
        arguments = [self.path, command, source, *self.model, *prompt, "--output", output]
        subprocess.run([str(argument) for argument in arguments], check=True, capture_output=True)

    def segment(self, picture, prompt):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "mask.png")
            self.call("segment", picture, prompt, path)
            return read_mask(path)

    def track(self, pictures, prompt):
        """The masks of all frames."""
        with tempfile.TemporaryDirectory() as folder:
            frames, masks = pathlib.Path(folder, "frames"), pathlib.Path(folder, "masks")
            frames.mkdir()
            for picture in pictures:
                frames.joinpath(picture.name).symlink_to(picture.resolve())
            self.call("track", frames, prompt, masks)
            return [read_mask(path) for path in sorted(masks.rglob("*.png"))]


def arguments(place, name):
    return [f"--{name}", ",".join(str(number) for number in place)]


def measure_image(program, picture, prompts):
    """IoU of each mask by click and by box."""
    results = {"click": [], "box": []}
    for number, prompt in enumerate(prompts):
        wanted = read_mask(picture.with_name(f"{picture.stem}-mask-{number}.png"))
        asked = {"click": arguments(prompt["click"], "point"), "box": arguments(prompt["box"], "box")}
        for kind, places in asked.items():
            results[kind].append(overlap(program.segment(picture, places), wanted))
    return results


def measure_clip(program, folder, prompt):
    """Mean IoU of the frames after the first, on which the object is clicked."""
    masks = sorted(folder.glob("mask-*.png"))
    pictures = [next(folder.glob(f"{mask.stem.removeprefix('mask-')}.*")) for mask in masks]
    found = program.track(pictures, arguments(prompt["click"], "point"))
    return numpy.mean([overlap(mask, read_mask(path)) for mask, path in zip(found[1:], masks[1:], strict=True)])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cutout", required=True, help="the program")
    parser.add_argument("--pictures", required=True, type=pathlib.Path, help="what draw_held_out.py wrote")
    parser.add_argument("--model", help="a checkpoint; the built-in model where left out")
    options = parser.parse_args()
    program, results = Program(options), {"click": [], "box": [], "clip": []}
    for name, prompts in json.loads((options.pictures / "prompts.json").read_text()).items():
        if name.startswith("clip"):
            results["clip"].append(measure_clip(program, options.pictures / name, prompts[0]))
            print(f"{name}: J {results['clip'][-1]:.3f}", flush=True)
            continue
        picture = next(path for path in options.pictures.glob(f"{name}.*"))
        for kind, values in measure_image(program, picture, prompts).items():
            results[kind] += values
    for kind, values in results.items():
        if values:
            print(f"{kind}: mean {numpy.mean(values):.4f}, median {numpy.median(values):.4f}, {len(values)}")


if __name__ == "__main__":
    main()
