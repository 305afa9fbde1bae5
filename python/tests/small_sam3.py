"""The small random SAM 3 of fixtures/make_sam3_predictor.py, with what Meta's code answers."""

import json
import pathlib

import numpy as np

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "sam3"
TYPES = {"F32": np.float32, "F16": np.float16, "I64": np.int64, "U8": np.uint8}
VOCABULARY = 49408
TEXT = "detector.backbone.language_backbone.encoder.token_embedding.weight"
TRUNK = "detector.backbone.vision_backbone.trunk"


def read(path):
    """Tensors and notes of a safetensors file."""
    stored = path.read_bytes()
    length = int.from_bytes(stored[:8], "little")
    header = json.loads(stored[8 : 8 + length])
    notes, tensors = header.pop("__metadata__", {}), {}
    for name, about in header.items():
        begin, end = (8 + length + offset for offset in about["data_offsets"])
        tensors[name] = np.frombuffer(stored[begin:end], TYPES[about["dtype"]]).reshape(about["shape"])
    return tensors, notes


def write(path, tensors):
    """A safetensors file of tensors of float32."""
    header, place, parts = {}, 0, []
    for name, values in tensors.items():
        parts.append(np.ascontiguousarray(values, np.float32).tobytes())
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [place, place + len(parts[-1])]}
        place += len(parts[-1])
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def make(path):
    """Writes the model as a checkpoint of Meta's, and returns the tensors and notes of the fixture."""
    tensors, notes = read(FIXTURES / "predictor.safetensors")
    weights = {name.removeprefix("weight/"): value for name, value in tensors.items() if name.startswith("weight/")}
    weights |= read(FIXTURES / "memory.safetensors")[0]
    # The rows of the vocabulary that the phrases use.
    weights[TEXT] = np.zeros((VOCABULARY, tensors["rows"].shape[1]), np.float32)
    weights[TEXT][tensors["used"]] = tensors["rows"]
    config = json.loads(notes["config"])
    for block in range(config["depth"]):
        # Only the shapes of these are read.
        side = config["grid"] if block in config["global_blocks"] else config["window"]
        shape = (side * side, config["width"] // config["heads"] // 2)
        weights[f"{TRUNK}.blocks.{block}.attn.freqs_cis"] = np.zeros(shape, np.float32)
    write(path, weights)
    return tensors, notes
