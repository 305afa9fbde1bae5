"""Draws what a checkpoint answers on the first held-out scenes and clip, as one picture.

    python draw_answers.py --checkpoint FILE --output PICTURE.jpg

The upper row has one click for each scene's first target, the lower row frames of one clip followed from
a click on its first. White lines are the truth, coloured areas the answer, each with its IoU.
"""

import argparse

import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw

import held_out
from evaluate import deepest, enlarge, load_model, overlap, placed, resized
from model import Prompt
from tracking import answer, track_clip

COLOUR = (0.1, 0.45, 1.0)
TILE, TILES = 256, 4


def edge(mask):
    """Pixels of a boolean mask [h, w] that touch its outside."""
    outside = F.max_pool2d((~mask)[None].float(), 5, 1, 2)[0] > 0
    return mask & outside


def tile(image, wanted, found, click=None):
    colour = torch.tensor(COLOUR)[:, None, None]
    shown = torch.where(found, 0.35 * image + 0.65 * colour, image)
    shown = torch.where(edge(wanted), torch.ones_like(shown), shown)
    picture = Image.fromarray((shown.permute(1, 2, 0) * 255).round().byte().numpy())
    pen = ImageDraw.Draw(picture)
    if click is not None:
        x, y = click
        pen.ellipse([x - 8, y - 8, x + 8, y + 8], fill="lime", outline="black", width=2)
    picture = picture.resize((TILE, TILE), Image.Resampling.LANCZOS)
    number = f"{overlap(found, wanted).item():.2f}"
    ImageDraw.Draw(picture).text((6, 4), number, fill="yellow", stroke_width=2, stroke_fill="black")
    return picture


def clicked(wanted):
    place = deepest(wanted)[:, None]
    return Prompt(place, torch.ones_like(place[..., 0], dtype=torch.long))


@torch.no_grad()
def scene_tiles(model, bank):
    for seed in range(TILES):
        example = held_out.draw_images(bank, seed, 4, 3)
        image, wanted = example.images[:1], example.masks[0, :1]
        side = wanted.shape[-1]
        features, prompt = model.features(resized(model, image)), clicked(wanted)
        decoded = model.decode(model.without_memory(features), features.fine, placed(model, prompt, side))
        found = enlarge(decoded.mask(answer(decoded)), side)[0, 0] > 0
        yield tile(image[0], wanted[0], found, prompt.coordinates[0, 0].tolist())


@torch.no_grad()
def clip_tiles(model, bank):
    example = held_out.draw_clip(bank, 100000)
    wanted = example.masks[:, 0]
    prompt, side = clicked(wanted[:1]), wanted.shape[-1]
    logits, _ = track_clip(model, resized(model, example.images), placed(model, prompt, side))
    found = enlarge(logits, side)[:, 0] > 0
    for index in range(TILES):
        frame = index * (len(wanted) - 1) // (TILES - 1)
        click = prompt.coordinates[0, 0].tolist() if frame == 0 else None
        yield tile(example.images[frame], wanted[frame], found[frame], click)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    model = load_model(options.checkpoint, "cpu")
    bank = held_out.library("reserved", "cpu")
    sheet = Image.new("RGB", (TILES * TILE, 2 * TILE))
    for row, tiles in enumerate((scene_tiles, clip_tiles)):
        for column, picture in enumerate(tiles(model, bank)):
            sheet.paste(picture, (column * TILE, row * TILE))
    sheet.save(options.output, quality=80)


if __name__ == "__main__":
    main()
