"""Draws the curves of training logs as one small PNG.

    python plot_log.py --output curves.png LOG.csv [LOG.csv ...]
"""

import argparse
import csv

from PIL import Image, ImageDraw

CURVES = {
    "click1": (31, 119, 180), "click3": (23, 190, 207), "box1": (214, 39, 40),
    "box2": (255, 127, 14), "follow": (44, 160, 44), "click1-depth": (140, 170, 230), "box1-depth": (240, 150, 150),
    "three1-depth": (148, 103, 189),
}
WIDTH, HEIGHT, MARGIN = 720, 400, 40


def read(paths):
    """Rows of all logs in order, as dictionaries of numbers; a log that counts from 0 again goes on from the last."""
    rows = []
    for path in paths:
        with open(path, newline="") as file:
            more = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
        last = rows[-1]["step"] if rows else 0
        before = last if more[0]["step"] < last else 0
        rows += [{**row, "step": row["step"] + before} for row in more]
    return rows


def draw(rows):
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen = ImageDraw.Draw(image)
    last = max(row["step"] for row in rows)
    place = lambda step, value: (
        MARGIN + (WIDTH - 2 * MARGIN) * step / last,
        HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * value,
    )
    for tenth in range(0, 11, 2):
        value = tenth / 10
        pen.line([place(0, value), place(last, value)], fill=(225, 225, 225))
        pen.text((8, place(0, value)[1] - 6), f"{value:.1f}", fill="black")
    for index, (name, colour) in enumerate(CURVES.items()):
        points = [place(row["step"], row[name]) for row in rows if name in row]
        pen.line(points, fill=colour, width=2)
        pen.text((MARGIN + 10 + 80 * index, 12), name, fill=colour)
    pen.text((WIDTH - 150, HEIGHT - 24), f"{last:.0f} steps, IoU", fill="black")
    return image


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True)
    parser.add_argument("logs", nargs="+")
    options = parser.parse_args()
    draw(read(options.logs)).quantize(32).save(options.output, optimize=True)


if __name__ == "__main__":
    main()
