"""The command `cutout`, as the package installs it."""

import sys

from ._cutout import command


def main() -> int:
    """Runs the command line of this process."""
    return command(["cutout", *sys.argv[1:]])
