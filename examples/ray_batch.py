"""Masks of a folder of pictures on a Ray cluster: `python examples/ray_batch.py PICTURES OUT [--model CHECKPOINT]`.

Each chunk of pictures becomes one part file by `cutout.batch.Parts`. A chunk that runs twice, after a node was lost, writes the
same bytes to the same place: every instance is there once, whatever the engine repeats. A second run computes nothing.
OUT is a folder that all nodes share.
"""

import argparse
import os
import pathlib

import ray

from cutout.batch import Parts, Segmenter

PICTURES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif"}


class Worker:
    """Writes the parts of chunks, in a process of its own."""

    def __init__(self, output, segmenter):
        self.parts = Parts(output, segmenter)

    def __call__(self, chunk):
        part = self.parts.write({"uri": list(chunk["uris"])})
        return {"part": part.name, "node": ray.get_runtime_context().get_node_id()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pictures", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--model")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--chunk", type=int, default=4, help="pictures of a part file")
    parser.add_argument("--points-per-side", type=int, default=16)
    options = parser.parse_args()
    files = sorted(str(p) for p in options.pictures.rglob("*") if p.suffix.lower() in PICTURES)
    # A row is a chunk, so that a chunk is the same pictures however the engine divides its rows.
    chunks = [{"uris": files[start : start + options.chunk]} for start in range(0, len(files), options.chunk)]
    ray.init(address=os.environ.get("RAY_ADDRESS", "local"), logging_level="warning")
    segmenter = Segmenter(options.model, points_per_side=options.points_per_side)
    parts = (
        ray.data.from_items(chunks, override_num_blocks=len(chunks))
        .map(
            Worker,
            fn_constructor_args=(str(options.output), segmenter),
            num_cpus=1,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=options.workers),
        )
        .take_all()
    )
    nodes = {part["node"] for part in parts}
    print(f"{len(files)} pictures, {len(parts)} parts, {len(nodes)} nodes")


if __name__ == "__main__":
    main()
