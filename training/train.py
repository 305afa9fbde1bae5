"""Trains the model on scenes it draws itself; one call is one stretch of the schedule.

    python train.py --side 256 --minutes 9 --progress 0.0 0.4 --output DIRECTORY [--resume STATE]
"""

import argparse
import csv
import math
import os
import time

import torch

from export import save_half
from trainer import CLIP_STEPS, IMAGE_STEPS, Trainer

FIELDS = "minutes step progress rate images loss norm".split()
REACHED = "click1 click2 click3 box1 box2 two1 two2 three1 five1 near1 near2 follow".split()
FIELDS += REACHED + [f"{name}-depth" for name in REACHED]


class Log:
    """Running means of what a step reports, written as lines of CSV."""

    def __init__(self, path):
        self.file = open(path, "a", newline="")
        self.writer = csv.DictWriter(self.file, FIELDS, extrasaction="ignore")
        self.writer.writeheader()
        self.values = {}

    def add(self, values):
        for name, value in values.items():
            self.values.setdefault(name, []).append(value)

    def write(self, **fields):
        for name, values in self.values.items():
            fields[name] = f"{torch.stack(values).mean().item():.4f}"
        self.writer.writerow(fields)
        self.file.flush()
        print(" ".join(f"{name}={value}" for name, value in fields.items()), flush=True)
        self.values = {}


def schedule(progress, elapsed, options, warm):
    """Rate, share of the focal loss, mean number of objects, and the candidates' spread.

    The rate falls over the whole schedule, or with `--restart` over the stretch, of which `elapsed` is behind.
    """
    decayed = min(1.0, elapsed if options.restart else progress)
    shape = {"cosine": 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * decayed)), "linear": 1 - decayed}
    rate = options.rate * min(1.0, (warm + 1) / options.warm_up) * shape[options.decay]
    focal = min(0.9, max(0.0, (progress - 0.25) / 0.25))
    objects = 2 + 5 * min(1.0, progress / 0.1)
    return rate, focal, objects, 0.1 * max(0.0, 1 - progress / 0.3)


class Order:
    """Which step comes next, by chance, and when new scenes are drawn for it."""

    KINDS = {
        group: {name: weight for name, (_, _, weight) in steps.items()}
        for group, steps in (("image", IMAGE_STEPS), ("clip", CLIP_STEPS))
    }

    def __init__(self, random, options, steps):
        """The clips' share is of the time; `steps` know how long they take."""
        self.random, self.uses, self.steps = random, options.uses, steps
        image, clip = (self.seconds(group) for group in self.KINDS)
        clip, image = options.clip_share / clip, (1 - options.clip_share) / image
        self.clip_share = clip / (clip + image)
        self.left = dict.fromkeys(self.KINDS, 0)

    def seconds(self, group):
        """How long a step of the group takes on average, its share of drawing included."""
        kinds = self.KINDS[group]
        total = sum(weight * self.steps[kind].seconds for kind, weight in kinds.items())
        return total / sum(kinds.values()) + self.steps[f"draw-{group}"].seconds / self.uses

    def __call__(self):
        """Takes the next step and returns its figures."""
        group = "clip" if self.random.random() < self.clip_share else "image"
        if self.left[group] == 0:
            self.steps[f"draw-{group}"]()
            self.left[group] = self.uses
        self.left[group] -= 1
        kinds = self.KINDS[group]
        return self.steps[self.random.choices(list(kinds), list(kinds.values()))[0]]()


def save(trainer, directory, full):
    path = f"{directory}/average.safetensors"
    save_half(trainer.averaged_state(), trainer.configuration, path + ".part")
    os.replace(path + ".part", path)
    if full:
        torch.save(trainer.state(), full + ".part")
        os.replace(full + ".part", full)


class Stretch:
    """The clock of one call."""

    def __init__(self, options, began):
        self.options, self.began, self.start = options, began, time.time()
        # What starting took comes out of the stretch, so that the whole call ends in time.
        self.length = options.minutes * 60 - (self.start - began)

    def elapsed(self):
        return (time.time() - self.start) / self.length

    def progress(self):
        low, high = self.options.progress
        return low + (high - low) * self.elapsed()

    def over(self):
        return time.time() - self.start >= self.length

    def minutes(self):
        return (time.time() - self.began) / 60


def compile_only(trainer, names):
    """Takes the named steps once, which leaves compiled code where a run beside this one finds it.

    Decoding, memory and losses are compiled, at the shapes that the numbers of targets and tracks give; drawing and the
    image encoder are not, so fewer images and frames with as many targets in all will do.
    """
    trainer.options.record = False
    steps = trainer.steps()
    for name in names:
        began = time.time()
        steps["draw-clip" if name in CLIP_STEPS else "draw-image"]()
        steps[name]()
        print(f"compiled {name}: {time.time() - began:.1f} s", flush=True)


def train(options):
    torch.set_float32_matmul_precision("high")
    began = time.time()
    os.makedirs(options.output, exist_ok=True)
    trainer = Trainer(options)
    if options.resume:
        trainer.load(options.resume)
    trainer.objects.fill_(6)
    if options.compile_only:
        return compile_only(trainer, options.compile_only)
    steps = trainer.steps()
    log = Log(f"{options.output}/log.csv")
    print(f"ready after {time.time() - began:.1f} s", flush=True)
    clock, saved = Stretch(options, began), time.time()
    order = Order(trainer.choice, options, steps)
    images, logged = 0, time.time()
    while not clock.over():
        progress = clock.progress()
        rate, focal, objects, spread = schedule(progress, clock.elapsed(), options, trainer.warm)
        trainer.focal.fill_(focal), trainer.objects.fill_(objects), trainer.spread.fill_(spread)
        figures = order()
        log.add({"norm": trainer.update(rate), **figures})
        images += options.batch
        if trainer.step % options.log_every == 0:
            log.write(
                minutes=f"{clock.minutes():.2f}", step=trainer.step, progress=f"{progress:.4f}",
                rate=f"{rate:.2e}", images=f"{images / (time.time() - logged):.0f}",
            )
            images, logged = 0, time.time()
        if time.time() - saved > options.save_seconds:
            save(trainer, options.output, options.state)
            saved = time.time()
    save(trainer, options.output, options.state)
    if trainer.device.type == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", flush=True)
    print(f"done: {trainer.step} steps, {time.time() - began:.1f} s", flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True)
    parser.add_argument("--state", help="where the full state for a next stretch goes")
    parser.add_argument("--resume", help="a state or weights to go on from")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--progress", type=float, nargs=2, default=(0.0, 1.0))
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--restart", action="store_true", help="the rate decays from its whole height in this stretch")
    parser.add_argument("--decay", default="cosine", choices=("cosine", "linear"), help="how the rate falls")
    parser.add_argument("--uses", type=int, default=3, help="steps that use the same scenes before others are drawn")
    parser.add_argument("--warm-up", type=int, default=300)
    parser.add_argument("--average", type=float, default=0.99, help="of the weights, every ten steps")
    parser.add_argument("--batch", type=int, default=128, help="images a step; clips * frames for the same shapes")
    parser.add_argument("--targets", type=int, default=6)
    parser.add_argument("--clips", type=int, default=16)
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--clip-targets", type=int, default=4)
    parser.add_argument("--clip-share", type=float, default=0.2, help="of the time")
    parser.add_argument("--flat", type=int, default=10**6, help="flat images of a batch; the others have depth")
    parser.add_argument("--flat-clips", type=int, default=10**6, help="flat clips of a batch; the others have depth")
    parser.add_argument("--part-share", type=float, nargs=2, default=(0.04, 0.3), metavar=("FLAT", "DEPTH"),
                        help="of parts among the targets")
    parser.add_argument("--textures", type=int, nargs=3, default=(3072, 1024, 768),
                        metavar=("NATURAL", "PATTERNS", "PICTURES"), help="of scenes with depth")
    parser.add_argument("--bank", type=int, nargs=2, default=(16384, 6144))
    parser.add_argument("--log-every", type=int, default=100)
    parser.add_argument("--save-seconds", type=float, default=60)
    parser.add_argument("--compile", help="a compiler backend, such as inductor")
    parser.add_argument("--compile-only", nargs="+", metavar="STEP", help="fill the compiler's cache for steps and end")
    parser.add_argument("--record", action="store_true", help="record steps as CUDA graphs")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal's model")
    return parser.parse_args()


if __name__ == "__main__":
    train(parse())
