"""What the tests share: the built-in model, the example picture and clip of the repository."""

import pathlib

import numpy as np
import pytest

import cutout

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def sam():
    return cutout.Sam(device="cpu")


@pytest.fixture(scope="session")
def picture():
    """The pixels of the example picture."""
    return next(iter(cutout.Frames(ROOT / "examples" / "still-life.jpg")))


@pytest.fixture(scope="session")
def scene(sam, picture):
    return sam.embed(picture)


@pytest.fixture(scope="session")
def clip(tmp_path_factory):
    """A folder of seven frames: a bright disc that moves over a dark gradient."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("clip")
    rows, columns = np.mgrid[0:120, 0:160]
    for index in range(7):
        ground = np.stack([columns // 3, rows // 3, np.full_like(rows, 40)], axis=2)
        disc = (rows - 60) ** 2 + (columns - 40 - 8 * index) ** 2 < 24**2
        ground[disc] = (230, 200, 60)
        Image.fromarray(ground.astype(np.uint8)).save(folder / f"{index:05d}.png")
    return folder
