"""Masks of a folder of pictures on a Ray cluster: `python examples/ray_batch.py PICTURES OUT [--model CHECKPOINT]`.

Each chunk of pictures becomes one part file, named after its ids and written under another name first, with a mark beside it.
A chunk that runs twice, after a node was lost, writes the same bytes to the same place. So every instance is there once,
whatever the engine repeats. A second run skips chunks that are marked.
"""

import argparse
import hashlib
import os
import pathlib

import pyarrow as pa
import pyarrow.parquet as parquet
import ray

from cutout.batch import Segmenter

PICTURES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif"}


class Parts:
    """Segments chunks and writes each as a part file."""

    def __init__(self, output, segmenter):
        self.output = pathlib.Path(output)
        self.segmenter = segmenter

    def __call__(self, chunk):
        ids = sorted(chunk["uri"].tolist())
        name = hashlib.sha256("\n".join(ids).encode()).hexdigest()[:24]
        part, mark = self.output / f"part-{name}.parquet", self.output / f"_part-{name}.done"
        if not mark.exists():
            table = self.segmenter(pa.table({"uri": ids, "id": ids}))
            pending = self.output / f".{name}.{os.getpid()}.tmp"
            parquet.write_table(table, pending, compression="zstd")
            os.replace(pending, part)
            pending.write_text(str(table.num_rows))
            os.replace(pending, mark)
        return {"part": [part.name], "node": [ray.get_runtime_context().get_node_id()]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pictures", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--model")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--chunk", type=int, default=4, help="pictures of a part file")
    parser.add_argument("--points-per-side", type=int, default=16)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    files = sorted(str(p) for p in options.pictures.rglob("*") if p.suffix.lower() in PICTURES)
    ray.init(address=os.environ.get("RAY_ADDRESS", "local"), logging_level="warning")
    segmenter = Segmenter(options.model, points_per_side=options.points_per_side)
    # As many blocks as chunks, so that a chunk is the same pictures in every run.
    blocks = max(len(files) // options.chunk, 1)
    parts = (
        ray.data.from_items([{"uri": file} for file in files], override_num_blocks=blocks)
        .map_batches(
            Parts,
            fn_constructor_args=(str(options.output), segmenter),
            batch_size=None,
            batch_format="numpy",
            num_cpus=1,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=options.workers),
        )
        .take_all()
    )
    nodes = {part["node"] for part in parts}
    print(f"{len(files)} pictures, {len(parts)} parts, {len(nodes)} nodes")


if __name__ == "__main__":
    main()
