"""Makes a virtual environment with what the tests need: `python3 environment.py FOLDER`. Prints its interpreter.

A second process waits for the first, and an environment that is complete is left as it is. Exits with 1 and the reason
where Python is too old or packages cannot be installed.
"""

import contextlib
import os
import pathlib
import subprocess
import sys

PACKAGES = pathlib.Path(__file__).with_name("requirements.txt")


@contextlib.contextmanager
def alone(file):
    """Waits until no other process holds the file."""
    with open(file, "w") as held:
        if os.name != "nt":
            import fcntl

            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def make(folder):
    """The interpreter of the environment, made if it is not there."""
    interpreter = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    mark, wanted = folder / "complete", f"{sys.version}\n{PACKAGES.read_text()}"
    if mark.exists() and mark.read_text() == wanted:
        return interpreter
    # What is not there yet leaves nothing half-made: without its mark the environment is made anew.
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    pip = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", PACKAGES]
    subprocess.run(pip, check=True, timeout=600)
    mark.write_text(wanted)
    return interpreter


def main():
    if sys.version_info < (3, 10):
        sys.exit(f"Python {sys.version.split()[0]} is older than 3.10")
    folder = pathlib.Path(sys.argv[1]).absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with alone(folder.with_name(f"{folder.name}.lock")):
            print(make(folder))
    except (subprocess.SubprocessError, OSError) as error:
        sys.exit(f"no virtual environment with {PACKAGES.name}: {error}")


if __name__ == "__main__":
    main()
