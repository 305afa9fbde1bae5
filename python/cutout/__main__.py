"""`python -m cutout` is the command `cutout`."""

import sys

from ._command import main

sys.exit(main())
