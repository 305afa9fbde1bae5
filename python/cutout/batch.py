"""Masks of many pictures in the engines that people have: Ray Data, Daft, Spark, Dask.

`Segmenter` takes a table with pictures and gives a table with a row per instance, in the columns of `cutout batch`. It is
pickled as its arguments and opens the model where it is first called, once per process. `Parts` writes such tables to a
folder, each once, whatever the engine repeats.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import uuid
from typing import Any

from . import CutoutError, Mask, Prompt, Sam, __version__

TASKS = ("everything", "boxes", "find")


def schema():
    """The columns of the answers, as pyarrow has them: those of `cutout batch`."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("shard", pa.int32(), nullable=False),
            pa.field("instance", pa.int32(), nullable=False),
            pa.field("phrase", pa.string()),
            pa.field("score", pa.float32()),
            pa.field("presence", pa.float32()),
            pa.field("predicted_iou", pa.float32()),
            pa.field("stability", pa.float32()),
            pa.field("area", pa.int64()),
            pa.field("bbox", pa.list_(pa.field("element", pa.float32(), nullable=False))),
            pa.field("height", pa.int32()),
            pa.field("width", pa.int32()),
            pa.field("rle", pa.binary()),
            pa.field("polygon", pa.binary()),
            pa.field("error", pa.string()),
            pa.field("model", pa.string(), nullable=False),
            pa.field("options_hash", pa.string(), nullable=False),
        ]
    )


class Segmenter:
    """A function of tables: `pyarrow.Table`, `RecordBatch` or a dict of columns in, `pyarrow.Table` out.

    `model` is a path, or None for the built-in model. `task` is "everything" (options by Meta's names), "boxes" (a column
    `boxes` with lists of left, top, right, bottom) or "find" (`phrases=[...]`, `threshold=`; SAM 3). Pictures are in the column
    `bytes` or `uri`, ids in `id`. `threads` is the number of threads of a process; by default the processors that the engine
    granted. With `polygons`, outlines are written too, as WKB, that leave the border of the pixels by at most so many pixels. A
    picture that cannot be read becomes a row with an error.
    """

    def __init__(
        self,
        model: str | os.PathLike | None = None,
        task: str = "everything",
        *,
        id_column: str = "id",
        picture_column: str | None = None,
        boxes_column: str = "boxes",
        device: str | None = None,
        precision: str | None = None,
        threads: int | None = None,
        polygons: float | None = None,
        **options: Any,
    ):
        if task not in TASKS:
            raise ValueError(f"task is one of {', '.join(TASKS)}, not {task!r}")
        if task == "find" and not options.get("phrases"):
            raise ValueError('task "find" needs phrases=[...]')
        if task == "boxes" and options:
            raise ValueError(f'task "boxes" has no options: {", ".join(options)}')
        if polygons is not None and not 0 <= polygons < float("inf"):
            raise ValueError(f"polygons is a number of pixels from 0 on, not {polygons}")
        self.model = None if model is None else os.fspath(model)
        self.task = task
        self.id_column = id_column
        self.picture_column = picture_column
        self.boxes_column = boxes_column
        self.run: dict[str, Any] = {"device": device, "precision": precision, "threads": threads}
        self.polygons = polygons
        self.options = options
        self._sam: Sam | None = None

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_sam": None}

    @property
    def sam(self) -> Sam:
        """The model, opened on first use."""
        if self._sam is None:
            run = dict(self.run)
            run["threads"] = run["threads"] or granted_threads()
            sam = Sam(self.model, **run)
            known = {"phrases", "threshold", "overlap"} if self.task == "find" else set(sam.everything_options())
            if unknown := sorted(set(self.options) - known):
                raise ValueError(f'task "{self.task}" has no option {", ".join(unknown)}')
            if self.task == "find" and not sam.finds:
                raise ValueError(f"{sam.description} does not find objects by phrase: SAM 3 does")
            self._sam = sam
        return self._sam

    def options_hash(self) -> str:
        """A digest of everything that changes the answers, but for the model."""
        told = [__version__, self.task, self.options, self.run["precision"], self.polygons]
        text = json.dumps(told, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __call__(self, table):
        import pyarrow as pa

        columns = _columns(table)
        pictures, ids = self._pictures(columns), self.ids(columns)
        boxes = columns.get(self.boxes_column) if self.task == "boxes" else [None] * len(pictures)
        if boxes is None:
            raise ValueError(f"no column {self.boxes_column!r}; there are {', '.join(columns)}")
        common = {"shard": 0, "model": self.sam.description, "options_hash": self.options_hash()}
        rows = []
        for identity, place, own in zip(ids, pictures, boxes):
            rows.extend({"id": identity, **common, **row} for row in self._rows(place, own))
        return pa.Table.from_pylist(rows, schema=schema())

    def ids(self, table) -> list[str]:
        """The ids of the pictures of a table: the column of ids, else paths, else digests of the bytes."""
        columns = _columns(table)
        found = columns.get(self.id_column) or self._pictures(columns)
        return [_sha256(one) if isinstance(one, (bytes, bytearray)) else str(one) for one in found]

    def _pictures(self, columns: dict[str, list]) -> list:
        name = self.picture_column or next((name for name in ("bytes", "image", "uri") if name in columns), None)
        if name is None or name not in columns:
            raise ValueError(f"no column of pictures; there are {', '.join(columns)}")
        return columns[name]

    def model_sha256(self) -> str:
        """SHA-256 of the checkpoint, or a word for the built-in model. Reads the whole file."""
        if self.model is None:
            return "built in"
        digest = hashlib.sha256()
        with open(self.model, "rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
        return digest.hexdigest()

    def _rows(self, picture, boxes) -> list[dict]:
        failures = (ValueError, TypeError, OSError, MemoryError, CutoutError)
        try:
            try:
                masks, shape = self._masks(picture, boxes)
            except failures:
                # Once more, as `cutout batch` does: a share that was away for a moment, memory that another process had.
                masks, shape = self._masks(picture, boxes)
        except failures as error:
            return [{"instance": -1, "error": str(error)}]
        size = {"height": shape[0], "width": shape[1]}
        if not masks:
            return [{"instance": -1, **size}]
        return [{"instance": index, **size, **self._row(mask)} for index, mask in enumerate(masks)]

    def _row(self, mask: Mask) -> dict:
        return {
            "phrase": mask.phrase,
            "score": mask.predicted_iou if mask.score is None else mask.score,
            "presence": mask.presence,
            "predicted_iou": mask.predicted_iou,
            "stability": mask.stability_score,
            "area": mask.area,
            "bbox": list(mask.bbox),
            "rle": mask.rle()["counts"].encode(),
            "polygon": None if self.polygons is None else mask.wkb(self.polygons),
        }

    def _masks(self, picture, boxes) -> tuple[list[Mask], tuple[int, int]]:
        scene = self.sam.embed(picture)
        if self.task == "find":
            options = dict(self.options)
            found = scene.find(options.pop("phrases"), **options)
            return [mask for detections in found for mask in detections], scene.shape
        if self.task == "boxes":
            corners = [tuple(map(float, box)) for box in boxes if box is not None] if boxes is not None else []
            prompts = [Prompt(box=(left, top, right, bottom)) for left, top, right, bottom in corners]
            return [masks.best for masks in scene.segment_all(prompts)], scene.shape
        return scene.everything(**self.options), scene.shape


class Parts:
    """Tables of a segmenter as part files of a folder, each written once.

    A part is named after the ids of its pictures, and its bytes follow from the pictures, the model and the options. It appears
    whole, and after it a mark `_part-….done` with the number of rows and the digest of the file, as `cutout batch` writes
    them. A chunk that an engine runs twice gives the same part; one that is marked is not computed again.
    """

    def __init__(self, output: str | os.PathLike, segmenter: Segmenter):
        self.output = pathlib.Path(output)
        self.segmenter = segmenter
        self._run: str | None = None

    def write(self, table) -> pathlib.Path:
        """Segments the pictures of a table, unless their part is there, and returns the part file."""
        ids = self.segmenter.ids(table)
        name = _sha256("\n".join(ids).encode())[:24]
        part, mark = self.output / f"part-{name}.parquet", self.output / f"_part-{name}.done"
        boxes = _columns(table).get(self.segmenter.boxes_column) if self.segmenter.task == "boxes" else None
        key = _sha256("\n".join([self._of_the_run(), *ids, str(boxes)]).encode())
        found = _read_mark(mark)
        if found is not None and found["key"] != key:
            raise ValueError(f"{part}: of a run with other options or another model; give another folder")
        if found is None or not part.exists() or _sha256(part.read_bytes()) != found["sha256"]:
            rows = self.segmenter(table)
            bytes_of_part = self._encode(rows)
            failed = sum(error is not None for error in rows.column("error").to_pylist())
            facts = {"rows": rows.num_rows, "pictures": len(ids), "errors": failed}
            facts |= {"sha256": _sha256(bytes_of_part), "key": key}
            self.output.mkdir(parents=True, exist_ok=True)
            _replace(part, bytes_of_part)
            _replace(mark, json.dumps(facts).encode())
        return part

    def _of_the_run(self) -> str:
        """What all parts of a run have in common."""
        if self._run is None:
            self._run = f"{__version__} {self.segmenter.model_sha256()} {self.segmenter.options_hash()}"
        return self._run

    def _encode(self, rows) -> bytes:
        import pyarrow as pa
        import pyarrow.parquet as parquet

        notes = {"cutout.version": __version__, "cutout.model": self.segmenter.sam.description}
        notes["cutout.run"] = self._of_the_run()
        sink = pa.BufferOutputStream()
        parquet.write_table(rows.replace_schema_metadata(notes), sink, compression="zstd")
        return sink.getvalue().to_pybytes()


def _sha256(content: bytes | bytearray) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_mark(path: pathlib.Path) -> dict | None:
    """The mark of a finished part; None where there is none that can be read."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"key", "sha256"} <= found.keys() else None


def _replace(path: pathlib.Path, content: bytes) -> None:
    """Writes a file that appears whole."""
    pending = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(pending, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(pending, path)
    finally:
        pending.unlink(missing_ok=True)


def granted_threads() -> int | None:
    """Processors that the engine granted to this process: Ray's assigned CPUs, else what the system allows."""
    import sys

    if "ray" in sys.modules:
        import ray

        if ray.is_initialized():
            granted = ray.get_runtime_context().get_assigned_resources().get("CPU")
            if granted:
                return max(int(granted), 1)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _columns(table) -> dict[str, list]:
    if isinstance(table, dict):
        return {name: list(values) for name, values in table.items()}
    return {name: table.column(name).to_pylist() for name in table.schema.names}
