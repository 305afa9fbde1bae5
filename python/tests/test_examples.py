"""The example in cells runs from the first to the last."""

import pathlib
import subprocess
import sys

import cutout

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def test_the_notebook(tmp_path, scene):
    run = subprocess.run([sys.executable, EXAMPLES / "notebook.py", tmp_path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    first = scene.segment(cutout.Prompt(points=[(200, 280)])).best
    prompt = cutout.Prompt(points=[(200, 280), (40, 40)], labels=[1, 0], logits=first.logits)
    assert (tmp_path / "mask.png").read_bytes() == scene.segment(prompt).best.png()
    assert "objects, the largest" in run.stdout and "masks bool[3, " in run.stdout
