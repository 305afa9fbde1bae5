"""Measures the program on three photographs of Meta's repository, against outlines drawn by hand.

    git clone https://github.com/facebookresearch/segment-anything
    python measure_photographs.py --cutout ../target/release/cutout --photographs segment-anything/notebooks/images

`photographs.json` has 23 things: an outline each, straight lines between points a few pixels off at most, and three clicks spread over the
thing, of which the first is the single click. The box is the outline's. With `--sheet FILE` every answer is drawn.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy
from PIL import Image, ImageDraw

from measure_cutout import overlap, read_mask

HERE = pathlib.Path(__file__).resolve().parent
PROMPTS = ("click", "three clicks", "box")


def flags(thing):
    """The command line of each prompt."""
    places = [f"{x},{y}" for x, y in thing["clicks"]]
    columns, rows = zip(*thing["outline"])
    box = ",".join(str(value) for value in (min(columns), min(rows), max(columns), max(rows)))
    given = {"click": places[:1], "three clicks": places}
    return {name: [word for place in places for word in ("--point", place)] for name, places in given.items()} | {"box": ["--box", box]}


def answer(options, picture, prompt):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "mask.png")
        model = ["--model", options.model] if options.model else []
        command = [options.cutout, "segment", picture, *model, *prompt, "--output", path]
        subprocess.run([str(word) for word in command], check=True, capture_output=True)
        return read_mask(path)


def drawn(picture, found, thing):
    """The picture with the answer in blue, the outline in white and the clicks in green."""
    pixels = numpy.array(picture, float)
    pixels[found] = 0.4 * pixels[found] + 0.6 * numpy.array([30, 110, 255])
    sheet = Image.fromarray(pixels.astype("uint8"))
    pen, size = ImageDraw.Draw(sheet), picture.width / 120
    pen.line([tuple(point) for point in [*thing["outline"], thing["outline"][0]]], fill="white", width=max(1, int(size / 3)))
    for x, y in thing["clicks"]:
        pen.ellipse([x - size, y - size, x + size, y + size], fill="lime", outline="black")
    return sheet.resize((400, 267))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cutout", required=True, help="the program")
    parser.add_argument("--photographs", required=True, type=pathlib.Path, help="folder with truck.jpg, dog.jpg and groceries.jpg")
    parser.add_argument("--model", help="a checkpoint; the built-in model where left out")
    parser.add_argument("--sheet", help="picture of all answers")
    options = parser.parse_args()
    found, sheets = {name: [] for name in PROMPTS}, []
    for photograph, things in json.loads((HERE / "photographs.json").read_text()).items():
        picture = Image.open(options.photographs / photograph).convert("RGB")
        for name, thing in things.items():
            outline = Image.new("1", picture.size)
            ImageDraw.Draw(outline).polygon([tuple(point) for point in thing["outline"]], fill=1)
            masks = {kind: answer(options, options.photographs / photograph, prompt) for kind, prompt in flags(thing).items()}
            for kind, mask in masks.items():
                found[kind].append(overlap(mask, numpy.array(outline)))
            print(f"{photograph} {name}: " + ", ".join(f"{kind} {found[kind][-1]:.2f}" for kind in PROMPTS), flush=True)
            sheets += [drawn(picture, masks[kind], thing) for kind in PROMPTS]
    for kind, values in found.items():
        print(f"{kind}: mean {numpy.mean(values):.3f}, median {numpy.median(values):.3f}, {len(values)}")
    if options.sheet:
        whole = Image.new("RGB", (6 * 400, 267 * -(-len(sheets) // 6)))
        for number, sheet in enumerate(sheets):
            whole.paste(sheet, (number % 6 * 400, number // 6 * 267))
        whole.save(options.sheet)


if __name__ == "__main__":
    main()
