"""`cutout.batch.Segmenter` and the tables of `cutout batch`."""

import hashlib
import json
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

import cutout

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as parquet

from cutout.batch import Parts, Segmenter, schema

OPTIONS = {"points_per_side": 3}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory, picture):
    from PIL import Image

    folder = tmp_path_factory.mktemp("pictures")
    Image.fromarray(picture[::2, ::2]).save(folder / "a.png")
    Image.fromarray(picture[::2, ::-2]).save(folder / "b.png")
    (folder / "broken.png").write_bytes(b"no picture")
    return folder


def test_rows_are_those_of_the_command(pictures, tmp_path):
    files = [str(pictures / name) for name in ("a.png", "b.png", "broken.png")]
    found = Segmenter(device="cpu", **OPTIONS)({"uri": files})
    assert found.schema.equals(schema())
    arguments = ["batch", *files, "-o", str(tmp_path / "out"), "--points-per-side", "3", "--device", "cpu"]
    done = subprocess.run([sys.executable, "-m", "cutout", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wanted = parquet.read_table(tmp_path / "out")
    assert wanted.schema.equals(found.schema), wanted.schema
    same = [name for name in schema().names if name not in ("options_hash", "error")]
    assert found.select(same).to_pylist() == wanted.select(same).to_pylist()
    assert [row["error"] is None for row in found.to_pylist()] == [row["error"] is None for row in wanted.to_pylist()]
    errors = [row for row in found.to_pylist() if row["error"]]
    assert [row["id"] for row in errors] == [files[2]] and "not a picture" in errors[0]["error"]


def test_it_is_pickled_without_its_model(pictures):
    segmenter = Segmenter(device="cpu", **OPTIONS)
    table = pa.table({"id": ["one"], "bytes": [(pictures / "a.png").read_bytes()]})
    first = segmenter(table)
    stored = pickle.dumps(segmenter)
    assert len(stored) < 1000
    assert pickle.loads(stored)(table.to_batches()[0]).equals(first)


def test_boxes_of_a_column(pictures, sam):
    file = str(pictures / "a.png")
    boxes = [[10.0, 10.0, 100.0, 100.0], [50.0, 60.0, 150.0, 170.0]]
    found = Segmenter(task="boxes", device="cpu")({"uri": [file, file], "id": ["x", "y"], "boxes": [boxes, []]}).to_pylist()
    assert [(row["id"], row["instance"]) for row in found] == [("x", 0), ("x", 1), ("y", -1)]
    wanted = sam.embed(file).segment(cutout.Prompt(box=tuple(boxes[1]))).best
    assert found[1]["rle"] == wanted.rle()["counts"].encode() and found[1]["area"] == wanted.area


def test_outlines_are_those_of_the_command(pictures, tmp_path, sam):
    file = str(pictures / "a.png")
    found = Segmenter(device="cpu", polygons=1.5, **OPTIONS)({"uri": [file]}).column("polygon").to_pylist()
    arguments = ["batch", file, "-o", str(tmp_path / "out"), "--points-per-side", "3", "--device", "cpu", "--polygons", "1.5"]
    subprocess.run([sys.executable, "-m", "cutout", *arguments], check=True, capture_output=True)
    assert found == parquet.read_table(tmp_path / "out").column("polygon").to_pylist() and len(found) > 1
    # Little-endian, a multipolygon (6), and as many polygons as the mask has.
    mask = sam.embed(file).everything(**OPTIONS)[0]
    assert found[0][:5] == bytes([1, 6, 0, 0, 0]) and int.from_bytes(found[0][5:9], "little") == len(mask.polygons(1.5))
    assert Segmenter(device="cpu", **OPTIONS)({"uri": [file]}).column("polygon").null_count == len(found)
    with pytest.raises(ValueError, match="pixels"):
        Segmenter(polygons=-1)


def test_parts_are_written_once(pictures, tmp_path):
    table = {"uri": [str(pictures / "a.png"), str(pictures / "broken.png")]}
    parts = Parts(tmp_path / "out", Segmenter(device="cpu", **OPTIONS))
    part = parts.write(table)
    first = part.read_bytes()
    found = parquet.read_table(tmp_path / "out")
    assert found.replace_schema_metadata().equals(parts.segmenter(table))
    # The fields of the marks of `cutout batch`.
    (mark,) = (tmp_path / "out").glob("_*.done")
    facts = json.loads(mark.read_text())
    assert list(facts) == ["rows", "pictures", "errors", "sha256", "key"]
    assert (facts["rows"], facts["pictures"], facts["errors"]) == (found.num_rows, 2, 1)
    assert facts["sha256"] == hashlib.sha256(first).hexdigest()

    # A marked part is not computed again, not even opened a model for.
    idle = pickle.loads(pickle.dumps(parts))
    assert idle.write(table) == part and idle.segmenter._sam is None
    # A part without its mark, and one that is damaged, are written again with the same bytes.
    mark.unlink()
    part.write_bytes(b"half")
    assert parts.write(table).read_bytes() == first
    part.write_bytes(b"damaged")
    assert parts.write(table).read_bytes() == first
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == sorted([mark.name, part.name])
    with pytest.raises(ValueError, match="other options"):
        Parts(tmp_path / "out", Segmenter(device="cpu", points_per_side=2)).write(table)


def test_a_failure_that_passes_is_tried_again(pictures, monkeypatch):
    segmenter = Segmenter(device="cpu", **OPTIONS)
    table = {"uri": [str(pictures / "a.png")]}
    wanted, work, calls = segmenter(table), segmenter._masks, []

    def fails_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise OSError("the share is away")
        return work(*arguments)

    monkeypatch.setattr(segmenter, "_masks", fails_once)
    assert segmenter(table).equals(wanted) and len(calls) == 2


def test_wrong_arguments(pictures):
    for arguments in [{"task": "paint"}, {"task": "find"}, {"task": "boxes", "points_per_side": 2}]:
        with pytest.raises(ValueError):
            Segmenter(**arguments)
    with pytest.raises(ValueError, match="no column of pictures"):
        Segmenter(device="cpu")({"name": ["x"]})
    with pytest.raises(ValueError, match="boxes"):
        Segmenter(task="boxes", device="cpu")({"uri": [str(pictures / "a.png")]})
    with pytest.raises(ValueError, match="points_per_sied"):
        Segmenter(device="cpu", points_per_sied=3)({"uri": [str(pictures / "a.png")]})
    with pytest.raises(ValueError, match="SAM 3"):
        Segmenter(task="find", phrases=["cat"], device="cpu")({"uri": [str(pictures / "a.png")]})
