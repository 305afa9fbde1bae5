"""The command that the package installs."""

import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np

import cutout

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "cutout"]


def run(*arguments, **options):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, **options)


def test_it_gives_the_masks_of_the_package(tmp_path, scene):
    from PIL import Image

    picture = ROOT / "examples" / "still-life.jpg"
    done = run("segment", picture, "--point", "200,280", "--multimask", "-o", tmp_path / "mask.png", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    found = np.array(Image.open(tmp_path / "mask.png").convert("L")) > 0
    wanted = scene.segment(cutout.Prompt(points=[(200, 280)])).best
    assert np.array_equal(found, wanted.array())


def test_exit_codes():
    assert run("segment").returncode == 2
    assert run("segment", "nowhere.jpg", "--point", "1,1").returncode == 1
    assert run("--version").stdout == f"cutout {cutout.__version__}\n"


def test_what_is_installed_as_cutout():
    """The function that pyproject.toml names is the command."""
    project = (ROOT / "pyproject.toml").read_text()
    module, function = re.search(r'^cutout = "([\w.]+):(\w+)"$', project, re.MULTILINE).groups()
    program = f"import sys, {module}; sys.exit({module}.{function}())"
    for arguments, code in [(["--help"], 0), (["segment"], 2)]:
        assert subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True).returncode == code


def test_an_interrupt_ends_it(tmp_path):
    picture = ROOT / "examples" / "still-life.jpg"
    arguments = ["everything", str(picture), "--points-per-side", "256", "-o", str(tmp_path / "masks.json")]
    child = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True)
    time.sleep(3.0)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=30)
    assert child.returncode == 130
    assert list(tmp_path.iterdir()) == []
