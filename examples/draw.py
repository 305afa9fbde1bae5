"""Draws the example picture and clip: still-life.jpg and ball.gif.

    python examples/draw.py            (needs numpy and pillow)
"""

import pathlib

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

FOLDER = pathlib.Path(__file__).parent
# Everything is drawn at three times the size and reduced, for smooth edges.
SCALE = 3


def noise(shape, coarseness, seed):
    """Smooth noise from -1 to 1."""
    generator = np.random.default_rng(seed)
    small = generator.uniform(-1, 1, (shape[0] // coarseness + 2, shape[1] // coarseness + 2))
    picture = Image.fromarray((small * 127 + 128).astype(np.uint8))
    picture = picture.resize((shape[1], shape[0]), Image.BICUBIC)
    return (np.asarray(picture).astype(np.float32) - 128) / 127


def room(width, height, horizon):
    """A wall with light from the left, and a wooden table."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    light = 1.1 - 0.5 * x / width
    wall = np.stack([176 * light, 190 * light, 186 * light], -1)
    wall += 6 * noise((height, width), 24, 1)[..., None]
    grain = noise((height, width // 16 + 1), 4, 2).repeat(16, 1)[:, :width] + 0.4 * noise((height, width), 6, 3)
    table = np.stack([150 + 22 * grain, 104 + 18 * grain, 62 + 12 * grain], -1) * (0.8 + 0.3 * (1 - x / width))[..., None]
    return np.where((y > horizon)[..., None], table, wall)


def mask_of(size, draw):
    picture = Image.new("L", size, 0)
    draw(ImageDraw.Draw(picture))
    return np.asarray(picture).astype(np.float32) / 255


def place(canvas, mask, colour, shade):
    """Draws an object of one colour, shaded by `shade`, into the picture."""
    body = np.asarray(colour, np.float32) * shade[..., None]
    return canvas * (1 - mask[..., None]) + body * mask[..., None]


def shadow(canvas, mask, strength, blur):
    picture = Image.fromarray((mask * 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(blur))
    dark = np.asarray(picture).astype(np.float32) / 255 * strength
    return canvas * (1 - dark[..., None])


def ball_shade(shape, centre, radius):
    """Shading of a sphere lit from the upper left."""
    y, x = np.mgrid[0 : shape[0], 0 : shape[1]].astype(np.float32)
    from_light = np.hypot(x - centre[0] + 0.4 * radius, y - centre[1] + 0.45 * radius) / radius
    return np.clip(1.35 - 0.4 * from_light, 0.55, 1.35)


def save(canvas, size, grain=6):
    grainy = canvas + np.random.default_rng(7).normal(0, grain, canvas.shape)
    return Image.fromarray(np.clip(grainy, 0, 255).astype(np.uint8)).resize(size, Image.LANCZOS)


def still_life(width=640, height=480):
    w, h = width * SCALE, height * SCALE
    size, unit = (w, h), SCALE
    canvas = room(w, h, 290 * unit)
    ramp = np.broadcast_to(np.linspace(1.15, 0.65, w, dtype=np.float32), (h, w))

    def ellipse(x0, y0, x1, y1):
        return mask_of(size, lambda draw: draw.ellipse([x0 * unit, y0 * unit, x1 * unit, y1 * unit], fill=255))

    def polygon(*points):
        return mask_of(size, lambda draw: draw.polygon([(x * unit, y * unit) for x, y in points], fill=255))

    # A book, lying flat.
    canvas = shadow(canvas, ellipse(330, 330, 640, 400), 0.5, 12 * unit)
    canvas = place(canvas, polygon((350, 335), (560, 315), (610, 365), (395, 390)), (46, 92, 168), ramp)
    canvas = place(canvas, polygon((395, 390), (610, 365), (610, 385), (397, 411)), (228, 222, 205), ramp)
    canvas = place(canvas, polygon((397, 411), (610, 385), (610, 391), (397, 417)), (34, 70, 130), ramp)
    # A mug.
    canvas = shadow(canvas, ellipse(120, 330, 320, 380), 0.5, 10 * unit)
    ring = np.clip(ellipse(232, 215, 312, 315) - ellipse(252, 236, 294, 294), 0, 1)
    canvas = place(canvas, ring, (224, 178, 52), ramp)
    body = np.clip(polygon((140, 190), (270, 190), (262, 350), (148, 350)) + ellipse(148, 336, 262, 364), 0, 1)
    column = np.clip(1.3 - np.abs(np.linspace(0, w, w) / unit - 180) / 130, 0.45, 1.3).astype(np.float32)
    canvas = place(canvas, body, (232, 186, 58), np.broadcast_to(column, (h, w)))
    canvas = place(canvas, ellipse(140, 174, 270, 206), (246, 205, 92), ramp)
    canvas = place(canvas, ellipse(152, 180, 258, 202), (70, 42, 26), ramp)
    # An apple with its stem.
    canvas = shadow(canvas, ellipse(415, 318, 590, 352), 0.55, 8 * unit)
    apple = np.clip(ellipse(428, 218, 520, 340) + ellipse(478, 216, 572, 340), 0, 1)
    shade = ball_shade((h, w), (500 * unit, 280 * unit), 78 * unit) * (1 + 0.08 * noise((h, w), 40, 5))
    canvas = place(canvas, apple, (196, 40, 46), shade)
    canvas = place(canvas, polygon((496, 226), (503, 226), (512, 190), (506, 188)), (84, 58, 36), ramp)
    canvas = place(canvas, ellipse(508, 188, 552, 208), (92, 142, 58), ramp)
    return save(canvas, (width, height))


def clip(frames=24, width=320, height=240):
    """A clip: a ball rolls behind a post and out again, while a box slides the other way."""
    w, h, unit = width * SCALE, height * SCALE, SCALE
    background = room(w, h, 150 * unit)
    pictures = []
    for frame in range(frames):
        canvas = background.copy()
        ramp = np.broadcast_to(np.linspace(1.15, 0.7, w, dtype=np.float32), (h, w))
        at = frame / (frames - 1)
        x, y = (40 + 240 * at) * unit, (165 - 6 * abs(np.sin(at * 9))) * unit
        box = (230 - 150 * at) * unit
        corners = [box, 120 * unit, box + 56 * unit, 164 * unit]
        canvas = place(canvas, mask_of((w, h), lambda draw: draw.rectangle(corners, fill=255)), (62, 134, 92), ramp)
        radius = 26 * unit
        circle = [x - radius, y - radius, x + radius, y + radius]
        canvas = shadow(canvas, mask_of((w, h), lambda draw: draw.ellipse([x - radius, 182 * unit, x + radius, 198 * unit], fill=255)), 0.5, 5 * unit)
        ball = mask_of((w, h), lambda draw: draw.ellipse(circle, fill=255))
        canvas = place(canvas, ball, (214, 74, 46), ball_shade((h, w), (x, y), radius))
        post = [168 * unit, 30 * unit, 186 * unit, 210 * unit]
        canvas = place(canvas, mask_of((w, h), lambda draw: draw.rectangle(post, fill=255)), (120, 116, 128), ramp)
        pictures.append(save(canvas, (width, height), grain=1))
    return pictures


if __name__ == "__main__":
    still_life().save(FOLDER / "still-life.jpg", quality=90)
    frames = [picture.quantize(64, dither=Image.Dither.NONE) for picture in clip()]
    frames[0].save(FOLDER / "ball.gif", save_all=True, append_images=frames[1:], duration=80, loop=0)
